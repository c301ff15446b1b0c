"""Softmax as it stands among generics: a maximum along rows, the exponentials of the differences to it, and their sum."""

from treadle.analysis.indexing import Reduction, StructuredOp, classify, is_projection, map_dims, structured
from treadle.ir.builtin import attr_number
from treadle.ir.core import AffineMap, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, linalg, math
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Softmax:
    """A maximum of elements, and the sum of `exponential` (math.exp or math.exp2) of their differences to it, over the same rows."""

    maximum: StructuredOp
    total: StructuredOp
    exponential: type[Operation]


def _element(view: StructuredOp) -> SSAValue | None:
    """The scalar that a reduction of one output combines."""
    kind = classify(view.op)
    return kind.elements[0] if isinstance(kind, Reduction) and len(kind.elements) == 1 else None


def _combiner(view: StructuredOp) -> str:
    kind = classify(view.op)
    return kind.combiners[0] if isinstance(kind, Reduction) and len(kind.combiners) == 1 else ""


def _plain(value: SSAValue | None) -> tuple[BlockArgument, type[Operation] | None] | None:
    """The argument that a scalar is, as it stands or widened, and the widening operation."""
    widened = value.owner if value is not None and isinstance(value.owner, arith.ExtFOp) else None
    source = value if widened is None else widened.operands[0]
    return (source, None if widened is None else arith.ExtFOp) if isinstance(source, BlockArgument) else None


def softmax_of(total: StructuredOp) -> Softmax | None:
    """The maximum and the exponentials that a sum is of; None for any other sum."""
    if _combiner(total) != "arith.addf" or len(total.inputs) != 1 or not _plain(_element(total)) or not _starts_from_zero(total):
        return None
    made = total.inputs[0].owner
    view = structured(made) if isinstance(made, Operation) else None
    if view is None or not view.is_parallel or len(view.outputs) != 1 or view.output_maps[0] != AffineMap.identity(view.rank):
        return None
    power = view.yielded()[0].owner
    below = power.operands[0].owner if isinstance(power, math.ExpOp | math.Exp2Op) else None
    if not isinstance(power, Operation) or not isinstance(below, arith.SubfOp):
        return None
    score, top = _plain(below.lhs), _plain(below.rhs)
    if score is None or top is None or top[1] is not None or {score[0].block, top[0].block} != {view.body}:
        return None
    if max(score[0].index, top[0].index) >= len(view.inputs):
        return None
    maximum = view.inputs[top[0].index].owner
    first = structured(maximum) if isinstance(maximum, Operation) else None
    if first is None or _combiner(first) not in ("arith.maximumf", "arith.maxnumf") or len(first.inputs) != 1:
        return None
    source = _plain(_element(first))
    if source is None or source[1] is not score[1] or first.inputs[0] is not view.inputs[score[0].index]:
        return None
    return Softmax(first, total, type(power)) if _meet(first, view, score[0].index, top[0].index, total) else None


def _meet(first: StructuredOp, view: StructuredOp, score: int, top: int, total: StructuredOp) -> bool:
    """Whether the sum is of the same rows as the maximum, and of their exponentials at the same place; its results in the same order."""
    maps = (first.input_maps[0], view.input_maps[score], view.input_maps[top], total.input_maps[0])
    if not all(is_projection(map_) for map_ in (*maps, first.output_maps[0], total.output_maps[0])):
        return False
    read, again, kept, summed = (map_dims(map_) or () for map_ in maps)
    results = map_dims(first.output_maps[0])
    if len(again) != view.rank or len(read) != first.rank or len(summed) != total.rank:
        return False
    middle = dict(zip(again, read, strict=True))
    loops = {d: middle[axis] for axis, d in enumerate(summed)}
    return tuple(middle[d] for d in kept) == results == tuple(loops[d] for d in map_dims(total.output_maps[0]) or ())


def _starts_from_zero(view: StructuredOp) -> bool:
    owner = view.outputs[0].owner
    scalar = owner.inputs[0].owner if isinstance(owner, linalg.ops.FillOp) else None
    return isinstance(scalar, arith.ConstantOp) and attr_number(scalar.value) == 0
