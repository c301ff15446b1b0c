"""expand-scalars: scalar operations that no level below knows become operations that every level does.

Level: tensor, after generalize-named-ops, so that operands are scalars. Reads: `math.isnan`, `isinf`, `isfinite`, `isnormal`;
`arith.addui_extended`, `arith.mulsi_extended`, `arith.mului_extended`. Writes: comparisons, for which floats narrower than 32 bits are
widened first (exactly; every type has infinities then); integer operations with one result.
Leaves alone: everything else, operations on tensors too. Refuses with TR301 sums and products with two results on `index`, whose width is
the machine's.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, TypeAlias

from treadle.analysis.sizes import cannot_compile
from treadle.dialects.mlir_ext.classification import IsFiniteOp, IsInfOp, IsNanOp, IsNormalOp
from treadle.errors import InternalError
from treadle.ir.builtin import AnyFloat, f32, is_integer, is_tensor, number_attr
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, math
from treadle.ir.emitter import before
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import give_way

SMALLEST_NORMAL_EXPONENT: Final = {
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
_WIDEST: Final = 64
_HALF: Final = 32


@dataclass(frozen=True, slots=True)
class _Scalars:
    """Emits arithmetic of one type in front of an operation."""

    anchor: Operation
    kind: Attribute

    def emit(self, make: Callable[..., Operation], *operands: object) -> SSAValue:
        """The first result of `make(*operands)`."""
        return before(self.anchor).insert(make(*operands))

    def constant(self, value: float) -> SSAValue:
        """A constant of the type."""
        return self.emit(arith.ConstantOp, number_attr(value, self.kind))

    def low_half(self, value: SSAValue) -> SSAValue:
        """The lower 32 of 64 bits."""
        return self.emit(arith.AndIOp, value, self.constant((1 << _HALF) - 1))

    def high_half(self, value: SSAValue) -> SSAValue:
        """The upper 32 of 64 bits, moved down."""
        return self.emit(arith.ShRUIOp, value, self.constant(_HALF))


Rule: TypeAlias = Callable[[Operation], Sequence[SSAValue]]
"""What stands for the results of an operation, inserted in front of it."""


# what kind of number a float is


def _is_nan(op: Operation) -> list[SSAValue]:
    wide, value = _widened(op)
    return [wide.emit(arith.CmpfOp, value, value, "uno")]


def _of_size(op: Operation, relation: str, number: float) -> list[SSAValue]:
    wide, value = _widened(op)
    return [wide.emit(arith.CmpfOp, wide.emit(math.AbsFOp, value), wide.constant(number), relation)]


def _is_normal(op: Operation) -> list[SSAValue]:
    wide, value = _widened(op)
    size, least = wide.emit(math.AbsFOp, value), 2.0 ** SMALLEST_NORMAL_EXPONENT[str(op.operands[0].type)]
    bounds = (("olt", float("inf")), ("oge", least))
    return [wide.emit(arith.AndIOp, *(wide.emit(arith.CmpfOp, size, wide.constant(bound), relation) for relation, bound in bounds))]


def _widened(op: Operation) -> tuple[_Scalars, SSAValue]:
    """The operand in a type of at least 32 bits."""
    (value,) = op.operands
    if not isinstance(value.type, AnyFloat):
        raise InternalError(f"{op.name} of {value.type}")
    if value.type.bitwidth >= f32.bitwidth:
        return _Scalars(op, value.type), value
    wide = _Scalars(op, f32)
    return wide, wide.emit(arith.ExtFOp, value, f32)


# sums with their carry, and whole products


def _integers(op: Operation) -> tuple[_Scalars, int, SSAValue, SSAValue]:
    """Arithmetic of the type of the two operands, its width, and these."""
    left, right = op.operands
    if not is_integer(left.type):
        raise cannot_compile(op, what=f"'{op.name}' on {left.type}", hint="compute it on an integer type of known width")
    return _Scalars(op, left.type), left.type.width.data, left, right


def _sum_and_carry(op: Operation) -> list[SSAValue]:
    """The sum, and whether it wrapped: then it is less than either operand."""
    own, _, left, right = _integers(op)
    total = own.emit(arith.AddiOp, left, right)
    return [total, own.emit(arith.CmpiOp, total, left, "ult")]


def _whole_product(op: Operation, *, signed: bool) -> list[SSAValue]:
    own, width, left, right = _integers(op)
    if width == 1:  # (-1) * (-1) and 1 * 1 are both 01 in two bits
        return [own.emit(arith.AndIOp, left, right), own.constant(0)]
    if width == _WIDEST:
        return _by_halves(own, left, right, signed=signed)
    wide = _Scalars(op, builtin.IntegerType(2 * width))
    extend = arith.ExtSIOp if signed else arith.ExtUIOp
    product = wide.emit(arith.MuliOp, *(wide.emit(extend, value, wide.kind) for value in (left, right)))
    upper = wide.emit(arith.ShRUIOp, product, wide.constant(width))
    return [wide.emit(arith.TruncIOp, value, own.kind) for value in (product, upper)]


def _by_halves(own: _Scalars, left: SSAValue, right: SSAValue, *, signed: bool) -> list[SSAValue]:
    """The halves of the 128-bit product of 64-bit numbers, from the products of their halves.

    The signed product differs from the unsigned one by the other operand times 2^64 for each negative operand.
    """

    def add(*values: SSAValue) -> SSAValue:
        total = values[0]
        for value in values[1:]:
            total = own.emit(arith.AddiOp, total, value)
        return total

    (a0, a1), (b0, b1) = ((own.low_half(value), own.high_half(value)) for value in (left, right))
    low, cross, other, high = (own.emit(arith.MuliOp, x, y) for x, y in ((a0, b0), (a0, b1), (a1, b0), (a1, b1)))
    carried = add(own.high_half(low), own.low_half(cross), own.low_half(other))
    upper = add(high, own.high_half(cross), own.high_half(other), own.high_half(carried))
    for negative, value in ((left, right), (right, left)) if signed else ():
        sign = own.emit(arith.ShRSIOp, negative, own.constant(_WIDEST - 1))
        upper = own.emit(arith.SubiOp, upper, own.emit(arith.AndIOp, sign, value))
    return [own.emit(arith.MuliOp, left, right), upper]


RULES: Final[Mapping[type[Operation], Rule]] = {
    IsNanOp: _is_nan,
    IsInfOp: partial(_of_size, relation="oeq", number=float("inf")),
    IsFiniteOp: partial(_of_size, relation="olt", number=float("inf")),
    IsNormalOp: _is_normal,
    arith.AddUIExtendedOp: _sum_and_carry,
    arith.MulSIExtendedOp: partial(_whole_product, signed=True),
    arith.MulUIExtendedOp: partial(_whole_product, signed=False),
}


@register_pass
@dataclass(frozen=True)
class ExpandScalarsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "expand-scalars"

    def run(self, function: func.FuncOp) -> None:
        """Expand every operation that has a rule."""
        for op in list(function.walk()):
            rule = RULES.get(type(op))
            if rule is not None and not is_tensor(op.results[0].type):
                give_way(op, rule(op))
