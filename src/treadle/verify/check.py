"""verify-schedule as functions: the faults of a kernel, and what they say to the user."""

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.machine import TargetSpec
from treadle.verify.engine import Engine
from treadle.verify.findings import Finding
from treadle.verify.geometry import Geometry
from treadle.verify.program import Program
from treadle.verify.trip_counts import traces

MAX_FINDINGS = 8
_AFTER = {"V5": 1, "V8": 2}  # a race explains more than the stall or the unwritten bytes that come of it


def verify_kernel(kernel: tile.KernelOp, spec: TargetSpec | None = None, *, max_findings: int = MAX_FINDINGS) -> tuple[Finding, ...]:
    """The faults of a schedule-level kernel; empty where every order it needs is there, for every trip count.

    Stops after the first run that shows any, with at most `max_findings` of it. Raises `TreadleError` TR415 where the kernel's control
    cannot be followed.
    """
    program = Program(kernel, spec)
    if not has_shared_state(program):
        return ()
    geometry = Geometry(program)
    for trace in traces(program):
        if found := Engine(program, trace, geometry, max_findings).run():
            return tuple(sorted(found, key=lambda f: _AFTER.get(f.rule, 0)))
    return ()


def has_shared_state(program: Program) -> bool:
    """Whether there is anything to order: shared buffers, barriers, queued results, arrays that are written and read."""
    if program.buffers or program.registers or program.tracked_pointers or len(program.mbarriers):
        return True
    return any(op.name.startswith("sync.") and op.name != "sync.sched_fence" for op in program.ops)


def is_right(kernel: tile.KernelOp, spec: TargetSpec | None = None) -> bool:
    """Whether a kernel verifies; one that cannot be followed does not."""
    try:
        return not verify_kernel(kernel, spec, max_findings=1)
    except TreadleError:
        return False
