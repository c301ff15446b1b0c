"""Where agents meet: workgroup and cluster barriers. Those that count are in `counting_barriers.py`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.errors import InternalError
from treadle.verify.clocks import Agent, Clock, Components, Restore, join
from treadle.verify.events import Event
from treadle.verify.program import Program
from treadle.verify.reports import Reports
from treadle.verify.workgroups import Cluster

if TYPE_CHECKING:
    from treadle.verify.phases import Meeting, Phases


class Barriers:
    """The barriers of a run in which nothing is counted: all strands that are at work come to each."""

    def __init__(self, program: Program, cluster: Cluster, components: Components, reports: Reports) -> None:
        self.program, self.cluster, self.components, self.reports = program, cluster, components, reports
        self.phases: list[Phases] = []
        self.named: dict[tuple[int, str], Meeting] = {}

    def actions(self) -> dict[str, Callable[[Agent, Event], bool]]:
        """By the kind of an event what it does; False where the strand has to wait and try it again."""
        return {"barrier": self.meet_groups, "cluster": self.meet}

    def saved(self) -> Restore:
        """What brings all of them back."""
        return _nothing

    def meet_groups(self, agent: Agent, event: Event) -> bool:
        """Meet, where only some groups of a role do."""
        return (event.groups is not None and agent.strand.group not in event.groups) or self.meet(agent, event)

    def meet(self, agent: Agent, event: Event) -> bool:
        """Arrive and wait for all; True once the meeting is over."""
        agent.last_sync = event
        if not event.is_bare:
            self.components.flush(agent)
        agent.tick()
        agent.blocked, agent.waiting = event.kind, event
        active = self.cluster.active if event.kind == "cluster" else self.cluster.workgroup(agent).active
        if any(other.blocked != event.kind for other in active):
            return False
        known: Clock = {}
        for other in active:
            join(known, other.clock)
        for other in active:
            other.clock = dict(known)
            other.blocked = "" if other is agent else "met"
        for workgroup in self.cluster.workgroups if event.kind == "cluster" else ():
            workgroup.touches.clear()
        self.cluster.forget(agent, [known])
        return True

    def retry(self, agent: Agent) -> bool:
        """Whether a waiting strand may go on; the operation it waited at is then behind it."""
        if agent.blocked == "met":
            agent.blocked = ""
            agent.frames[-1].position += 1
            return True
        return False

    def phases_left(self, agent: Agent) -> int:
        """How many phases a strand that waits for one is ahead of the mbarrier; 0 for others."""
        return 0

    def forget_known(self, agents: list[Agent]) -> None:
        """Drop what completed phases tell where all agents at work know it, so that nobody learns of it by a wait."""

    def token(self, barrier: int, rank: int) -> tuple[int, int]:
        """The component and value that say that the current phase of a workgroup's mbarrier is complete."""
        raise InternalError("a kernel without transaction barriers")

    def deliver(self, agent: Agent, event: Event, rank: int) -> None:
        """Bytes of a copy come in. What the issuer knows of phases being complete is then known, and nothing else of it."""
        raise InternalError("a kernel without transaction barriers")


def _nothing() -> None:
    pass
