"""simplify-math: fewer and cheaper operations for the same elementwise functions, as far as the permitted errors go.

Level: tile. Reads: `error_bits` (set-precision). Writes: exponentials as powers of two; 1 + tanh as a quotient of an exponential, which
loses no digits where tanh is near -1; quotients of an exponential with `fastmath<arcp>` (a reciprocal may stand for the division, and be
zero below the normal range of f32) and their exponential with `fastmath<afn>` (zero there too); constant factors gathered in one place.
Leaves alone: operations without `error_bits` (their results decide something), elements other than f32.
"""

import math as numbers
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from treadle import remarks
from treadle.analysis.needed_precision import computes, constant_float, element_of
from treadle.dialects import tile
from treadle.dialects.precision import FULL, NARROW, error_bits, has_flag, set_error_bits
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.rewriting import InsertPoint, Pattern, PatternRewriter, rewrite_greedily
from treadle.machine import TargetSpec
from treadle.transforms.kernel.kernel_ir import KernelPass

NAME = "simplify-math"
_LOG2E = numbers.log2(numbers.e)
_EXPONENT_BITS = 7
_LARGEST_ADDEND = 2.0**60
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100


def permits(op: Operation, bits: int) -> bool:
    """Whether an f32 operation may err by 2^-bits."""
    return error_bits(op) <= bits and isinstance(element_of(op.results[0]), builtin.Float32Type)


def producer(value: SSAValue, name: str) -> Operation | None:
    """The operation of this name that makes a value which nothing else uses."""
    if isinstance(value, OpResult) and value.op.name == name and len(tuple(value.uses)) == 1:
        return value.op
    return None


def is_plain(number: float) -> bool:
    """Whether a factor is far from the ends of f32."""
    return number != 0 and _SMALLEST <= abs(number) <= _LARGEST


def with_constant(op: Operation) -> tuple[SSAValue, float] | None:
    """Operand and constant of a commutative operation."""
    left, right = op.operands
    if (number := constant_float(right)) is not None:
        return left, number
    number = constant_float(left)
    return None if number is None else (right, number)


def factor_of(value: SSAValue) -> tuple[SSAValue, float]:
    """A value as another one times a constant."""
    if isinstance(value, OpResult) and value.op.name == "arith.mulf":
        found = with_constant(value.op)
        if found is not None and is_plain(found[1]):
            return found
    if isinstance(value, OpResult) and value.op.name == "arith.negf":
        return value.op.operands[0], -1.0
    return value, 1.0


def scaled_once(value: SSAValue) -> tuple[SSAValue, float]:
    """`factor_of` where nothing else uses the product."""
    return factor_of(value) if len(tuple(value.uses)) == 1 else (value, 1.0)


def both_orders(op: Operation) -> tuple[tuple[SSAValue, SSAValue], tuple[SSAValue, SSAValue]]:
    """The two operands of a commutative operation, and the same reversed."""
    left, right = op.operands
    return (left, right), (right, left)


