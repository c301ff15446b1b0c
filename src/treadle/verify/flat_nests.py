"""Loops that do nothing but another loop, whose bounds they decide (iteration i does i iterations), as one loop of all iterations.

How many these are is a sum that no form tells. So it may be any number, the same one in all loops whose bounds and steps are the same
expressions of sizes, workgroup ids and the outer loop's number: what is right for any number is right; a fault says nothing. Nothing that
decides anything in the inner loop may be made of the numbers of either, but for what they carry from one iteration to the next.
"""

from collections.abc import Iterator

from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.ancestry import ancestors, operands_of
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.verify.program import Program
from treadle.verify.scalars import constant_value, is_constant, sources_of, width_of, yielded

Key = tuple[object, ...]
"""The bounds and steps of both loops, as expressions."""
_COMPUTED = ("arith.", "affine.")


class _Other(Exception):
    """An expression may be another number for another agent, or at another time."""


def with_flat_nests(program: Program) -> tuple[tile.KernelOp, frozenset[SSAValue]] | None:
    """A clone with one loop in place of each such two, and how many iterations these make; None where there are none."""
    if program.cluster > 1 or program.tracked_pointers:
        return None
    found = {loop: key for loop in program.loops if (key := _key(loop)) is not None}
    if not found:
        return None
    clone = program.kernel.clone()
    copies = dict(zip(program.kernel.walk(), clone.walk(), strict=True))
    counts = {key: _count(clone, f"iterations{at}") for at, key in enumerate(dict.fromkeys(found.values()))}
    for loop, key in found.items():
        copy = copies[loop]
        if isinstance(copy, scf.ForOp):
            _flatten(copy, counts[key])
    return clone, frozenset(counts.values())


# --- which they are


def _key(loop: scf.ForOp) -> Key | None:
    """What decides how many iterations a loop's inner one does in all; None where it does something else, or nothing is gained."""
    inner = _inner(loop)
    if inner is None or all(_is_outside(bound, loop) for bound in (inner.lb, inner.ub)):  # nearly all are told from that
        return None
    if any(isinstance(around, scf.ForOp) for around in ancestors(loop)) or _carried(loop, inner) is None:
        return None
    if not all(op is inner or _is_arithmetic(op) for op in list(loop.body.block.ops)[:-1]):
        return None
    if not (_is_positive(loop.step) and _is_positive(inner.step)) or not _is_independent(loop, inner):
        return None
    try:
        return tuple([_shape(value, loop) for value in (loop.lb, loop.ub, loop.step, inner.lb, inner.ub, inner.step)])
    except _Other:
        return None


def _inner(loop: scf.ForOp) -> scf.ForOp | None:
    """The only loop in a loop."""
    loops = [op for op in loop.body.block.ops if isinstance(op, scf.ForOp)]
    return loops[0] if len(loops) == 1 else None


def _is_arithmetic(op: Operation) -> bool:
    """Whether an operation computes numbers of numbers alone: uses of register tiles have to be ordered."""
    is_scalar = op.name == "arith.constant" or all(width_of(value.type) for value in (*operands_of(op), *op.results))
    return op.name.startswith(_COMPUTED) and not op.regions and is_scalar


def _carried(loop: scf.ForOp, inner: scf.ForOp) -> list[int] | None:
    """For each value that the inner loop carries, which one of the outer loop's it goes on with and leaves; None where it is none of these,
    or the outer loop changes another one.
    """
    arguments, ends = loop.body.block.args[1:], yielded(loop)
    found: list[int] = []
    for start, result in zip(inner.iter_args, inner.results, strict=True):
        at = start.index - 1 if isinstance(start, BlockArgument) and start in arguments else -1
        if at < 0 or at in found or ends[at] is not result or any(use.operation is not loop.body.block.last_op for use in result.uses):
            return None
        found.append(at)
    others = [at for at in range(len(arguments)) if at not in found]
    return found if all(ends[at] is arguments[at] for at in others) else None


def _is_positive(step: SSAValue) -> bool:
    return is_constant(step) and isinstance(step.owner, Operation) and (constant_value(step.owner) or 0) > 0


def _is_outside(value: SSAValue, loop: scf.ForOp) -> bool:
    at = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    return at is not loop and (at is None or loop not in ancestors(at))


