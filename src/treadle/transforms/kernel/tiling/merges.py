"""The merge of two folded parts of a reduction, on tiles or on scalars.

Sources: T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979), for
mean and variance; M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018), for sums under a running maximum.
"""

from collections.abc import Sequence
from math import e, log2
from typing import cast

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.folds import Declared, Part, Separate, outputs_of
from treadle.analysis.identities import lowest_finite
from treadle.analysis.indexing import StructuredOp
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number, integer_width, number_attr
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, math
from treadle.transforms.kernel.tiling.joins import Insert, join_by
from treadle.transforms.kernel.tiling.scalars import dense

Values = Sequence[SSAValue]


def merged(insert: Insert, part: Part, view: StructuredOp, left: Values, right: Values, *, ordered: bool) -> list[SSAValue]:
    """What two parts are together, in the order of `outputs_of`. `ordered`: all of `left` comes before all of `right` in the loops, which
    tells ties of extrema apart whatever the indices say.
    """
    match part:
        case Separate():
            op = _combiner_of(view, part.output)
            return list(join_by(type(op), op)(insert, left, right))
        case Declared():
            return _by_body(insert, view, left, right)
        case Coupled(kind="mean_variance"):
            return _moments(insert, left, right)
        case Coupled(kind="online_softmax"):
            return _rescaled(insert, part, view, left, right)
        case Coupled():
            return _extremum(insert, part, left, right, ordered=ordered)


def merged_outputs(
    insert: Insert, parts: Sequence[Part], view: StructuredOp, left: Values, right: Values, *, ordered: bool
) -> list[SSAValue]:
    """The same for all parts of a reduction: values in the order of the outputs."""
    found: dict[int, SSAValue] = {}
    for part in parts:
        numbers = outputs_of(part)
        values = merged(insert, part, view, [left[i] for i in numbers], [right[i] for i in numbers], ordered=ordered)
        found.update(zip(numbers, values, strict=True))
    return [found[i] for i in range(len(found))]


def _again(insert: Insert, template: Operation, operands: Values) -> SSAValue:
    """An operation of a body on other operands, tiles or scalars."""
    element = template.results[0].type
    first = operands[0].type
    type_ = builtin.TensorType(element, first.get_shape()) if isinstance(first, builtin.TensorType) else element
    new = type(template).create(
        operands=operands, result_types=[type_], properties=dict(template.properties), attributes=dict(template.attributes)
    )
    return insert(new)


def _constant(insert: Insert, number: Attribute, element: Attribute, like: SSAValue) -> SSAValue:
    """A number with the shape of `like`."""
    if isinstance(like.type, builtin.TensorType):
        return insert(dense(number, element, tile.tile_type(like).get_shape()))
    return insert(arith.ConstantOp(cast("builtin.FloatAttr", number_attr(attr_number(number) or 0, element))))


def _combiner_of(view: StructuredOp, output: int) -> Operation:
    op = view.yielded()[output].owner
    if not isinstance(op, Operation):
        raise InternalError("a separable reduction yields an argument")
    return op


def _by_body(insert: Insert, view: StructuredOp, left: Values, right: Values) -> list[SSAValue]:
    """The body of a reduction whose author declares it to be a merge: accumulators first in the loops, elements behind."""
    known: dict[SSAValue, SSAValue] = dict(zip(view.body.args, (*right, *left), strict=True))
    for op in view.body.ops:
        if isinstance(op, linalg.ops.YieldOp):
            break
        if isinstance(op, arith.ConstantOp):
            known[op.result] = _constant(insert, op.value, op.result.type, left[0])
        else:
            known[op.results[0]] = _again(insert, op, [known[operand] for operand in op.operands])
    return [known[value] for value in view.yielded()]


def _moments(insert: Insert, left: Values, right: Values) -> list[SSAValue]:
    """(count, mean, sum of squared deviations) of two parts; a part without elements leaves the other as it is, to the bit."""
    count = insert(
        (arith.AddiOp if _is_integer(left[0]) else arith.AddfOp).create(operands=[left[0], right[0]], result_types=[left[0].type])
    )
    ours, theirs, all_ = (_as_float(insert, value, left[1]) for value in (left[0], right[0], count))
    zero = _constant(insert, number_attr(0, _element(left[1])), _element(left[1]), left[1])
    apart = insert(arith.SubfOp(right[1], left[1]))
    part = insert(arith.DivfOp(theirs, all_))
    mean = insert(arith.AddfOp(left[1], insert(arith.MulfOp(apart, part))))
    between = insert(arith.MulfOp(insert(arith.MulfOp(apart, apart)), insert(arith.MulfOp(ours, part))))
    squares = insert(arith.AddfOp(insert(arith.AddfOp(left[2], right[2])), between))
    left_empty, right_empty = (insert(arith.CmpfOp(value, zero, "oeq")) for value in (ours, theirs))
    found = [count]
    for both, one, other in ((mean, left[1], right[1]), (squares, left[2], right[2])):
        found.append(insert(arith.SelectOp(right_empty, one, insert(arith.SelectOp(left_empty, other, both)))))
    return found


