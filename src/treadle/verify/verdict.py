"""What is known about a kernel once it was checked: proven, refuted, or neither."""

from typing import TYPE_CHECKING, Literal

from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.records import Record

if TYPE_CHECKING:
    from treadle.verify.findings import Finding

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
