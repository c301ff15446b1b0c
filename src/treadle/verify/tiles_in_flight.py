"""Register tiles that queued operations may still write or read: who may use them when."""

from treadle.verify.clocks import Agent, Flight, reached
from treadle.verify.events import Event
from treadle.verify.program import Program
from treadle.verify.reports import Reports


class TilesInFlight:
    """Checks uses of the tiles in `Agent.registers`."""

    def __init__(self, program: Program, reports: Reports) -> None:
        self._program, self._reports = program, reports

    def chain(self, agent: Agent, event: Event, register: int) -> None:
        """The next operation of a queue takes over a tile that the one before may still be writing; it is then nobody else's."""
        flight = agent.registers.get(register)
        if flight is None:
            return
        is_ready = reached(agent.clock, flight.component, flight.value)
        if flight.taken is None and not is_ready and flight.event.queue == event.queue:
            flight.taken = event
        else:
            self.use(agent, event, register)

    def use(self, agent: Agent, event: Event, register: int) -> None:
        """An operation uses a tile in some other way; so does the end of a block, of what its operations hold."""
        flight = agent.registers.get(register)
        if flight is None or (flight.taken is None and reached(agent.clock, flight.component, flight.value)):
            return
        first, second = self._reports.place(agent, flight.event), self._reports.place(agent, event)
        queue = flight.event.queue
        if register >= len(self._program.registers):
            self._release(agent, event, flight)
            return
        message = f"the result of {first.op.name} is used while it may not be there yet"
        missing = f'a wait of "{queue}" that retires the group of the first, before the second'
        steps = (first.describe() + ": issued", second.describe() + ": reads the tile; the group may still be at work")
        if flight.taken is not None:
            first = self._reports.place(agent, flight.taken)
            message = f"the result of {flight.event.op.name} is used though {first.op.name} has taken it over as its accumulator"
            missing = f'a wait of "{queue}" between the result and the operation that adds to it, or an accumulator of its own'
            steps = (first.describe() + ": adds to the tile where it is", second.describe() + ": finds other numbers there")
        self._reports.report("V1", message, agent, event, first=first, memory=f"register tile of {queue}", missing=missing, steps=steps)

    def _release(self, agent: Agent, event: Event, flight: Flight) -> None:
        """The block of an operation ends that may still read its operand's registers."""
        first, second = self._reports.place(agent, flight.event), self._reports.place(agent, event)
        queue = flight.event.queue
        message = f"{first.op.name} may still read its operand's registers when its block ends and they are given to other tiles"
        missing = f'a wait of "{queue}" that retires its group, behind it in its block'
        steps = (first.describe() + ": issued, reads registers", second.describe() + ": the registers get other values")
        self._reports.report("V2", message, agent, event, first=first, memory=f"registers of {queue}", missing=missing, steps=steps)

    def move(self, agent: Agent, event: Event) -> bool:
        """A loop or branch hands tiles on."""
        registers = agent.registers
        if not registers:
            return True
        values = [registers.get(source) for _, source in event.moves]
        for (to, _), value in zip(event.moves, values, strict=True):
            if value is None:
                registers.pop(to, None)
            else:
                registers[to] = value
        return True
