"""Loops whose step is a size, as loops of so many iterations: a quotient by a size, which may be any number for all that is known.

Agents whose loops have the same bounds and step (of one or more) make the same number of iterations, whatever it is; a ring that goes
round by what a loop carries depends on no more. What is right for any number of iterations is right; a fault may need one that is never
made, and says nothing.
"""

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.verify.program import Program
from treadle.verify.scalars import constant_value


def with_counted_loops(program: Program) -> tile.KernelOp | None:
    """A clone that counts the iterations of such loops from 0 in steps of 1; None where it would be the same kernel."""
    if not any(_is_counted(op) for op in program.all(scf.ForOp)):
        return None
    clone = program.kernel.clone()
    for op in list(clone.walk()):
        if isinstance(op, scf.ForOp) and _is_counted(op):
            _count(op)
    return clone


def _is_counted(op: Operation) -> bool:
    return isinstance(op, scf.ForOp) and isinstance(op.step.type, builtin.IndexType) and not _is_fixed(op.step) and _may_stand(op)


def _is_fixed(value: SSAValue) -> bool:
    """Whether a value is arithmetic on constants alone."""
    owner = value.owner
    if not isinstance(owner, Operation):
        return False
    if not owner.operands:
        return constant_value(owner) is not None if owner.name == "arith.constant" else False
    return owner.name.startswith(("arith.", "affine.")) and all(_is_fixed(operand) for operand in owner.operands)


def _may_stand(loop: scf.ForOp) -> bool:
    """Whether the number of iterations is the same in every iteration of the loops around."""
    return all(_is_outside(value, _outermost(loop)) for value in (loop.lb, loop.ub, loop.step))


def _outermost(loop: scf.ForOp) -> Operation:
    found: Operation = loop
    around = loop.parent_op()
    while around is not None:
        found = around if isinstance(around, scf.ForOp) else found
        around = around.parent_op()
    return found


def _is_outside(value: SSAValue, around: Operation) -> bool:
    owner = value.owner
    inside = owner if isinstance(owner, Operation) else owner.parent_op()
    while inside is not None:
        if inside is around:
            return False
        inside = inside.parent_op()
    return True


def _count(loop: scf.ForOp) -> None:
    """Quotients are unknowns where no loop is around them. Numbers of iterations are carried on by the step, not multiplied by it: what
    becomes of them modulo a constant comes back.
    """
    outermost, lower, step = _outermost(loop), loop.lb, loop.step
    zero, one = arith.ConstantOp.from_int_and_width(0, builtin.IndexType()), arith.ConstantOp.from_int_and_width(1, builtin.IndexType())
    span = arith.SubiOp(loop.ub, lower)
    positive = arith.MaxSIOp(span.result, zero.result)
    count = arith.CeilDivSIOp(positive.result, step)
    block = outermost.parent_block()
    if block is None:
        return
    block.insert_ops_before([zero, one, span, positive, count], outermost)
    loop.operands[0], loop.operands[1], loop.operands[2] = zero.result, count.result, one.result
    if loop.body.block.args[0].uses:
        _carry(loop, lower, step)


def _carry(loop: scf.ForOp, lower: SSAValue, step: SSAValue) -> None:
    """Replace a loop by one that carries the number that its iterations ask for."""
    body = loop.body
    block, around = body.block, loop.parent_block()
    number, end = block.args[0], block.last_op
    if end is None or around is None:
        raise InternalError("scf.for without scf.yield")
    carried = block.insert_arg(number.type, len(block.args))
    number.replace_all_uses_with(carried)
    following = arith.AddiOp(carried, step)
    block.insert_op_before(following, end)
    end.operands = (*end.operands, following.result)
    loop.detach_region(body)
    wider = scf.ForOp(loop.lb, loop.ub, loop.step, [*loop.iter_args, lower], body)
    around.insert_op_before(wider, loop)
    for old, new in zip(loop.results, wider.results, strict=False):
        old.replace_all_uses_with(new)
    loop.detach()
    loop.erase()
