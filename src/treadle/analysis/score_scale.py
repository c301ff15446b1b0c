"""The factor that attention's scores are multiplied by: it may stand behind their maximum, in the exponent, where it takes no operation."""

from math import e, inf, log2

from treadle.analysis.attention_structure import Attention
from treadle.analysis.indexing import StructuredOp, structured
from treadle.ir.builtin import attr_number, element_of
from treadle.ir.core import BlockArgument, SSAValue
from treadle.ir.dialects import arith, linalg, math
from treadle.records import dataclass

LARGEST = 16.0
"""A factor of what is multiplied of f16 for which no exponent leaves f32, from a maximum that starts from `LOWEST`."""
LOWEST = -(2.0**120)
"""No sum of products of f16 is below."""


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """Scores are those of the contraction times `factor`, and minus infinity where selections say so. `products`: what each product with a
    part of the factor is without it. `exponent`: what the contraction's own scores are times in a power of two.
    """

    factor: float
    exponent: float
    products: dict[SSAValue, SSAValue]


def score_scale(found: Attention) -> ScoreScale | None:
    """The factor of scores that are nothing but scaled and hidden; None for all others, for factors with which exponents might leave the
    range of f32 before the maximum is subtracted, and where scores are not of f32.
    """
    products: dict[SSAValue, SSAValue] = {}
    factor, value = 1.0, found.softmax.maximum.inputs[0]
    if any(str(element_of(one.type)) != "f32" for one in (value, found.scores.op.results[0])) or found.start != -inf:
        return None
    while value is not found.scores.op.results[0]:
        view = structured(value.owner) if isinstance(value.owner, linalg.ops.GenericOp) else None
        inner = None if view is None or len(view.outputs) != 1 else _followed(view, products)
        if view is None or inner is None:
            return None
        number, argument = inner
        factor, value = factor * number, view.inputs[argument.index]
    exponent = factor * (log2(e) if found.softmax.exponential is math.ExpOp else 1)
    types = {str(element_of(one.type)) for one in found.scores.inputs}
    is_small = types == {"f16"} and isinstance(found.scores.outputs[0].owner, linalg.ops.FillOp)
    return ScoreScale(factor, exponent, products) if exponent <= (LARGEST if is_small else 1) else None


def _followed(view: StructuredOp, products: dict[SSAValue, SSAValue]) -> tuple[float, BlockArgument] | None:
    """The factor of a body and the input that is multiplied; None where it does more."""
    value, factor = view.yielded()[0], 1.0
    while not isinstance(value, BlockArgument):
        op, following = value.owner, None
        if isinstance(op, arith.MulfOp | arith.SelectOp):
            for one, other in ((op.operands[-2], op.operands[-1]), (op.operands[-1], op.operands[-2])):
                made = other.owner
                number = attr_number(made.value) if isinstance(made, arith.ConstantOp) else None
                if isinstance(op, arith.SelectOp) and number == -inf:
                    following = one
                elif isinstance(op, arith.MulfOp) and number is not None and 0 < number < inf:
                    following, factor = one, factor * number
                    products[value] = one
                if following is not None:
                    break
        if following is None:
            return None
        value = following
    return (factor, value) if value.block is view.body and value.index < len(view.inputs) else None
