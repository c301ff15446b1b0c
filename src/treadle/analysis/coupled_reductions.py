"""Reductions whose outputs are combined together: the index of an extremum, mean and variance, sums of exponentials under a maximum.

Recognised from the body alone, whatever the order of outputs and of commutative operands. Every kind is a fold that can be split: parts of
the reduced axis, folded apart, are merged to the fold of the whole (exactly for extrema, up to rounding for the others). What is combined
together in another way has the kind "": only the order of its loops is known to be right.

Sources: B. P. Welford, "Note on a method for calculating corrected sums of squares and products" (1962); M. Milakov and N. Gimelshein,
"Online normalizer calculation for softmax" (2018).
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Literal

from treadle.analysis.scalar_dependence import depends_on
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.records import dataclass

CoupledKind = Literal["argmax", "argmin", "mean_variance", "online_softmax", ""]


@dataclass(frozen=True, slots=True)
class Coupled:
    """Outputs that are combined together.

    `outputs`: their numbers in the order of their roles, `elements`: the scalars that one step takes in, which depend on no accumulator:
    - argmax, argmin: (value, index); elements (value, index). `ties`: which of equal elements stays. `nan`: "skipped", it never stays;
      "first", the first one stays (NumPy); "order", what stays depends on the order of all elements; "" for integers, which are
      compared without signs where `unsigned`;
    - mean_variance: (count, mean, sum of squared deviations), or the last two where the count is an element; elements (value[, count]);
    - online_softmax: (maximum, sum of exponentials, weighted sums..); elements (score, weighted values..). `base`: "exp" or "exp2";
    - "": in the order of the operation; no elements.
    """

    kind: CoupledKind
    outputs: tuple[int, ...]
    elements: tuple[SSAValue, ...] = ()
    ties: Literal["first", "last", ""] = ""
    nan: Literal["skipped", "first", "order", ""] = ""
    unsigned: bool = False
    base: Literal["exp", "exp2", ""] = ""


@dataclass(frozen=True, slots=True)
class _Fold:
    """The outputs of one component: `accumulators[i]` becomes `results[i]`."""

    body: Block
    accumulators: tuple[BlockArgument, ...]
    results: tuple[SSAValue, ...]

    def ordered(self, order: Sequence[int]) -> "_Fold":
        return _Fold(self.body, tuple(self.accumulators[i] for i in order), tuple(self.results[i] for i in order))

    def is_element(self, value: SSAValue) -> bool:
        """Whether a scalar depends on no accumulator."""
        return not depends_on(value, self.accumulators, self.body)


def coupled_outputs(body: Block, inputs: int, results: Sequence[SSAValue]) -> tuple[Coupled, ...]:
    """The sets of outputs that are combined together; outputs that depend on no accumulator but their own are in none.

    `body`: takes `inputs` scalars and the accumulators; `results`: what it yields.
    """
    accumulators = body.args[inputs:]
    reads = [{j for j, other in enumerate(accumulators) if depends_on(value, (other,), body)} | {i} for i, value in enumerate(results)]
    found: list[Coupled] = []
    for numbers in _components(reads):
        if len(numbers) > 1:
            fold = _Fold(body, tuple(accumulators[i] for i in numbers), tuple(results[i] for i in numbers))
            found.append(_recognised(fold, numbers))
    return tuple(found)


def _components(reads: Sequence[set[int]]) -> list[list[int]]:
    """The numbers that are connected by reading each other, each set in rising order."""
    found: list[set[int]] = []
    for own in reads:
        joined = set(own)
        for other in [one for one in found if one & joined]:
            found.remove(other)
            joined |= other
        found.append(joined)
    return sorted(sorted(one) for one in found)


def _recognised(fold: _Fold, numbers: Sequence[int]) -> Coupled:
    for order in permutations(range(len(numbers))) if len(numbers) <= 4 else ():
        chosen = fold.ordered(order)
        outputs = tuple(numbers[i] for i in order)
        found = _extremum(chosen, outputs) or _mean_variance(chosen, outputs) or _online_softmax(chosen, outputs)
        if found is not None:
            return found
    return Coupled("", tuple(numbers))


def _operands(value: SSAValue, *kinds: type[Operation]) -> tuple[SSAValue, ...]:
    """The operands of the operation of one of `kinds` that makes a value; none where another one does."""
    return tuple(value.owner.operands) if isinstance(value.owner, kinds) else ()


def _pairs(value: SSAValue, *kinds: type[Operation]) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Both orders of the operands of a commutative operation of one of `kinds`."""
    operands = _operands(value, *kinds)
    if len(operands) == 2:
        yield operands[0], operands[1]
        yield operands[1], operands[0]


