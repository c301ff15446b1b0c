"""hoist-guarded-loops: a loop of products under a condition of the whole workgroup makes no step instead where the condition does not hold.

Level: tile. Reads: `scf.if` in a kernel's own block, without a result or another side, whose block has one loop that contracts; the form.
Writes: what stands ahead of the loop, and the loop, move ahead of the branch; the loop ends where it begins unless the condition holds, and
what is no constant divides only there; what stands behind the loop stays in the branch. Leaves alone: kernels of forms without roles,
machines without descriptor copies; with a refusal, branches of another kind, and those whose loop writes to memory or has stages.

Roles walk the same loops, so that a loop has to stand where all of them come by. Tiles that a group of a grouped product does not have are
such conditions.
"""

from typing import cast

from treadle.analysis.divisibility import constant_value
from treadle.analysis.needed_precision import is_float
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.stages import StageOp
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before

NAME = "hoist-guarded-loops"


def guarded_loop(branch: scf.IfOp) -> scf.ForOp | str | None:
    """The one loop of a branch that contracts, where everything up to its end may as well be executed when the condition does not hold, or
    why not. None where no loop of the branch contracts.
    """
    ops = list(branch.true_region.block.ops)
    loops = [op for op in ops if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.ContractOp) for inner in op.walk())]
    if not loops:
        return None
    if len(loops) > 1:
        return f"{len(loops)} loops of products stand under it"
    if branch.results or any(block.first_op is not block.last_op for block in branch.false_region.blocks):
        return "the condition has results, or another side"
    if any(isinstance(op, StageOp) for op in loops[0].walk()):
        return "the loop has stages"
    if any(map(_writes, loops[0].walk())):
        return "the loop writes to memory"
    harm = next((op for op in ops[: ops.index(loops[0])] if not _is_harmless(op)), None)
    return loops[0] if harm is None else f"{harm.name} ahead of the loop is for where the condition holds alone"


def _writes(op: Operation) -> bool:
    return isinstance(op, HasEffects) and any(effect.access == "write" for effect in op.effects())


def _is_harmless(op: Operation) -> bool:
    """Whether nothing is to be seen of an operation but its results, where scalars are divided by 1: loads read within their arrays."""
    if op.regions or (_divides(op) and isinstance(op.operands[1].type, builtin.TensorType)):
        return False
    return isinstance(op, tile.LoadOp | tile.ViewOp) or not (isinstance(op, HasEffects) and op.effects())


def _divides(op: Operation) -> bool:
    """Whether an operation divides integers by what may be zero."""
    is_division = "div" in op.name or "rem" in op.name
    return is_division and not is_float(op.operands[1]) and not constant_value(op.operands[1])


def _divide_by_one_unless(condition: SSAValue, op: Operation) -> None:
    """Where the condition does not hold, nothing is known of the divisor."""
    kind = op.operands[1].type
    if not isinstance(kind, builtin.IndexType | builtin.IntegerType):
        raise InternalError(f"{op.name} divides by {kind}, which is no integer")
    one = arith.ConstantOp(builtin.IntegerAttr(1, cast("builtin.IndexType", kind)))
    divisor = arith.SelectOp(condition, op.operands[1], one.result)
    insert_before(op, one, divisor)
    op.operands[1] = divisor.result


@register_pass
@dataclass(frozen=True)
class HoistGuardedLoopsPass(KernelPass):
    """Works on kernels whose form asks for roles."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite one kernel."""
        if spec.bulk_tensor is None or not isinstance(config_of(kernel), roles.Config):
            return
        for branch in [op for op in kernel.body.block.ops if isinstance(op, scf.IfOp)]:
            if (loop := guarded_loop(branch)) is None:
                continue
            if isinstance(loop, str):
                emit("refusal", NAME, kernel.sym_name.data, f"the condition stays around the loop: {loop}", location_of(branch))
                continue
            ops = list(branch.true_region.block.ops)
            for op in ops[: ops.index(loop) + 1]:
                op.detach()
                insert_before(branch, op)
                if _divides(op):
                    _divide_by_one_unless(branch.cond, op)
            end = arith.SelectOp(branch.cond, loop.ub, loop.lb)
            insert_before(loop, end)
            loop.operands[1] = end.result
            emit("decision", NAME, kernel.sym_name.data, "the loop makes no step where the condition does not hold", location_of(branch))
