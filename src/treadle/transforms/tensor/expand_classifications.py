"""expand-classifications: `math.isnan`, `isinf`, `isfinite` and `isnormal` become comparisons.

Level: tensor, after generalize-named-ops, so that operands are scalars. Reads: these operations.
Writes: `arith.cmpf` and what it compares; floats narrower than 32 bits are widened first, which is exact and has infinities in every type.
Leaves alone: everything else.
"""

from typing import ClassVar

from treadle.dialects.mlir_ext.classification import ClassificationOp, IsFiniteOp, IsInfOp, IsNanOp, IsNormalOp
from treadle.errors import InternalError
from treadle.ir.builtin import AnyFloat, FloatAttr, f32
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, func, math
from treadle.ir.emitter import before
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import give_way

SMALLEST_NORMAL_EXPONENT = {
    "f64": -1022,
    "f32": -126,
    "bf16": -126,
    "f16": -14,
    "f8E5M2": -14,
    "f8E4M3FN": -6,
    "f8E5M2FNUZ": -15,
    "f8E4M3FNUZ": -7,
}
"""The power of two that is the smallest normal number of each float type."""


def expand(op: ClassificationOp) -> None:
    """Put the comparison in place of `op`."""
    kind = op.operand.type
    if not isinstance(kind, AnyFloat):
        raise InternalError(f"{op.name} of {kind}")
    insert = before(op).insert
    wide = kind if kind.bitwidth >= f32.bitwidth else f32
    value = op.operand if wide == kind else insert(arith.ExtFOp(op.operand, wide))

    if isinstance(op, IsNanOp):
        give_way(op, [insert(arith.CmpfOp(value, value, "uno"))])
        return
    size = insert(math.AbsFOp(value))

    def size_is(relation: str, number: float) -> SSAValue:
        return insert(arith.CmpfOp(size, insert(arith.ConstantOp(FloatAttr(number, wide))), relation))

    match op:
        case IsInfOp():
            result = size_is("oeq", float("inf"))
        case IsFiniteOp():
            result = size_is("olt", float("inf"))
        case IsNormalOp():
            result = insert(arith.AndIOp(size_is("olt", float("inf")), size_is("oge", 2.0 ** SMALLEST_NORMAL_EXPONENT[str(kind)])))
        case _:
            raise InternalError(f"no comparison stands for {op.name}")
    give_way(op, [result])


@register_pass
@dataclass(frozen=True)
class ExpandClassificationsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "expand-classifications"

    def run(self, function: func.FuncOp) -> None:
        """Expand every classification."""
        for op in list(function.walk()):
            if isinstance(op, ClassificationOp):
                expand(op)
