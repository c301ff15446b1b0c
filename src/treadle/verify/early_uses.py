"""What is said of register tiles, and of operands' registers, that are used while a queued operation may still be at work on them."""

from treadle.verify.clocks import Agent, Flight
from treadle.verify.events import Event
from treadle.verify.reports import Reports


def report_early_use(reports: Reports, agent: Agent, event: Event, flight: Flight) -> None:
    """A tile is used that may not be there yet, or that another operation has taken over."""
    first, second = reports.place(agent, flight.event), reports.place(agent, event)
    queue = flight.event.queue
    message = f"the result of {first.op.name} is used while it may not be there yet"
    missing = f'a wait of "{queue}" that retires the group of the first, before the second'
    steps = (first.describe() + ": issued", second.describe() + ": reads the tile; the group may still be at work")
    if flight.taken is not None:
        first = reports.place(agent, flight.taken)
        message = f"the result of {flight.event.op.name} is used though {first.op.name} has taken it over as its accumulator"
        missing = f'a wait of "{queue}" between the result and the operation that adds to it, or an accumulator of its own'
        steps = (first.describe() + ": adds to the tile where it is", second.describe() + ": finds other numbers there")
    reports.report("V1", message, agent, event, first=first, memory=f"register tile of {queue}", missing=missing, steps=steps)


def report_early_end(reports: Reports, agent: Agent, event: Event, flight: Flight) -> None:
    """The block of an operation ends that may still read its operand's registers."""
    first, second = reports.place(agent, flight.event), reports.place(agent, event)
    queue = flight.event.queue
    message = f"{first.op.name} may still read its operand's registers when its block ends and they are given to other tiles"
    missing = f'a wait of "{queue}" that retires its group, behind it in its block'
    steps = (first.describe() + ": issued, reads registers", second.describe() + ": the registers get other values")
    reports.report("V2", message, agent, event, first=first, memory=f"registers of {queue}", missing=missing, steps=steps)