def _other(value: SSAValue, known: SSAValue, *kinds: type[Operation]) -> SSAValue | None:
    """The operand beside `known` of a commutative operation."""
    return next((right for left, right in _pairs(value, *kinds) if left is known), None)


# index of an extremum

_FLOAT_PREDICATES = {2: "gt", 3: "ge", 4: "lt", 5: "le", 9: "gt", 10: "ge", 11: "lt", 12: "le"}
_FIRST_UNORDERED = 8
_INTEGER_PREDICATES = {2: "lt", 3: "le", 4: "gt", 5: "ge", 6: "lt", 7: "le", 8: "gt", 9: "ge"}
_ORDERED, _UNORDERED = 7, 14
_SWAPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
_MAXIMA = (arith.MaximumfOp, arith.MaxnumfOp, arith.MaxSIOp, arith.MaxUIOp)
_MINIMA = (arith.MinimumfOp, arith.MinnumfOp, arith.MinSIOp, arith.MinUIOp)
_UNSIGNED_EXTREMA = (arith.MaxUIOp, arith.MinUIOp)
_FIRST_UNSIGNED = 6


def _compared(condition: SSAValue, element: SSAValue, accumulator: SSAValue) -> tuple[str, str] | None:
    """(relation of the element to the accumulator, "o" or "u" for floats that have none, "" for integers)."""
    op = condition.owner
    if not isinstance(op, arith.CmpfOp | arith.CmpiOp) or {op.lhs, op.rhs} != {element, accumulator}:
        return None
    number = op.predicate.value.data
    if isinstance(op, arith.CmpfOp):
        relation, nan = _FLOAT_PREDICATES.get(number, ""), "o" if number < _FIRST_UNORDERED else "u"
    else:
        relation, nan = _INTEGER_PREDICATES.get(number, ""), ""
    if not relation:
        return None
    return (relation if op.lhs is element else _SWAPPED[relation]), nan


def _is_test(condition: SSAValue, predicate: int, value: SSAValue) -> bool:
    """Whether a condition compares a float with itself: whether it is a number, or is none."""
    op = condition.owner
    return isinstance(op, arith.CmpfOp) and op.predicate.value.data == predicate and op.lhs is value and op.rhs is value


def _replaces(condition: SSAValue, element: SSAValue, accumulator: SSAValue) -> tuple[str, str] | None:
    """(relation, what NaN does) where a condition says that an element takes the accumulator's place."""
    if (found := _compared(condition, element, accumulator)) is not None:
        return found[0], {"o": "skipped", "u": "order", "": ""}[found[1]]
    for left, right in _pairs(condition, arith.AndIOp):  # greater or not comparable, where a number stood before
        if _is_test(right, _ORDERED, accumulator) and (found := _compared(left, element, accumulator)) is not None and found[1] == "u":
            return found[0], "first"
    for left, right in _pairs(condition, arith.OrIOp):  # greater, or the first that is no number
        found = _compared(left, element, accumulator)
        first = any(_is_test(a, _UNORDERED, element) and _is_test(b, _ORDERED, accumulator) for a, b in _pairs(right, arith.AndIOp))
        if first and found is not None and found[1] == "o":
            return found[0], "first"
    return None


def _extremum(fold: _Fold, outputs: tuple[int, ...]) -> Coupled | None:
    if len(outputs) != 2:
        return None
    (best, place), (value, index) = fold.accumulators, fold.results
    chosen = _operands(index, arith.SelectOp)
    if len(chosen) != 3 or chosen[2] is not place or not fold.is_element(chosen[1]):
        return None
    condition, where = chosen[0], chosen[1]
    picked = _operands(value, arith.SelectOp)
    if len(picked) == 3 and picked[0] is condition and picked[2] is best:
        element, exact = picked[1], True
    else:
        found = _other(value, best, *_MAXIMA, *_MINIMA)
        if found is None:
            return None
        element, exact = found, False
    replaces = _replaces(condition, element, best) if fold.is_element(element) else None
    if replaces is None:
        return None
    relation, nan = replaces
    largest = relation in ("gt", "ge")
    if not exact and not isinstance(value.owner, _MAXIMA if largest else _MINIMA):
        return None
    comparison = condition.owner
    unsigned = isinstance(comparison, arith.CmpiOp) and comparison.predicate.value.data >= _FIRST_UNSIGNED
    if not exact and isinstance(comparison, arith.CmpiOp) and unsigned != isinstance(value.owner, _UNSIGNED_EXTREMA):
        return None
    if isinstance(value.owner, arith.MaximumfOp | arith.MinimumfOp):
        nan = "order"  # the value becomes NaN where the index stays
    ties = "first" if relation in ("gt", "lt") else "last"
    return Coupled("argmax" if largest else "argmin", outputs, (element, where), ties, nan, unsigned)  # pyright: ignore[reportArgumentType]