def _rescaled(insert: Insert, part: Coupled, view: StructuredOp, left: Values, right: Values) -> list[SSAValue]:
    """(maximum, sums) of two parts. Sums are scaled from the greater of the common maximum and the lowest finite number, so that parts of
    minus infinity alone come out as nothing.
    """
    top = _again(insert, _combiner_of(view, part.outputs[0]), [left[0], right[0]])
    reference = clamped(insert, _combiner_of(view, part.outputs[0]), top)
    exponential = math.ExpOp if part.base == "exp" else math.Exp2Op
    ours, theirs = (insert(exponential(insert(arith.SubfOp(value, reference)))) for value in (left[0], right[0]))
    sums = [
        insert(arith.AddfOp(insert(arith.MulfOp(one, ours)), insert(arith.MulfOp(other, theirs))))
        for one, other in zip(left[1:], right[1:], strict=True)
    ]
    return [top, *sums]


def folded_together(insert: Insert, part: Coupled, view: StructuredOp, held: Values, elements: Sequence[Values]) -> list[SSAValue]:
    """(maximum, sums) of what is held and of several elements (score, weighted values..), rescaled once for all of them.

    Exponentials are powers of two of rounded exponents: of n terms that matter beside the greatest, 1, none is below 1 / n, so the sum is
    off by about ln n units in the last place. Without weighted values terms below the normal range of f32 are zero.
    """
    maximum = _combiner_of(view, part.outputs[0])
    top = held[0]
    for score, *_ in elements:
        top = _again(insert, maximum, [score, top])
    reference = clamped(insert, maximum, top)
    scale, *weights = (_exponential(insert, part, value, reference, len(held) == 2) for value in (held[0], *(one[0] for one in elements)))
    sums = [insert(arith.MulfOp(one, scale)) for one in held[1:]]
    for weight, (_, *values) in zip(weights, elements, strict=True):
        terms = [weight, *(insert(arith.MulfOp(weight, value)) for value in values)]
        sums = [insert(arith.AddfOp(total, term)) for total, term in zip(sums, terms, strict=True)]
    return [top, *sums]


def _exponential(insert: Insert, part: Coupled, value: SSAValue, reference: SSAValue, may_flush: bool) -> SSAValue:
    """The exponential of a value from the reference."""
    exponent = insert(arith.SubfOp(value, reference))
    if _element(exponent) != builtin.f32:
        return insert((math.ExpOp if part.base == "exp" else math.Exp2Op)(exponent))
    if part.base == "exp":
        exponent = insert(arith.MulfOp(exponent, _constant(insert, number_attr(log2(e), builtin.f32), builtin.f32, exponent)))
    return insert(math.Exp2Op(exponent, arith.FastMathFlagsAttr([arith.FastMathFlag.APPROX_FUNC] if may_flush else "none")))


def clamped(insert: Insert, maximum: Operation, top: SSAValue) -> SSAValue:
    """A running maximum as exponentials are scaled by it: never minus infinity."""
    element = _element(top)
    return _again(insert, maximum, [top, _constant(insert, lowest_finite(element), element, top)])


def _extremum(insert: Insert, part: Coupled, left: Values, right: Values, *, ordered: bool) -> list[SSAValue]:
    """(value, index) of two parts: of equal values the one of smaller index, or the left one."""
    (best, place), (other, its_place) = left, right
    largest = part.kind == "argmax"
    if part.nan == "":
        relation = {(True, False): "sgt", (True, True): "ugt", (False, False): "slt", (False, True): "ult"}[largest, part.unsigned]
        better, equal = (insert(arith.CmpiOp(other, best, predicate)) for predicate in (relation, "eq"))
    else:
        better, equal = (insert(arith.CmpfOp(other, best, predicate)) for predicate in ("ogt" if largest else "olt", "oeq"))
        if part.nan == "first":
            tests = ((best, "ord"), (other, "uno"), (best, "uno"))
            number, none, both = (insert(arith.CmpfOp(x, x, predicate)) for x, predicate in tests)
            better = insert(arith.OrIOp(better, insert(arith.AndIOp(none, number))))
            equal = insert(arith.OrIOp(equal, insert(arith.AndIOp(none, both))))
    if not ordered:
        earlier = insert(arith.CmpiOp(its_place, place, "ult"))
        better = insert(arith.OrIOp(better, insert(arith.AndIOp(equal, earlier))))
    return [insert(arith.SelectOp(better, its, own)) for own, its in zip(left, right, strict=True)]


def _element(value: SSAValue) -> Attribute:
    return tile.tile_type(value).element_type if isinstance(value.type, builtin.TensorType) else value.type


def _is_integer(value: SSAValue) -> bool:
    return integer_width(_element(value)) is not None


def _as_float(insert: Insert, value: SSAValue, like: SSAValue) -> SSAValue:
    """A count in the type of a mean."""
    if _is_integer(value):
        return insert(arith.SIToFPOp.create(operands=[value], result_types=[like.type]))
    have, want = (_element(v) for v in (value, like))
    if have == want:
        return value
    wider = getattr(want, "bitwidth", 0) > getattr(have, "bitwidth", 0)
    return insert((arith.ExtFOp if wider else arith.TruncFOp).create(operands=[value], result_types=[like.type]))