def _is_independent(loop: scf.ForOp, inner: scf.ForOp) -> bool:
    """Whether nothing that decides anything in the inner loop is made of the numbers of both loops, and what is, is an index."""
    own = {result for op in loop.body.block.ops if op is not inner for result in op.results}
    own |= {loop.body.block.args[0], inner.body.block.args[0]}
    if any(not isinstance(value.type, builtin.IndexType) for value in own if not is_constant(value) and not _is_invariant(value, loop)):
        return False
    varying = {value for value in own if not _is_invariant(value, loop)}
    work, seen = list(_deciding(inner)), set[SSAValue]()
    while work:
        value = work.pop()
        if value in varying:
            return False
        if value not in seen:
            seen.add(value)
            work += _made_of(value, loop, inner)
    return True


def _deciding(inner: scf.ForOp) -> Iterator[SSAValue]:
    """What picks slots, barriers, parities, memory, ways and lengths within a loop: counters of rings may be the loops' numbers, too."""
    for op in inner.body.walk():
        if isinstance(op, pipe.SlotOp | pipe.PartOp | sync.MbarrierSlotOp | sync.WaitPhaseOp):
            yield from operands_of(op)
        elif isinstance(op, scf.ForOp):
            yield from (op.lb, op.ub, op.step)
        elif isinstance(op, scf.IfOp):
            yield op.cond
        yield from (value for value in operands_of(op) if is_shared(value.type) or isinstance(value.type, sync.MbarrierType))


def _made_of(value: SSAValue, loop: scf.ForOp, inner: scf.ForOp) -> list[SSAValue]:
    """What decides about a value; of what both loops carry, not how many iterations they make."""
    for each in (loop, inner):
        at = -1
        if value.owner is each:
            at = each.results.index(value)
        elif isinstance(value, BlockArgument) and value.owner is each.body.block:
            at = value.index - 1
        if at >= 0:
            return [each.iter_args[at], yielded(each)[at]]
    return sources_of(value)


def _is_invariant(value: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value is the same in all iterations of a loop."""
    if _is_outside(value, loop):
        return True
    op = value.owner
    return isinstance(op, Operation) and op.name.startswith(_COMPUTED) and all(_is_invariant(operand, loop) for operand in operands_of(op))


def _shape(value: SSAValue, loop: scf.ForOp) -> object:
    """An expression that is one number for all agents and at all times, but for the loop's number; raises `_Other` for other ones."""
    op = value.owner
    if value is loop.body.block.args[0]:
        return "number"
    if isinstance(op, Block) and isinstance(op.parent_op(), tile.KernelOp):
        return value
    if isinstance(op, tile.ProgramIdOp):
        return "id", op.axis.value.data
    if not isinstance(op, Operation) or op.regions or not op.name.startswith(_COMPUTED):
        raise _Other
    properties = tuple(sorted((name, str(attribute)) for name, attribute in {**op.properties, **op.attributes}.items()))
    return op.name, str(value.type), properties, tuple([_shape(operand, loop) for operand in operands_of(op)])


# --- one loop of them


def _count(kernel: tile.KernelOp, name: str) -> SSAValue:
    """An index argument that may be any number."""
    block, symbols = kernel.body.block, list(kernel.symbols)
    kernel.properties["symbols"] = builtin.ArrayAttr([builtin.StringAttr(name), *symbols])
    return block.insert_arg(builtin.IndexType(), len(block.args) - len(symbols))


def _flatten(loop: scf.ForOp, count: SSAValue) -> None:
    inner, around = _inner(loop), loop.parent_block()
    carried = None if inner is None else _carried(loop, inner)
    if inner is None or carried is None or around is None:
        raise InternalError("two loops are other ones in a clone")
    body, block = loop.body.block, inner.body.block
    for op in [op for op in body.ops if op is not inner and op is not body.last_op]:
        if all(_is_invariant(result, loop) for result in op.results):
            op.detach()
            around.insert_op_before(op, loop)
    for op in body.ops:
        for result in op.results if op is not inner else ():
            result.replace_all_uses_with(block.args[0])
    body.args[0].replace_all_uses_with(block.args[0])
    zero, one = (arith.ConstantOp.from_int_and_width(number, builtin.IndexType()) for number in (0, 1))
    region = inner.body
    inner.detach_region(region)
    flat = scf.ForOp(zero.result, count, one.result, [loop.iter_args[at] for at in carried], region)
    around.insert_ops_before([zero, one, flat], loop)
    ends: dict[int, SSAValue] = dict(zip(carried, flat.results, strict=True))
    for at, (argument, result) in enumerate(zip(body.args[1:], loop.results, strict=True)):
        argument.replace_all_uses_with(loop.iter_args[at])
        result.replace_all_uses_with(ends.get(at, loop.iter_args[at]))
    loop.detach()
    loop.erase()