class Writer:
    """New operations in front of the matched one, each with its permitted error."""

    def __init__(self, op: Operation, rewriter: PatternRewriter, bits: int) -> None:
        self.op = op
        self.rewriter = rewriter
        self.bits = bits

    def _add(self, op: Operation, bits: int | None = None) -> SSAValue:
        if not isinstance(op, arith.ConstantOp):
            set_error_bits(op, self.bits if bits is None else bits)
        self.rewriter.insert(op, InsertPoint.before(self.op))
        return op.results[0]

    def constant(self, number: float) -> SSAValue:
        """A constant of the matched operation's type."""
        kind = self.op.results[0].type
        (number,) = struct.unpack("f", struct.pack("f", number))
        if isinstance(kind, builtin.TensorType):
            typed = cast("builtin.TensorType[builtin.Float32Type]", kind)
            return self._add(arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(typed, [number])))
        return self._add(arith.ConstantOp(builtin.FloatAttr(number, builtin.f32)))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self._add(arith.AddfOp(a, b))

    def multiply(self, a: SSAValue, b: SSAValue, bits: int | None = None) -> SSAValue:
        return self._add(arith.MulfOp(a, b), bits)

    def scale(self, a: SSAValue, number: float, bits: int | None = None) -> SSAValue:
        """`a * number`."""
        return a if number == 1.0 else self.multiply(a, self.constant(number), bits)

    def exp2(self, a: SSAValue, *, may_flush: bool = False) -> SSAValue:
        return self._add(math.Exp2Op(a, arith.FastMathFlagsAttr([arith.FastMathFlag.APPROX_FUNC] if may_flush else "none")))

    def divide(self, a: SSAValue, b: SSAValue, *, by_reciprocal: bool) -> SSAValue:
        return self._add(arith.DivfOp(a, b, arith.FastMathFlagsAttr([arith.FastMathFlag.ALLOW_RECIP] if by_reciprocal else "none")))

    def replace(self, value: SSAValue) -> None:
        """Let `value` stand for the matched operation's result."""
        self.rewriter.replace(self.op, (), [value])


class EraseUnused(Pattern):
    """What a rewrite left behind must not count as a use."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name.startswith(("arith.", "math.")) and all(not tuple(result.uses) for result in op.results):
            rewriter.erase(op)


class ExponentialsToPowersOfTwo(Pattern):
    """exp(x) -> exp2(x log2 e): one rounding of an argument below 2^7 costs up to 2^-17."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, math.ExpOp) and permits(op, NARROW):
            bits = error_bits(op)
            writer = Writer(op, rewriter, bits)
            writer.replace(writer.exp2(writer.scale(op.operand, _LOG2E, min(bits + _EXPONENT_BITS, FULL))))


class OnePlusTanh(Pattern):
    """1 + tanh(u) -> 2 / (1 + exp(-2 u)), and 1 - tanh(u) accordingly."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.AddfOp | arith.SubfOp) or not permits(op, NARROW):
            return
        tanh, sign = self._match(op)
        if tanh is None:
            return
        writer = Writer(op, rewriter, error_bits(op))
        power = writer.exp2(writer.scale(tanh.operands[0], -2 * sign * _LOG2E, FULL), may_flush=True)
        divisor = writer.add(power, writer.constant(1.0))
        writer.replace(writer.divide(writer.constant(2.0), divisor, by_reciprocal=True))

    @staticmethod
    def _match(op: Operation) -> tuple[Operation | None, int]:
        left, right = op.operands
        if isinstance(op, arith.SubfOp):
            return (producer(right, "math.tanh") if constant_float(left) == 1.0 else None), -1
        found = with_constant(op)
        return (producer(found[0], "math.tanh") if found is not None and found[1] == 1.0 else None), 1


class HalfPlusHalfTanh(Pattern):
    """x + x tanh(u) -> x (1 + tanh(u))."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.AddfOp) or not permits(op, FULL):
            return
        for x, product in both_orders(op):
            made = producer(product, "arith.mulf")
            if made is None or x not in made.operands:
                continue
            tanh = made.operands[1 - list(made.operands).index(x)]
            if producer(tanh, "math.tanh") is not None:
                writer = Writer(op, rewriter, error_bits(op))
                writer.replace(writer.multiply(x, writer.add(tanh, writer.constant(1.0))))
                return


