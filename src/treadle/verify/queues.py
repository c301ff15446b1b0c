"""What the waits of queues are sure of; and register tiles that queued operations may still write or read: who may use them when."""

from collections.abc import Callable

from treadle.verify.clocks import Agent, Components, reached
from treadle.verify.events import Event
from treadle.verify.program import Program
from treadle.verify.reports import Reports

FENCES = ("async_shared", "async_global")


class Queues:
    """The queues of a run. Checks uses of the tiles in `Agent.registers`."""

    def __init__(self, program: Program, components: Components, reports: Reports) -> None:
        self._program, self._components, self._reports = program, components, reports

    def actions(self) -> dict[str, Callable[[Agent, Event], bool]]:
        """By the kind of an event what it does; nobody has to wait for it."""
        return {"commit": self._commit, "wait": self._wait, "fence": self._fence, "move": self._move}

    def _commit(self, agent: Agent, event: Event) -> bool:
        agent.closed[event.queue] = agent.closed.get(event.queue, 0) + 1
        return True

    def _wait(self, agent: Agent, event: Event) -> bool:
        now = agent.tick()
        agent.last_sync = event
        retired = agent.closed.get(event.queue, 0) - event.number
        if retired > 0:
            if self._program.queues[event.queue].tells_reads:
                agent.put(self._components.queue(agent.number, event.queue, is_read=True), retired)
            if not event.is_read_wait:
                agent.put(self._components.queue(agent.number, event.queue), retired)
                agent.retired.setdefault(event.queue, []).append((retired, now))
        return True

    def _fence(self, agent: Agent, event: Event) -> bool:
        if event.queue in FENCES:
            agent.put(self._components.fence(agent.number, is_global=event.queue == "async_global"), agent.tick())
        return True

    # --- register tiles

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
        from treadle.verify.early_uses import report_early_end, report_early_use  # right programs have none

        if register >= len(self._program.registers):
            report_early_end(self._reports, agent, event, flight)
        else:
            report_early_use(self._reports, agent, event, flight)

    def _move(self, agent: Agent, event: Event) -> bool:
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
