"""Scalars that are computed outside a generic move into its body: kernels take arrays and sizes only.

An element extracted at constant indices becomes an input; one extracted at any other place stays a `tensor.extract` in the body, a gather.
Values of type `index` that the host knows (sizes, arithmetic on them) stay outside.
"""

from treadle.ir.ancestry import blocks_around
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, tensor
from treadle.ir.emitter import Emitter, at_start
from treadle.ir.simplify import constant_index
from treadle.transforms.tensor.drafts import Draft
from treadle.transforms.tensor.generics import constant_map, give_way

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
    emit = at_start(draft.block)
    pending = [operand for op in draft.block.walk() for operand in op.operands if _is_captured(operand, draft.block)]
    for value in pending:
        _sink(value, draft, rank, moved, emit)
    for op in draft.block.walk():
        for index, operand in enumerate(op.operands):
            if operand in moved and moved[operand] is not operand:
                op.operands[index] = moved[operand]
                draft.changed = True


def _constant_indices(op: tensor.ExtractOp) -> list[int] | None:
    """The place that `op` reads, None where it is not known."""
    found = [constant_index(value) for value in op.indices]
    known = [place for place in found if place is not None]
    return known if len(known) == len(found) else None


def _fold_constant_extract(op: tensor.ExtractOp, draft: Draft, rank: int) -> None:
    """An extraction inside the body at constant indices: the element becomes an input."""
    if (indices := _constant_indices(op)) is not None:
        give_way(op, [draft.add_input(op.tensor, constant_map(rank, indices), op.result.type)])


def _is_known_to_host(value: SSAValue) -> bool:
    return isinstance(value.type, builtin.IndexType) and not isinstance(value.owner, arith.ConstantOp) and not depends_on_data(value)


def _is_captured(value: SSAValue, block: Block) -> bool:
    holder = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    is_inside = holder is not None and any(around is block for around in blocks_around(holder))
    return not is_inside and not isinstance(value.type, builtin.TensorType) and not _is_known_to_host(value)


def _sink(value: SSAValue, draft: Draft, rank: int, moved: dict[SSAValue, SSAValue], emit: Emitter) -> SSAValue:
    if value in moved:
        return moved[value]
    owner = value.owner
    moved[value] = value
    if isinstance(value.type, builtin.TensorType) or not isinstance(owner, Operation) or owner.regions or _is_known_to_host(value):
        return value
    if isinstance(owner, tensor.ExtractOp) and (indices := _constant_indices(owner)) is not None:
        moved[value] = draft.add_input(owner.tensor, constant_map(rank, indices), value.type)
    elif isinstance(owner, tensor.ExtractOp) or owner.name.split(".")[0] in ("arith", "math"):
        mapping = {operand: _sink(operand, draft, rank, moved, emit) for operand in owner.operands}
        copy = owner.clone(value_mapper=mapping)
        emit.insert(copy)
        moved.update(zip(owner.results, copy.results, strict=True))
    return moved[value]
