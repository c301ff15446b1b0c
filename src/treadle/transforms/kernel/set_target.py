"""set-target: the machine that kernels which users wrote are compiled for.

Level: tile or schedule. Reads: the target that a kernel is written for, its warps, the machine. Writes: `target` of kernels that are
written for any. Leaves alone: kernels that are written for this target, and, where `exact` is not asked for, for others.
"""

from treadle.dialects import tile
from treadle.dialects.kernel_text import ANY_TARGET
from treadle.errors import KERNEL_FORM, OTHER_TARGET, TreadleError
from treadle.ir.builtin import ModuleOp
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, Pass, register_pass
from treadle.machine import TargetSpec, target_spec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import kernels, num_warps


def check_workgroup(kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """Raises TR107 for more warps than a workgroup of the machine has."""
    threads, most = num_warps(kernel) * spec.subgroup_size, spec.max_threads_per_workgroup
    if threads > most:
        problem = f"its {num_warps(kernel)} warps are {threads} threads; a workgroup of {spec.name} has at most {most}"
        hint = f"use at most {most // spec.subgroup_size} warps"
        raise TreadleError(KERNEL_FORM, location_of(kernel), kernel=kernel.sym_name.data, problem=problem, hint=hint)


@register_pass
@dataclass(frozen=True)
class SetTargetPass(Pass):
    """`exact`: a kernel that is written for another target is an error, TR504."""

    name = "set-target"
    target: str
    exact: bool = True

    def apply(self, ctx: Context, module: ModuleOp, /) -> None:
        """Set the target of every kernel that has none; of those that name the architecture, the product."""
        for kernel in kernels(module):
            written = kernel.target.data
            if written != ANY_TARGET and self.exact and target_spec(written).name != target_spec(self.target).name:
                raise TreadleError(OTHER_TARGET, location_of(kernel), kernel=kernel.sym_name.data, written=written, target=self.target)
            if written == ANY_TARGET or self.exact:
                kernel.properties["target"] = builtin.StringAttr(self.target)
            check_workgroup(kernel, target_spec(kernel.target.data))
