"""Values that go through control flow beside what the program computes: loops carry them, conditionals give them."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from treadle.errors import InternalError
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import set_location
from treadle.transforms.kernel.kernel_ir import erase

OpT = TypeVar("OpT", scf.ForOp, scf.IfOp)


def carried_through(op: Operation, value: SSAValue, through: Callable[[Block, SSAValue], SSAValue]) -> scf.ForOp | scf.IfOp:
    """Replace a loop or a conditional by one whose last result is a value that starts as `value`; `through` gives it behind a block."""
    match op:
        case scf.ForOp():
            wider = with_iteration_argument(op, value)
            also_yield(wider.body.block, through(wider.body.block, wider.body.block.args[-1]))
        case scf.IfOp():
            wider = _with_result(op, value.type)
            for region in wider.regions:
                also_yield(region.block, through(region.block, value))
        case _:
            raise InternalError(f"no value goes through {op.name}")
    return wider


def with_iteration_argument(loop: scf.ForOp, initial: SSAValue) -> scf.ForOp:
    """Replace a loop by one that carries one more value; its body does not yield it yet."""
    body = loop.body
    block = body.block
    block.insert_arg(initial.type, len(block.args))
    loop.detach_region(body)
    return _replace(loop, scf.ForOp(loop.lb, loop.ub, loop.step, [*loop.iter_args, initial], body))


def also_yield(block: Block, value: SSAValue) -> None:
    """Give one more value at the end of a region of scf."""
    terminator = block.last_op
    if not isinstance(terminator, scf.YieldOp):
        raise InternalError("a region of scf without scf.yield")
    terminator.operands = (*terminator.operands, value)


def zero_of(value: SSAValue) -> arith.ConstantOp:
    """A constant of a value's type, to be carried where there is no value yet."""
    match value.type:
        case builtin.TensorType():
            tensor: Any = value.type
            zero = 0.0 if isinstance(tensor.element_type, builtin.AnyFloat) else 0
            return arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(tensor, [zero]))
        case builtin.IndexType() | builtin.IntegerType() as kind:
            return arith.ConstantOp(builtin.IntegerAttr(0, cast("builtin.IndexType", kind)))
        case kind if isinstance(kind, builtin.AnyFloat):
            return arith.ConstantOp(builtin.FloatAttr(0.0, kind))
        case kind:
            raise InternalError(f"no zero of type {kind}")


def _with_result(branch: scf.IfOp, kind: Attribute) -> scf.IfOp:
    """Replace a conditional by one with one more result and both branches; they do not yield it yet."""
    regions = list(branch.regions)
    for region in regions:
        branch.detach_region(region)
    taken, other = regions
    if not other.blocks:
        other = Region(Block([scf.YieldOp()]))
    return _replace(branch, scf.IfOp(branch.cond, [*(r.type for r in branch.results), kind], taken, other))


def _replace(old: OpT, new: OpT) -> OpT:
    new.attributes.update(old.attributes)
    set_location(new, old)
    cast(Block, old.parent).insert_op_before(new, old)
    for before, after in zip(old.results, new.results, strict=False):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    erase(old)
    return new
