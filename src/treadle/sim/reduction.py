"""Reductions with a known combiner: recognised in the body of a structured operation, computed by NumPy, bounded in their error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, math
from treadle.options import Precision as F32Precision
from treadle.sim.contraction import contract, contracted_squares, merge_factors, used
from treadle.sim.element_types import Array, Precision, element_type, is_float, precision_of, storage_dtype, unsigned
from treadle.sim.error_analysis import DEVIATIONS, OPERAND_DEVIATIONS, Tracked, combined, summation_error

ADD = arith.AddfOp.name
_SUMS = (arith.AddfOp.name, arith.AddiOp.name)
_PRODUCTS = (arith.MulfOp.name, arith.MuliOp.name)


_SIGNED_TRUTH: dict[np.ufunc, np.ufunc] = {np.maximum: np.logical_and, np.minimum: np.logical_or}  # the i1 that is true is -1


def _unsigned_ufunc(ufunc: np.ufunc) -> Any:
    def reduce(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if array.dtype == np.bool_:
            return ufunc.reduce(array, axis=axis, keepdims=keepdims)
        return ufunc.reduce(unsigned(array), axis=axis, keepdims=keepdims).view(array.dtype)

    return reduce


def _plain(ufunc: np.ufunc) -> Any:
    def reduce(array: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if ufunc is np.add and array.dtype == np.bool_:  # i1 counts modulo 2
            return np.bitwise_xor.reduce(array, axis=axis, keepdims=keepdims)
        if array.dtype == np.bool_ and ufunc in _SIGNED_TRUTH:
            return _SIGNED_TRUTH[ufunc].reduce(array, axis=axis, keepdims=keepdims)
        kept: dict[str, Any] = {"dtype": array.dtype} if ufunc in (np.add, np.multiply) and array.dtype.kind in "iu" else {}
        return ufunc.reduce(array, axis=axis, keepdims=keepdims, **kept)

    return reduce


_REDUCERS: dict[str, Callable[[Array, tuple[int, ...], bool], Array]] = {
    arith.AddfOp.name: _plain(np.add),
    arith.AddiOp.name: _plain(np.add),
    arith.MulfOp.name: _plain(np.multiply),
    arith.MuliOp.name: _plain(np.multiply),
    arith.MaximumfOp.name: _plain(np.maximum),
    arith.MinimumfOp.name: _plain(np.minimum),
    arith.MaxnumfOp.name: _plain(np.fmax),
    arith.MinnumfOp.name: _plain(np.fmin),
    arith.MaxSIOp.name: _plain(np.maximum),
    arith.MinSIOp.name: _plain(np.minimum),
    arith.MaxUIOp.name: _unsigned_ufunc(np.maximum),
    arith.MinUIOp.name: _unsigned_ufunc(np.minimum),
    arith.AndIOp.name: _plain(np.bitwise_and),
    arith.OrIOp.name: _plain(np.bitwise_or),
    arith.XOrIOp.name: _plain(np.bitwise_xor),
}


OPERAND_ROUNDING: dict[F32Precision, float] = {"ieee": 0.0, "tf32": 2.0**-11, "3xtf32": 2.0**-21, "bf16x3": 2.0**-16, "bf16x6": 2.0**-23}
"""Relative rounding of an f32 operand of a contraction; the products of parts that are left out count as such."""


@dataclass(frozen=True, slots=True)
class Total:
    """The terms combined.

    `value`; `squares`, the sum of their squares (sums of floats only); `error`, what the terms' own errors amount to.
    """

    value: Array
    squares: Array | None = None
    error: Array | None = None


def _multiplied(a: Tracked, b: Tracked, unit: float) -> Tracked:
    value = a.value * b.value
    parts = [np.abs(x.value) * y.error for x, y in ((a, b), (b, a)) if y.error is not None]
    return Tracked(value, combined(*parts, unit * np.abs(value)) if unit else None)


@dataclass(frozen=True, slots=True)
class Reduction:
    """`accumulator <- combine(accumulator, product of factors)`.

    `precision`: of one rounding of the running value, None for integers. `product_unit`: rounding of a product. `truncation`: relative
    error a term that a matrix instruction may add, `operand_rounding`: relative rounding of its operands (both 0 where none takes these
    operands).
    """

    combiner: str
    accumulator: SSAValue
    factors: tuple[SSAValue, ...]
    precision: Precision | None
    product_unit: float
    truncation: float = 0.0
    operand_rounding: float = 0.0

    @property
    def is_sum(self) -> bool:
        """Whether terms are added."""
        return self.combiner in _SUMS

    def needs_loop_space(self, environment: dict[SSAValue, Tracked], apply: Any) -> bool:
        """Whether some factor may depend on many loops at once without being an operand (so that its evaluation may need much memory)."""
        return any(f not in environment and _depends_on_several(f, environment) for f in self.factors) or len(self.factors) > 2

    def total(self, factors: Sequence[Tracked], reduced: Sequence[int], extents: Sequence[int]) -> Total:
        """Combine the products of the factors (in loop space) over the loops `reduced`."""
        tracking = any(f.error is not None for f in factors)
        integral = factors[0].value.dtype.kind != "f"
        unit = 0.0 if integral else self.product_unit
        merged = merge_factors(factors, lambda a, b: _multiplied(a, b, unit)) if len(factors) > 1 else list(factors)
        if len(merged) == 2:
            a, b = merged
            value = contract(a.value, b.value, reduced, extents)
            if integral:
                return Total(value)
            squares = contracted_squares(a.value, b.value, reduced, extents)
            inherited: list[Array] = []
            if tracking:
                sizes = [np.abs(f.value) for f in merged]
                spread = [f.spread().error for f in merged]
                inherited = [contract(e, s, reduced, extents) for e, s in zip(spread, reversed(sizes), strict=True) if e is not None]
            return Total(value, squares, combined(*inherited, DEVIATIONS * unit * np.sqrt(squares)))
        return self._total_of_terms(merged[0], tuple(reduced), extents)

    def _total_of_terms(self, term: Tracked, axes: tuple[int, ...], extents: Sequence[int]) -> Total:
        shape = [extents[d] if d in axes else n for d, n in enumerate(_in_loop_space(term.value, len(extents)).shape)]

        def over(array: Array, combiner: str = self.combiner) -> Array:
            return _REDUCERS[combiner](np.broadcast_to(array, shape), axes, True)

        value = over(term.value)
        if term.value.dtype.kind != "f":
            return Total(value, error=None if term.error is None else over(term.error, ADD))
        squares = over(term.value * term.value) if self.is_sum else None
        if term.error is None:
            return Total(value, squares)
        if self.combiner in _PRODUCTS:
            size = np.abs(term.value)
            relative = np.where(size > 0, term.error / np.where(size > 0, size, 1.0), 0.0)
            return Total(value, error=np.abs(value) * over(relative, ADD))
        return Total(value, squares, over(term.error, ADD if self.is_sum else arith.MaximumfOp.name))

    def join(self, parts: Sequence[Total]) -> Total:
        """The total of several parts of the reduction."""
        value = parts[0]
        for part in parts[1:]:
            value = self._joined(value, part)
        return value

    def _joined(self, a: Total, b: Total) -> Total:
        value = self._combine(a.value, b.value)
        if self.combiner in _PRODUCTS and value.dtype.kind == "f":
            scaled = [np.abs(y.value) * x.error for x, y in ((a, b), (b, a)) if x.error is not None]
            return Total(value, error=combined(*scaled))
        if self.is_sum or value.dtype.kind != "f":
            return Total(value, combined(a.squares, b.squares), combined(a.error, b.error))
        errors = [e for e in (a.error, b.error) if e is not None]
        return Total(value, error=np.maximum(errors[0], errors[-1]) if errors else None)

    def _combine(self, a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
        return _REDUCERS[self.combiner](np.stack([a, b]), (0,), False)

    def finish(self, total: Total, initial: Tracked, count: int) -> Tracked:
        """Combine with the initial value; `count` terms were combined."""
        squares = initial.value * initial.value if self.is_sum and initial.value.dtype.kind == "f" else None
        joined = self._joined(total, Total(initial.value, squares, initial.error))
        if self.precision is None:
            return Tracked(joined.value, joined.error)
        unit = self.precision.unit
        own: Array | None = None
        if joined.squares is not None:
            spread = np.sqrt(joined.squares)
            own = summation_error(unit, count, joined.value, spread) + self.precision.floor
            own += self.truncation * count * (np.abs(joined.value) + spread) + OPERAND_DEVIATIONS * self.operand_rounding * spread
        elif self.combiner in _PRODUCTS:
            own = count * unit * np.abs(joined.value) + self.precision.floor
        return Tracked(joined.value, combined(joined.error, own))


def _in_loop_space(array: Array, rank: int) -> Array:
    return array if array.ndim == rank else np.reshape(array, [1] * rank)


def _leaves(value: SSAValue, environment: dict[SSAValue, Tracked], found: set[SSAValue]) -> None:
    if value in environment:
        found.add(value)
    elif isinstance(value.owner, Operation):
        for operand in value.owner.operands:
            _leaves(operand, environment, found)


def _depends_on_several(value: SSAValue, environment: dict[SSAValue, Tracked]) -> bool:
    """Whether operands that depend on different loops meet in a value."""
    found: set[SSAValue] = set()
    _leaves(value, environment, found)
    loops = [used(environment[leaf].value) for leaf in found]
    return bool(loops) and frozenset[int]().union(*loops) not in loops


def _uses(value: SSAValue, wanted: Sequence[SSAValue]) -> bool:
    if value in wanted:
        return True
    return isinstance(value.owner, Operation) and any(_uses(v, wanted) for v in value.owner.operands)


def _widened(value: SSAValue) -> SSAValue:
    """Through conversions to a wider float, which are exact."""
    while isinstance(value.owner, arith.ExtFOp):
        value = value.owner.input
    return value


def _factors(value: SSAValue, product: type[Operation], units: list[float]) -> list[SSAValue]:
    source = _widened(value)
    if isinstance(source.owner, product):
        if is_float(source.type):
            units.append(precision_of(storage_dtype(source.type)).unit)
        return [f for operand in source.owner.operands for f in _factors(operand, product, units)]
    return [value]


def _matrix_precision(factors: Sequence[SSAValue], precision: Precision | None, f32_precision: F32Precision) -> dict[str, float]:
    """What a matrix instruction may add where the term is a product of two floats that it takes, into an f32 accumulator.

    Such instructions align and truncate: for 16-bit operands to about 2^-23 of the running sum every 4 terms at least, for 8-bit ones
    (Hopper, which keeps 14 bits) 2^-13 every 16 terms. Further f32 factors beside two narrow ones are scales. Sums of split f32 operands
    leave the matrix unit every 128 bytes along k.
    """
    if precision is None or precision.unit != 2.0**-24:
        return {}
    widths = [storage_dtype(_widened(f).type).itemsize for f in factors if is_float(f.type)]
    narrow = [width for width in widths if width <= 2]
    if len(narrow) == 2 and max(widths) <= 4:
        return {"truncation": 2.0**-17 if max(narrow) == 1 else 2.0**-25}
    if len(factors) == 2 and max(widths) == 4 and f32_precision != "ieee":
        truncation = 2.0**-25 if f32_precision == "tf32" else 2.0**-28
        return {"truncation": truncation, "operand_rounding": OPERAND_ROUNDING[f32_precision]}
    return {}


def find_reduction(
    yielded: SSAValue, accumulators: Sequence[SSAValue], own: SSAValue, *, f32_precision: F32Precision = "ieee"
) -> Reduction | None:
    """The reduction that a body's yielded value is: its own accumulator combined, once, with a term that uses no accumulator.

    None for other bodies.

    The accumulator may be widened before and the result narrowed after each step.
    """
    value, narrowest = yielded, yielded.type
    while isinstance(value.owner, arith.TruncFOp):
        value = value.owner.input
    op = value.owner
    scalar = element_type(narrowest)
    precision = precision_of(storage_dtype(scalar)) if is_float(scalar) else None
    if isinstance(op, math.FmaOp) and _widened(op.c) is own and not any(_uses(v, accumulators) for v in (op.a, op.b)):
        units: list[float] = []
        factors = [f for v in (op.a, op.b) for f in _factors(v, arith.MulfOp, units)]
        return Reduction(
            ADD, own, tuple(factors), precision, max(units, default=0.0), **_matrix_precision(factors, precision, f32_precision)
        )
    if not isinstance(op, Operation) or op.name not in _REDUCERS:
        return None
    left, right = op.operands
    term = right if _widened(left) is own else left if _widened(right) is own else None
    if term is None or _uses(term, accumulators):
        return None
    units = []
    product = {ADD: arith.MulfOp, arith.AddiOp.name: arith.MuliOp}.get(op.name)
    factors = _factors(term, product, units) if product is not None else [term]
    matrix = _matrix_precision(factors, precision, f32_precision) if op.name == ADD else {}
    return Reduction(op.name, own, tuple(factors), precision, max(units, default=0.0), **matrix)
