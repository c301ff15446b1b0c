"""What barriers count: the phase of a transaction barrier, the next meeting at a named one."""

from treadle.verify.clocks import Agent, Clock, Restore
from treadle.verify.events import Event


class Phases:
    """One mbarrier: how many phases are complete, and what the current one has got so far."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.completed = self.arrived = self.announced = self.delivered = 0
        self.clock: Clock = {}
        self.completions: dict[int, Clock] = {}
        self.waiters: dict[int, list[tuple[Agent, int, Event]]] = {}
        self.parts: dict[tuple[int, int], list[Clock]] = {}

    def saved(self) -> Restore:
        """What brings it back."""
        counts = self.completed, self.arrived, self.announced, self.delivered
        clock, completions = dict(self.clock), dict(self.completions)
        waiters = {count: list(waiting) for count, waiting in self.waiters.items()}
        parts = {key: [dict(each) for each in clocks] for key, clocks in self.parts.items()}

        def restore() -> None:
            self.completed, self.arrived, self.announced, self.delivered = counts
            self.clock, self.completions = dict(clock), dict(completions)
            self.waiters = {count: list(waiting) for count, waiting in waiters.items()}
            self.parts = {key: [dict(each) for each in clocks] for key, clocks in parts.items()}

        return restore


class Meeting:
    """A named barrier: meetings so far, and who has come to the next. `needed`: the warps that the first one to come says it takes."""

    def __init__(self, over: int = 0) -> None:
        self.over, self.warps, self.needed = over, 0, 0
        self.clock: Clock = {}
        self.came: list[Agent] = []
        self.waiting: list[Agent] = []

    def copy(self) -> "Meeting":
        """Another one with the same who came."""
        found = Meeting(self.over)
        found.warps, found.needed, found.clock = self.warps, self.needed, dict(self.clock)
        found.came, found.waiting = list(self.came), list(self.waiting)
        return found
