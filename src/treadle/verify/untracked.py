"""Global arrays while a run goes on, in kernels that have none to keep an eye on: nothing is known, and nothing has to be."""

from collections.abc import Iterator

from treadle.errors import InternalError
from treadle.verify.clocks import Agent, Clock, Record, Restore
from treadle.verify.events import Access, Event


class Untracked:
    """What a run does with global arrays. `is_used`: whether any are tracked (`global_memory.py`)."""

    is_used = False

    def check_grid(self) -> None:
        """Report accesses of workgroups that nothing orders."""

    def arrive(self, agent: Agent, event: Event, now: int) -> None:
        """An agent may arrive at a counter."""

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """Report everything the access is not ordered after."""
        raise InternalError(f"{event.op.name}: an access to an array that is not tracked", event.op)

    def add(self, record: Record) -> None:
        """Keep an access."""
        raise InternalError(f"{record.event.op.name}: an access to an array that is not tracked", record.event.op)

    def forget_ordered(self, known: Clock) -> None:
        """Drop what is over, as everybody knows."""

    def saved(self) -> Restore:
        """What brings back all that is kept."""
        return lambda: None

    def records(self) -> Iterator[Record]:
        """All that are kept."""
        return iter(())

    def age(self, record: Record) -> tuple[object, ...]:
        """By how many iterations each agent that may still meet a record is ahead of it."""
        return ()

    def leave_out(self, agent: Agent, depth: int, iterations: int) -> None:
        """An agent's frame at a depth goes on by so many iterations as if they had been run."""