class DivideByOnePlusPower(Pattern):
    """a / (c + exp2(y)), c >= 1: neither a divisor below 1 nor the smallest powers matter."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.DivfOp) or not permits(op, NARROW) or has_flag(op, arith.FastMathFlag.ALLOW_RECIP):
            return
        total = producer(op.rhs, "arith.addf")
        found = with_constant(total) if total is not None else None
        power = producer(found[0], "math.exp2") if found is not None and 1.0 <= found[1] <= _LARGEST_ADDEND else None
        if power is None or found is None or not permits(power, NARROW):
            return
        writer = Writer(op, rewriter, error_bits(op))
        total = writer.add(writer.exp2(power.operands[0], may_flush=True), writer.constant(found[1]))
        writer.replace(writer.divide(op.lhs, total, by_reciprocal=True))


class DivideByConstant(Pattern):
    """x / c -> x (1 / c): exact for powers of two, else half a unit more than a rounded quotient."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.DivfOp) or not isinstance(element_of(op.result), builtin.Float32Type):
            return
        divisor = constant_float(op.rhs)
        if divisor is None or not is_plain(divisor):
            return
        if abs(numbers.frexp(divisor)[0]) == 0.5 or permits(op, FULL):
            self._replace(op, rewriter, 1 / divisor)

    @staticmethod
    def _replace(op: arith.DivfOp, rewriter: PatternRewriter, factor: float) -> None:
        writer = Writer(op, rewriter, error_bits(op))
        writer.replace(writer.scale(op.lhs, factor))


class GatherFactors(Pattern):
    """(x c) d -> x (c d), (-x) d -> x (-d), (x c) y d -> x y (c d), x 1 -> x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.MulfOp) or not permits(op, FULL) or (found := with_constant(op)) is None:
            return
        value, number = found
        writer = Writer(op, rewriter, error_bits(op))
        if number == 1.0:
            writer.replace(value)
            return
        x, factor = factor_of(value)
        if x is not value and is_plain(number * factor):
            writer.replace(writer.scale(x, number * factor))
        elif (product := producer(value, "arith.mulf")) is not None and is_plain(number):
            for left, right in both_orders(product):
                x, factor = scaled_once(left)
                if x is not left and is_plain(number * factor):
                    writer.replace(writer.multiply(writer.scale(x, number * factor), right))
                    return


class MoveFactorIntoSum(Pattern):
    """(x d) (y k + c) -> x (y (k d) + c d), and (x (y k + c)) d alike: the factor costs nothing there."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.MulfOp) or not permits(op, FULL):
            return
        for value, other in both_orders(op):
            if (number := constant_float(other)) is not None:
                product = producer(value, "arith.mulf")
                found = product is not None and any(self._rewrite(op, rewriter, x, y, number) for x, y in both_orders(product))
            else:
                x, number = scaled_once(value)
                found = x is not value and self._rewrite(op, rewriter, x, other, number)
            if found:
                return

    @staticmethod
    def _rewrite(op: Operation, rewriter: PatternRewriter, x: SSAValue, total: SSAValue, number: float) -> bool:
        made = producer(total, "arith.addf")
        term = with_constant(made) if made is not None else None
        if made is None or term is None or not permits(made, FULL) or not is_plain(number) or not is_plain(term[1] * number):
            return False
        y, factor = scaled_once(term[0])
        if y is term[0] or not is_plain(factor * number):
            return False
        writer = Writer(op, rewriter, error_bits(op))
        writer.replace(writer.multiply(x, writer.add(writer.scale(y, factor * number), writer.constant(term[1] * number))))
        return True


