"""Scalars that are computed outside a generic move into its body: kernels take arrays and sizes only.

An element extracted at constant indices becomes an input; one extracted at any other place stays a `tensor.extract` in the body, a gather.
Values of type `index` that the host knows (sizes, arithmetic on them) stay outside.
"""

from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, tensor
from treadle.transforms.tensor.drafts import Draft
from treadle.transforms.tensor.generics import constant_map

_SCALAR_DIALECTS = ("arith", "math", "affine")


def depends_on_data(value: SSAValue) -> bool:
    """Whether a scalar is computed from elements of tensors other than numbers that the host reads as sizes."""
    pending, seen = [value], set[SSAValue]()
    while pending:
        current = pending.pop()
        owner = current.owner
        if current in seen or not isinstance(owner, Operation):
            continue
        seen.add(current)
        if isinstance(owner, tensor.ExtractOp):
            if not isinstance(current.type, builtin.IndexType):
                return True
        elif owner.name.split(".")[0] in _SCALAR_DIALECTS:
            pending.extend(owner.operands)
    return False


def sink_scalars(draft: Draft, rank: int) -> None:
    """Copy the operations that compute captured scalars into the body, up to index values of the host; extracted elements become inputs."""
    for op in [inner for inner in draft.block.walk() if isinstance(inner, tensor.ExtractOp)]:
        _fold_constant_extract(op, draft, rank)
    moved: dict[SSAValue, SSAValue] = {}
    first = draft.block.first_op
    pending = [operand for op in draft.block.walk() for operand in op.operands if _is_captured(operand, draft.block)]
    for value in pending:
        _sink(value, draft, rank, moved, first)
    for op in draft.block.walk():
        for index, operand in enumerate(op.operands):
            if operand in moved and moved[operand] is not operand:
                op.operands[index] = moved[operand]
                draft.changed = True


def _constant_indices(op: tensor.ExtractOp) -> list[int] | None:
    """The place that `op` reads, None where it is not known."""
    found: list[int] = []
    for value in op.indices:
        owner = value.owner
        if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, builtin.IntegerAttr):
            return None
        found.append(int(owner.value.value.data))
    return found


def _fold_constant_extract(op: tensor.ExtractOp, draft: Draft, rank: int) -> None:
    """An extraction inside the body at constant indices: the element becomes an input."""
    indices = _constant_indices(op)
    block = op.parent_block()
    if indices is not None and block is not None:
        op.result.replace_all_uses_with(draft.add_input(op.tensor, constant_map(rank, indices), op.result.type))
        block.erase_op(op)


def _is_captured(value: SSAValue, block: Block) -> bool:
    owner = value.owner
    holder = owner if isinstance(owner, Block) else owner.parent_block()
    while holder is not None:
        if holder is block:
            return False
        holder = holder.parent_block()
    if isinstance(value.type, builtin.TensorType):
        return False
    return not isinstance(value.type, builtin.IndexType) or isinstance(owner, arith.ConstantOp) or depends_on_data(value)


def _sink(value: SSAValue, draft: Draft, rank: int, moved: dict[SSAValue, SSAValue], before: Operation | None) -> SSAValue:
    if value in moved:
        return moved[value]
    owner = value.owner
    moved[value] = value
    if isinstance(value.type, builtin.TensorType) or not isinstance(owner, Operation):
        return value
    known_to_host = isinstance(value.type, builtin.IndexType) and not isinstance(owner, arith.ConstantOp) and not depends_on_data(value)
    if known_to_host or owner.regions:
        return value
    if isinstance(owner, tensor.ExtractOp) and (indices := _constant_indices(owner)) is not None:
        moved[value] = draft.add_input(owner.tensor, constant_map(rank, indices), value.type)
    elif isinstance(owner, tensor.ExtractOp) or owner.name.split(".")[0] in ("arith", "math"):
        mapping = {operand: _sink(operand, draft, rank, moved, before) for operand in owner.operands}
        copy = owner.clone(value_mapper=mapping)
        if before is None:
            draft.block.add_op(copy)
        else:
            draft.block.insert_op_before(copy, before)
        for old, new in zip(owner.results, copy.results, strict=True):
            moved[old] = new
    return moved[value]
