"""overlap-launches: kernels of one program that start while the one before them ends.

Level: schedule. Reads: how many launches the program has; whether the machine's launches can overlap. Writes: `overlaps` on every kernel.
Leaves alone: programs of one launch, and machines that start a kernel only when the one before it has ended.

Such a kernel waits, in every thread and before its body, until the launches before it are complete and what they wrote is visible. It
follows that whoever waits for it has waited for all before it, so that no access needs to be looked at. What runs ahead of the wait touches
no global memory: barriers are initialised, descriptors (kernel arguments) fetched. Nothing else changes, so the proof of the kernel holds.
"""

from treadle import remarks
from treadle.dialects import dispatch
from treadle.ir.builtin import UnitAttr
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, Pass, register_pass
from treadle.machine import target_spec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import kernels

NAME = "overlap-launches"


@register_pass
@dataclass(frozen=True)
class OverlapLaunchesPass(Pass):
    """Works on all kernels of a module alike."""

    name = NAME

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        launches = sum(isinstance(op, dispatch.LaunchOp) for op in module.walk())
        for kernel in kernels(module) if launches > 1 else ():
            if target_spec(kernel.target.data).overlapping_launches:
                kernel.properties["overlaps"] = UnitAttr()
                remarks.emit("decision", NAME, kernel.sym_name.data, "may start while the launch before it ends", location_of(kernel))
