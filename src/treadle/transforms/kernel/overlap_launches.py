"""overlap-launches: kernels of one program that start while the one before them ends.

Level: schedule. Reads: the program's launches; whether the machine's launches can overlap. Writes: `overlaps` on kernels: on every one
where that is asked for, else on a reduction of what the launch ahead of it has computed, such as the one that merges parts, and on the
kernel of that launch, which lets it in. Leaves alone: programs of one launch, and machines that start a kernel only when the one before
it has ended.

Such a kernel waits, in every thread and before its body, until the launches before it are complete and what they wrote is visible. It
follows that whoever waits for it has waited for all before it, so that no access needs to be looked at; one that does not wait is not
started early. What runs ahead of the wait touches no global memory: barriers are initialised, descriptors (kernel arguments) fetched.
Nothing else changes, so the proof of the kernel holds.
"""

from itertools import pairwise

from treadle import remarks
from treadle.dialects import dispatch
from treadle.ir.builtin import UnitAttr
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, Pass, register_pass
from treadle.machine import target_spec
from treadle.records import dataclass
from treadle.transforms.kernel.forms import reduction
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import kernels

NAME = "overlap-launches"


def _reductions_of_results(module: builtin.ModuleOp) -> set[str]:
    """The kernels of launches that reduce what the launch ahead of them has computed, and of these."""
    forms = {kernel.sym_name.data: config_of(kernel) for kernel in kernels(module)}
    launches = [op for op in module.walk() if isinstance(op, dispatch.LaunchOp)]
    found: set[str] = set()
    for before, op in pairwise(launches):
        name, ahead = (launch.kernel.root_reference.data for launch in (op, before))
        if isinstance(forms.get(name), reduction.Config) and not set(op.inputs).isdisjoint(before.outputs):
            found |= {name, ahead}
    return found


@register_pass
@dataclass(frozen=True)
class OverlapLaunchesPass(Pass):
    """Works on the kernels of a module. `is_asked`: on all of them."""

    name = NAME
    is_asked: bool = True

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        launches = sum(isinstance(op, dispatch.LaunchOp) for op in module.walk())
        marked = None if self.is_asked else _reductions_of_results(module)
        for kernel in kernels(module) if launches > 1 else ():
            name = kernel.sym_name.data
            if (marked is None or name in marked) and target_spec(kernel.target.data).overlapping_launches:
                kernel.properties["overlaps"] = UnitAttr()
                remarks.emit("decision", NAME, name, "may start while the launch before it ends", location_of(kernel))