class MultiplyQuotient(Pattern):
    """(x k) (c / d) -> (x k c) / d, where no constant above 1 is left: it could overflow before the division.

    k (c / d) -> (k c) / d and k (x (c / d)) -> x ((k c) / d) bring such constants together.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.MulfOp) or not permits(op, NARROW):
            return
        writer = Writer(op, rewriter, error_bits(op))
        for value, other in both_orders(op):
            scale = constant_float(value)
            if (product := producer(other, "arith.mulf")) is not None and scale is not None:
                found = any(self._scale_quotient(writer, x, quotient, scale) for x, quotient in both_orders(product))
            elif scale is not None:
                found = self._scale_quotient(writer, None, other, scale)
            else:
                found = self._join(writer, value, other)
            if found:
                return

    @staticmethod
    def _scale_quotient(writer: Writer, x: SSAValue | None, quotient: SSAValue, scale: float) -> bool:
        division = producer(quotient, "arith.divf")
        number = constant_float(division.operands[0]) if division is not None else None
        if division is None or number is None or not is_plain(number * scale):
            return False
        by_reciprocal = has_flag(division, arith.FastMathFlag.ALLOW_RECIP)
        scaled = writer.divide(writer.constant(number * scale), division.operands[1], by_reciprocal=by_reciprocal)
        writer.replace(scaled if x is None else writer.multiply(x, scaled))
        return True

    @staticmethod
    def _join(writer: Writer, value: SSAValue, quotient: SSAValue) -> bool:
        division = producer(quotient, "arith.divf")
        number = constant_float(division.operands[0]) if division is not None else None
        x, factor = factor_of(value)
        if division is None or number is None or not is_plain(number) or abs(number * factor) > 1:
            return False
        by_reciprocal = has_flag(division, arith.FastMathFlag.ALLOW_RECIP)
        writer.replace(writer.divide(writer.scale(x, number * factor), division.operands[1], by_reciprocal=by_reciprocal))
        return True


class FactorOutCube(Pattern):
    """(x + x y c) d -> x (y (c d) + d), with the multiplication and the sum one instruction."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.MulfOp) or not permits(op, FULL) or (found := with_constant(op)) is None:
            return
        total = producer(found[0], "arith.addf")
        if total is None or not permits(total, FULL):
            return
        for x, term in both_orders(total):
            product, factor = factor_of(term)
            rest = self._without(product, x)
            if rest is not None and product is not term and is_plain(factor * found[1]):
                writer = Writer(op, rewriter, error_bits(op))
                writer.replace(writer.multiply(x, writer.add(writer.scale(rest, factor * found[1]), writer.constant(found[1]))))
                return

    @staticmethod
    def _without(product: SSAValue, x: SSAValue) -> SSAValue | None:
        """What is left of a product when one factor `x` is taken out of it."""
        if not isinstance(product, OpResult) or product.op.name != "arith.mulf":
            return None
        left, right = product.op.operands
        return right if left is x else left if right is x else None


class SmallPowers(Pattern):
    """x^2 -> x x and x^3 -> x x x, where the exponent is a constant."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, math.PowFOp) or not permits(op, FULL):
            return
        exponent, x = constant_float(op.rhs), op.lhs
        if exponent not in (1.0, 2.0, 3.0):
            return
        writer = Writer(op, rewriter, error_bits(op))
        square = x if exponent == 1.0 else writer.multiply(x, x)
        writer.replace(writer.multiply(square, x) if exponent == 3.0 else square)


def patterns() -> Iterable[Pattern]:
    """The rewrites, in the order in which they are tried."""
    return (
        EraseUnused(),
        SmallPowers(),
        HalfPlusHalfTanh(),
        OnePlusTanh(),
        ExponentialsToPowersOfTwo(),
        DivideByConstant(),
        FactorOutCube(),
        MultiplyQuotient(),
        GatherFactors(),
        MoveFactorIntoSum(),
        DivideByOnePlusPower(),
    )


def _operations(kernel: tile.KernelOp) -> Counter[str]:
    return Counter(op.name for op in kernel.body.walk() if computes(op))


def _listed(names: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in names.items()) or "none"


@register_pass
@dataclass(frozen=True)
class SimplifyMathPass(KernelPass):
    """Works on tiles without layouts; what the rewrites leave unused is for dce."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite one kernel."""
        before = _operations(kernel)
        rewrite_greedily(kernel, patterns())
        after = _operations(kernel)
        if before != after:
            text = f"{before.total()} operations become {after.total()}: {_listed(after - before)} instead of {_listed(before - after)}"
            remarks.emit("decision", NAME, kernel.sym_name.data, text, location_of(kernel))