# mean and variance


def _mean_variance(fold: _Fold, outputs: tuple[int, ...]) -> Coupled | None:
    match len(outputs):
        case 3:
            count, mean, squares = fold.accumulators
            next_count, next_mean, next_squares = fold.results
            one = _other(next_count, count, arith.AddfOp, arith.AddiOp)
            if one is None or not _is_one(one):
                return None
        case 2:
            (mean, squares), (next_mean, next_squares), next_count = fold.accumulators, fold.results, None
        case _:
            return None
    step = _other(next_mean, mean, arith.AddfOp)
    quotient = _operands(step, arith.DivfOp) if step is not None else ()
    if len(quotient) != 2:
        return None
    deviation, divisor = quotient
    counted = _operands(divisor, arith.SIToFPOp, arith.UIToFPOp)
    if next_count is not None and divisor is not next_count and counted != (next_count,):
        return None
    parts = _operands(deviation, arith.SubfOp)
    if len(parts) != 2 or parts[1] is not mean or not fold.is_element(parts[0]) or (next_count is None and not fold.is_element(divisor)):
        return None
    added = _other(next_squares, squares, arith.AddfOp)
    left = None if added is None else _other(added, deviation, arith.MulfOp)
    if left is None or _operands(left, arith.SubfOp) != (parts[0], next_mean):
        return None
    return Coupled("mean_variance", outputs, (parts[0],) if next_count is not None else (parts[0], divisor))


def _is_one(value: SSAValue) -> bool:
    op = value.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, builtin.FloatAttr | builtin.IntegerAttr):
        return False
    return op.value.value.data == 1


# sums of exponentials under a running maximum


def _online_softmax(fold: _Fold, outputs: tuple[int, ...]) -> Coupled | None:
    top, next_top = fold.accumulators[0], fold.results[0]
    score = _other(next_top, top, arith.MaximumfOp, arith.MaxnumfOp)
    if score is None or not fold.is_element(score):
        return None
    values: list[SSAValue] = []
    kinds: set[type[Operation]] = set()
    for number, (total, result) in enumerate(zip(fold.accumulators[1:], fold.results[1:], strict=True)):
        term = next((t for t, scaled in _sums(result) if _is_rescaled(scaled, total, top, next_top, kinds)), None)
        if term is None:
            return None
        if number == 0:
            if not _is_exponential(term, score, next_top, kinds):
                return None
            continue
        value = next((v for weight, v in _pairs(term, arith.MulfOp) if _is_exponential(weight, score, next_top, kinds)), None)
        if value is None or not fold.is_element(value):
            return None
        values.append(value)
    if len(kinds) != 1:
        return None
    return Coupled("online_softmax", outputs, (score, *values), base="exp" if kinds == {math.ExpOp} else "exp2")


def _sums(value: SSAValue) -> Iterator[tuple[SSAValue, tuple[SSAValue, SSAValue]]]:
    """(one summand, the factors of the other) of a sum with a product, fused or not."""
    for term, product in _pairs(value, arith.AddfOp):
        if len(factors := _operands(product, arith.MulfOp)) == 2:
            yield term, (factors[0], factors[1])
    if len(fused := _operands(value, math.FmaOp)) == 3:
        yield fused[2], (fused[0], fused[1])


def _is_rescaled(
    factors: tuple[SSAValue, SSAValue], total: SSAValue, top: SSAValue, next_top: SSAValue, kinds: set[type[Operation]]
) -> bool:
    """Whether a product is `total * exp(top - next_top)`."""
    return any(left is total and _is_exponential(right, top, next_top, kinds) for left, right in (factors, factors[::-1]))


def _is_exponential(value: SSAValue, minuend: SSAValue, subtrahend: SSAValue, kinds: set[type[Operation]]) -> bool:
    """Whether a value is exp(minuend - subtrahend), or exp2 of it; notes which."""
    argument = _operands(value, math.ExpOp, math.Exp2Op)
    if len(argument) != 1 or _operands(argument[0], arith.SubfOp) != (minuend, subtrahend):
        return False
    kinds.add(type(value.owner) if isinstance(value.owner, Operation) else Operation)
    return True
