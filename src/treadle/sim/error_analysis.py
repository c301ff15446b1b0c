"""How far a machine's result may be from the exact one: running error analysis.

Next to every value of the reference stands a bound on the absolute error that a machine makes which computes in the declared types, in any
order of summation. The rules are first-order forward analysis (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
section 3.3), with two departures: a sum of K terms is charged what independent roundings of its partial sums amount to, which grows as
sqrt(K), not the worst case (N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41(5),
2019), so that the bound stays far below what one missing term does; and elementary functions are charged a few units in the last place, as
fast GPU versions are. Integers are exact; a decision taken on an inexact value (a comparison, a conversion to an integer) is marked
uncertain by an infinite bound.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from typing import Any

import numpy as np

from treadle.dialects.mlir_ext.shapes import BitcastOp
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, math
from treadle.sim.element_types import Array, Precision, element_type, is_float, precision_of, storage_dtype

FUNCTION_ULPS = 8.0  # roundings charged to an elementary function
DIVISION_ULPS = 3.0
DEVIATIONS = 4.0  # multiples of the standard deviation of a sum of roundings
OPERAND_DEVIATIONS = 8.0  # the same for the roundings of operands
COARSE = 0.05


@dataclass(frozen=True, slots=True)
class Tracked:
    """A value of the reference, and what is known about it; all broadcast against each other.

    `error`: the bound on the error of a machine's version of it (None: exact). `unwritten`: true where it is, or is computed from, the
    contents of uninitialised memory, which are no values at all (None: nowhere).
    """

    value: Array
    error: Array | None = None
    unwritten: Array | None = None

    def map(self, function: Callable[[Array], Array]) -> "Tracked":
        """Move all alike: a slice, a transposition, a reshape."""
        error = None if self.error is None else function(self.error)
        return Tracked(function(self.value), error, None if self.unwritten is None else function(self.unwritten))

    def spread(self) -> "Tracked":
        """Error and unwritten places in the shape of the value."""
        shape = np.shape(self.value)
        error = None if self.error is None else np.broadcast_to(self.error, shape)
        return Tracked(self.value, error, None if self.unwritten is None else np.broadcast_to(self.unwritten, shape))


def summation_error(unit: float, count: int, total: Array, spread: Array) -> Array:
    """The rounding error of a sum of `count` terms: `total` is their sum, `spread` the root of the sum of their squares.

    The partial sums of terms in no particular order are about as large as the total plus the spread; each is rounded with an independent
    error. Where so many roundings of so coarse a type meet that small terms are lost altogether, the worst case is charged instead (the sum
    of the terms' sizes is at most sqrt(count) times the spread).
    """
    if sqrt(count) * unit > COARSE:
        return unit * (count + 1) * sqrt(count) * spread
    return DEVIATIONS * unit * sqrt(count + 1) * (np.abs(total) + spread)


def precision_of_type(op: Operation) -> Precision:
    """The rounding of an operation's (float) result."""
    return precision_of(storage_dtype(element_type(op.results[0].type)))


def _error(tracked: Tracked) -> Any:
    return 0.0 if tracked.error is None else tracked.error


# |f'(x)| of the elementary functions.
_SLOPES: dict[type[Operation], Callable[[Any], Any]] = {
    math.AcosOp: lambda x: 1 / np.sqrt(1 - x * x),
    math.AcoshOp: lambda x: 1 / np.sqrt(x * x - 1),
    math.AsinOp: lambda x: 1 / np.sqrt(1 - x * x),
    math.AsinhOp: lambda x: 1 / np.sqrt(1 + x * x),
    math.AtanOp: lambda x: 1 / (1 + x * x),
    math.AtanhOp: lambda x: 1 / (1 - x * x),
    math.CbrtOp: lambda x: 1 / (3 * np.cbrt(x) ** 2),
    math.CosOp: np.sin,
    math.CoshOp: np.sinh,
    math.ErfOp: lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    math.ExpOp: np.exp,
    math.Exp2Op: lambda x: np.log(2) * np.exp2(x),
    math.ExpM1Op: np.exp,
    math.LogOp: lambda x: 1 / x,
    math.Log10Op: lambda x: 1 / (x * np.log(10)),
    math.Log1pOp: lambda x: 1 / (1 + x),
    math.Log2Op: lambda x: 1 / (x * np.log(2)),
    math.RsqrtOp: lambda x: 0.5 * np.abs(x) ** -1.5,
    math.SinOp: np.cos,
    math.SinhOp: np.cosh,
    math.SqrtOp: lambda x: 0.5 / np.sqrt(np.abs(x)),
    math.TanOp: lambda x: 1 / np.cos(x) ** 2,
    math.TanhOp: lambda x: 1 / np.cosh(np.minimum(np.abs(x), 300.0)) ** 2,
}
_SLOPE = {kind.name: slope for kind, slope in _SLOPES.items()}
# Functions often computed from a sum with 1, which leaves an error of a rounding of 1 even where they are tiny.
_ABSOLUTE = (math.TanhOp, math.ErfOp, math.SinOp, math.CosOp, math.SinhOp, math.ExpM1Op, math.Log1pOp, math.AtanhOp, math.AsinhOp)
_EXACT = (arith.NegfOp, arith.ExtFOp, math.AbsFOp, math.CopySignOp)
_EXTREMA = (arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp)
_STEPS = (math.CeilOp, math.FloorOp, math.RoundOp, math.RoundEvenOp, math.TruncOp)


def _function_error(op: Operation, x: Tracked, value: Array, p: Precision) -> Any:
    slope = _SLOPE[op.name]
    error = _error(x)
    steepest = np.abs(slope(x.value))
    argument = 2 * p.unit * np.abs(x.value) * steepest
    if x.error is not None:
        steepest = np.fmax(steepest, np.fmax(np.abs(slope(x.value - error)), np.abs(slope(x.value + error))))
    absolute = 4 * p.unit if isinstance(op, _ABSOLUTE) else 0.0
    return steepest * error + argument + FUNCTION_ULPS * p.unit * np.abs(value) + absolute


def _float_error(op: Operation, args: Sequence[Tracked], value: Array) -> Any:
    if isinstance(op, arith.BitcastOp | BitcastOp):
        return _uncertain(args)
    p = precision_of_type(op)
    values, errors = [a.value for a in args], [_error(a) for a in args]
    rounding = p.unit * np.abs(value) + p.floor
    match op:
        case arith.SelectOp():
            return _select_error(args)
        case _ if isinstance(op, _EXACT):
            return errors[0]
        case _ if isinstance(op, _EXTREMA):
            return np.maximum(errors[0], errors[1])
        case arith.AddfOp() | arith.SubfOp():
            return errors[0] + errors[1] + rounding
        case arith.MulfOp():
            return np.abs(values[0]) * errors[1] + np.abs(values[1]) * errors[0] + errors[0] * errors[1] + rounding
        case math.FmaOp():
            product = np.abs(values[0]) * errors[1] + np.abs(values[1]) * errors[0] + p.unit * np.abs(values[0] * values[1])
            return product + errors[2] + rounding
        case arith.DivfOp():
            divisor = np.maximum(np.abs(values[1]) - errors[1], 0.0)
            inherited = np.where(divisor > 0, (errors[0] + np.abs(value) * errors[1]) / np.where(divisor > 0, divisor, 1.0), np.inf)
            # A machine may multiply by the reciprocal, and flush one that is subnormal.
            lost = np.where((np.abs(values[1]) + errors[1]) * p.floor > 1, np.abs(value), 0.0)
            return inherited + DIVISION_ULPS * rounding + lost
        case math.PowFOp() | math.FPowIOp():
            base, exponent = np.abs(values[0]), np.asarray(values[1], dtype=np.float64)
            logarithm = np.abs(np.log(np.where(base > 0, base, 1.0)))
            relative = np.abs(exponent) * errors[0] / np.where(base > 0, base, 1.0) + logarithm * errors[1]
            return np.abs(value) * (relative + (FUNCTION_ULPS + 2 * np.abs(exponent) * logarithm) * p.unit) + p.floor
        case math.Atan2Op():
            radius = np.hypot(values[0], values[1])
            return (errors[0] + errors[1]) / np.where(radius > 0, radius, 1.0) + FUNCTION_ULPS * rounding
        case _ if isinstance(op, _STEPS):
            return np.where(np.asarray(errors[0]) > 0, errors[0] + 1.0, 0.0)
        case _ if op.name in _SLOPE:
            return _function_error(op, args[0], value, p) + p.floor
        case _:  # truncations and conversions from integers
            return errors[0] + rounding


def _uncertain(args: Sequence[Tracked]) -> Any:
    """Infinite wherever any operand is inexact."""
    return np.where(sum(_error(a) for a in args) > 0, np.inf, 0.0)


def _select_error(args: Sequence[Tracked]) -> Any:
    condition, chosen, other = args
    select: Any = np.where  # its overloads leave the result's type open
    error = select(condition.value, _error(chosen), _error(other))
    if condition.error is None:
        return error
    both: Any = np.maximum(_error(chosen), _error(other)) + np.abs(np.subtract(chosen.value, other.value, dtype=np.float64))
    return select(condition.error > 0, both, error)


def selected(condition: Tracked, chosen: Tracked, other: Tracked) -> Tracked:
    """One of two values, element by element."""
    select: Any = np.where  # its overloads leave the result's type open
    value = select(condition.value, chosen.value, other.value)
    exact = condition.error is None and chosen.error is None and other.error is None
    error = None if exact else _select_error((condition, chosen, other))
    return Tracked(value, error, selected_unwritten(condition, chosen, other))


def _integer_error(op: Operation, args: Sequence[Tracked]) -> Any:
    match op:
        case arith.SelectOp():
            return _select_error(args)
        case arith.CmpfOp():
            margin = _error(args[0]) + _error(args[1])
            return np.where((margin > 0) & (np.abs(args[0].value - args[1].value) <= margin), np.inf, 0.0)
        case arith.FPToSIOp() | arith.FPToUIOp():
            return np.where(np.asarray(_error(args[0])) > 0, _error(args[0]) + 1.0, 0.0)
        case arith.AddiOp() | arith.SubiOp():
            return _error(args[0]) + _error(args[1])
        case _:
            return _uncertain(args)


def operation_error(op: Operation, args: Sequence[Tracked], value: Array) -> Array | None:
    """The error of an `arith` or `math` operation's result: what it inherits and what its own rounding adds. None: exact."""
    if isinstance(op, arith.ConstantOp):
        return None
    if is_float(element_type(op.results[0].type)):
        error = _where_finite(_float_error(op, args, value), args, value, precision_of_type(op).largest)
    elif all(a.error is None for a in args):
        return None
    else:
        error = _integer_error(op, args)
    # An infinite value times no error at all is exact.
    return np.where(np.isnan(error), 0.0, error)


def _where_finite(error: Any, args: Sequence[Tracked], value: Array, largest: float) -> Any:
    """A result beyond the type's range is uncertain: a machine has an infinity there.

    An infinite one is exact, unless an operand is uncertain.
    """
    doubtful = np.zeros((), dtype=np.bool_)
    for arg in args:
        doubtful = doubtful | np.isinf(_error(arg))
    error = np.where(np.isinf(value), np.where(doubtful, np.inf, 0.0), error)
    return np.where(np.isfinite(value) & (np.abs(value) > largest), np.inf, error)


def unwritten_of(op: Operation, args: Sequence[Tracked]) -> Array | None:
    """Where an `arith` or `math` operation's result is computed from uninitialised memory; a selection depends on what it selects."""
    if all(a.unwritten is None for a in args):
        return None
    if isinstance(op, arith.SelectOp):
        return selected_unwritten(*args)
    return any_unwritten(a.unwritten for a in args)


def selected_unwritten(condition: Tracked, chosen: Tracked, other: Tracked) -> Array | None:
    """Where the one of two values that is selected is unwritten, or the condition is."""
    if condition.unwritten is None and chosen.unwritten is None and other.unwritten is None:
        return None
    select: Any = np.where  # its overloads leave the result's type open
    return select(condition.value, _mask(chosen), _mask(other)) | _mask(condition)


def _mask(tracked: Tracked) -> Array:
    return np.zeros((), dtype=np.bool_) if tracked.unwritten is None else tracked.unwritten


def any_unwritten(masks: Iterable[Array | None]) -> Array | None:
    """Where any of several values is unwritten; None where none is."""
    given = [mask for mask in masks if mask is not None]
    return reduce(np.logical_or, given) if given else None


def combined(*errors: Array | float | None) -> Array | None:
    """The sum of errors; None where all are exact."""
    given = [e for e in errors if e is not None]
    return np.asarray(sum(given[1:], start=given[0])) if given else None
