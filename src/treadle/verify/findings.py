"""What the checker reports: one record for each fault, and the user errors made from them."""

from typing import Literal

from treadle.errors import Entry, SourceLocation, TreadleError
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.records import Record

Rule = Literal["V1", "V2", "V3", "V4", "V5", "V8"]
"""V1 read before the wait, V2 overwritten while in use, V3 unordered between agents, V4 no fence, V5 barriers and phases, V8 never
written. (V6, needed synchronisation, is lint; V7, deep enough buffers, shows as V2 or V3.)"""

SCHEDULE_RACE = Entry("TR411", "kernel '{kernel}': {message}", "{fix}")
SCHEDULE_STUCK = Entry("TR412", "kernel '{kernel}': {message}", "{fix}")
SCHEDULE_FENCE = Entry("TR413", "kernel '{kernel}': {message}", "{fix}")
SCHEDULE_UNWRITTEN = Entry("TR414", "kernel '{kernel}': {message}", "{fix}")
NOT_VERIFIABLE = Entry(
    "TR415",
    "kernel '{kernel}' is not proven, because of '{op}': {reason}",
    "compute it from constants, loop numbers, sizes and workgroup ids, by sums, multiples, quotients and remainders of constants",
)

_ENTRIES: dict[str, Entry] = {"V4": SCHEDULE_FENCE, "V5": SCHEDULE_STUCK, "V8": SCHEDULE_UNWRITTEN}


class Place(Record):
    """A dynamic operation in a report: who does it, in which iteration of the innermost loop (-1: in none)."""

    op: Operation
    op_index: int
    agent: str
    iteration: int = -1

    @property
    def location(self) -> SourceLocation | None:
        """Where the operation stands in the text."""
        return location_of(self.op)

    def describe(self) -> str:
        """`consumer 0: tile.contract (f.mlir:12:5), iteration 3`."""
        at = self.location
        where = f" ({at})" if at else ""
        return f"{self.agent}: {self.op.name}{where}" + (f", iteration {self.iteration}" if self.iteration >= 0 else "")


class Finding(Record):
    """One fault. `first` is the earlier operation where there are two, `second` the one that is not ordered after it.

    `missing`: the order that is not there. `steps`: an interleaving that goes wrong. `trip_counts`: iterations of each loop (by the loop's
    number in the kernel) in the run that shows it; `where`: its sizes and workgroup, by name.
    """

    rule: Rule
    message: str
    second: Place
    first: Place | None = None
    memory: str = ""
    missing: str = ""
    steps: tuple[str, ...] = ()
    trip_counts: tuple[tuple[int, int], ...] = ()
    fix: str = ""
    where: tuple[tuple[str, int], ...] = ()

    def at(self, where: tuple[tuple[str, int], ...]) -> "Finding":
        """The same, with its sizes and workgroup."""
        return Finding(
            self.rule, self.message, self.second, self.first, self.memory, self.missing, self.steps, self.trip_counts, self.fix, where
        )

    @property
    def key(self) -> tuple[str, int, int]:
        """Rule and both operations: findings of one key say the same."""
        return self.rule, -1 if self.first is None else self.first.op_index, self.second.op_index

    def explain(self) -> str:
        """The whole story, several lines."""
        lines = [f"{self.rule}: {self.message}"]
        if self.missing:
            lines.append(f"  missing order: {self.missing}")
        if self.where:
            lines.append("  where: " + ", ".join(f"{name} = {value}" for name, value in self.where))
        if self.trip_counts:
            lines.append("  trip counts: " + ", ".join(f"{count}" for _, count in self.trip_counts))
        lines += [f"  {at}. {step}" for at, step in enumerate(self.steps, 1)]
        if self.fix:
            lines.append(f"  suggested fix: {self.fix}")
        return "\n".join(lines)

    def error(self, kernel: str) -> TreadleError:
        """The user error."""
        details = self.explain().partition("\n")[2]
        message = f"{self.message} [{self.rule}]" + (f"\n{details}" if details else "")
        fix = (
            self.fix or "order the two operations: a wait by whoever issued the first, then a barrier or an arrival that the second follows"
        )
        return TreadleError(_ENTRIES.get(self.rule, SCHEDULE_RACE), self.second.location, kernel=kernel, message=message, fix=fix)
