"""The findings of a run, and what is known about a kernel once it was checked: proven, refuted, or neither."""

from typing import TYPE_CHECKING, Literal

from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.records import Record
from treadle.verify.clocks import Agent
from treadle.verify.events import Event

if TYPE_CHECKING:
    from treadle.verify.findings import Finding, Place, Rule


MAX_STEPS_OF_A_REPORT = 6


class Stop(Exception):
    """Enough was found."""


class Reports:
    """What a run has found so far, each pair of operations once. `trip_counts`: iterations of each loop in the run.

    `undecided`: what the run could neither prove nor refute, with the operation that is to blame; the kernel is then not proven.
    """

    def __init__(self, trip_counts: dict[int, int], max_findings: int) -> None:
        self.trip_counts, self.max_findings = trip_counts, max_findings
        self.found: dict[tuple[str, int, int], Finding] = {}
        self.undecided: dict[Operation, str] = {}

    def undecide(self, op: Operation, reason: str) -> None:
        """Note that the proof does not cover what `op` does; the first reason of an operation is kept."""
        self.undecided.setdefault(op, reason)

    def place(self, agent: Agent, event: Event, iteration: int | None = None) -> "Place":
        """A dynamic operation as reports show it."""
        from treadle.verify.findings import Place

        return Place(event.op, event.op_index, agent.strand.name, agent.iteration() if iteration is None else iteration)

    def report(
        self,
        rule: "Rule",
        message: str,
        agent: Agent,
        event: Event,
        *,
        first: "Place | None" = None,
        memory: str = "",
        missing: str = "",
        steps: tuple[str, ...] = (),
        iteration: int | None = None,
    ) -> None:
        """Keep a finding; raises `Stop` when there are enough."""
        from treadle.verify.findings import Finding

        trips = tuple(sorted(self.trip_counts.items()))
        self.keep(Finding(rule, message, self.place(agent, event, iteration), first, memory, missing, steps[:MAX_STEPS_OF_A_REPORT], trips))

    def keep(self, found: "Finding") -> None:
        """Keep a finding; raises `Stop` when there are enough."""
        self.found.setdefault(found.key, found)
        if len(self.found) >= self.max_findings:
            raise Stop

    def report_last(self, message: str, agent: Agent, event: Event, steps: tuple[str, ...]) -> None:
        """The finding that ends a run: nobody can go on."""
        from contextlib import suppress

        with suppress(Stop):
            self.report("V5", message, agent, event, missing="whoever it waits for, on every path and for every trip count", steps=steps)


Status = Literal["proven", "refuted", "not proven"]


class Open(Record):
    """Something that the checker could not decide: the operation that is to blame, and why."""

    op: Operation
    reason: str

    def error(self, kernel: str) -> TreadleError:
        """The user error."""
        from treadle.verify.findings import NOT_VERIFIABLE

        return TreadleError(NOT_VERIFIABLE, location_of(self.op), kernel=kernel, op=self.op.name, reason=self.reason)


class Verdict(Record):
    """`findings`: faults with a witness (refuted). `undecided`: what stands in the way of a proof (not proven).

    `classes`: how many classes of sizes and workgroups were run. `assumptions`: what the proof takes for granted beyond docs/schedule.md.
    """

    findings: "tuple[Finding, ...]" = ()
    undecided: tuple[Open, ...] = ()
    classes: int = 0
    assumptions: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The verdict in a word, or two."""
        return "refuted" if self.findings else "not proven" if self.undecided else "proven"

    @property
    def is_proven(self) -> bool:
        """Whether every order that the kernel needs is there, for all sizes, workgroups, trip counts and branches."""
        return self.status == "proven"

    def first_error(self, kernel: str) -> TreadleError | None:
        """The user error of a kernel that is not proven."""
        for found in (*self.findings, *self.undecided):
            return found.error(kernel)
        return None
