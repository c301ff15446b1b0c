"""What the verifier says about a kernel, all runs together."""

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.records import Record
from treadle.verify.engine import Engine
from treadle.verify.findings import Finding
from treadle.verify.geometry import Geometry
from treadle.verify.program import Program
from treadle.verify.trip_counts import traces


class Verdict(Record):
    """Findings of the first run that has any; what was not decided, and what was assumed, in all runs."""

    findings: tuple[Finding, ...]
    undecided: dict[Operation, str]
    assumed: dict[Operation, str]

    @property
    def is_proven(self) -> bool:
        """Neither refuted nor undecided."""
        return not self.findings and not self.undecided


def verdict_of(kernel: tile.KernelOp) -> Verdict:
    """The verdict on a schedule-level kernel."""
    program = Program(kernel)
    geometry = Geometry(program)
    undecided: dict[Operation, str] = {}
    assumed: dict[Operation, str] = {}
    for trace in traces(program):
        engine = Engine(program, trace, geometry, 8)
        found = engine.run()
        undecided |= engine.reports.undecided
        assumed |= engine.reports.assumed
        if found:
            return Verdict(tuple(found), undecided, assumed)
    return Verdict((), undecided, assumed)
