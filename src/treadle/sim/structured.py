"""Evaluation of structured (linalg) operations in float64, vectorised over the loops.

Every operand is brought into *loop space*: one axis for each loop, of extent 1 where its map does not use the loop, so that the body is
evaluated on whole arrays by broadcasting. A reduction whose combiner is known is a NumPy reduction, a sum of products a matrix product; any
other combiner is executed step by step over the reduction loops, vectorised over the parallel ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from treadle.errors import NOT_EXECUTABLE, TreadleError
from treadle.ir.builtin import is_tensor
from treadle.ir.core import AffineBinaryOpExpr, AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap, Block, Operation, SSAValue
from treadle.ir.dialects import linalg, scf, tensor
from treadle.ir.locations import location_of
from treadle.options import Precision
from treadle.sim.element_types import Array
from treadle.sim.error_analysis import Tracked, any_unwritten, combined, selected
from treadle.sim.reduction import Reduction, find_reduction

IndexOp = linalg.ops.IndexOp
Apply = Callable[[Operation, Sequence[Tracked]], Sequence[Tracked]]
"""The results of an operation of a body."""
Environment = dict[SSAValue, Tracked]

CHUNK_ELEMENTS = 1 << 23  # loop space evaluated at once where a reduction cannot be factored


@dataclass(frozen=True, slots=True)
class Loops:
    """The iteration space of a structured operation."""

    maps: tuple[AffineMap, ...]
    reduction: tuple[bool, ...]
    extents: tuple[int, ...]

    @property
    def rank(self) -> int:
        """How many loops."""
        return len(self.reduction)

    @property
    def reduced(self) -> tuple[int, ...]:
        """The reduction loops."""
        return tuple(d for d, r in enumerate(self.reduction) if r)

    def shape(self, *, collapsed: bool) -> tuple[int, ...]:
        """Extents of the loops; of the reduction loops 1 where `collapsed`."""
        return tuple(1 if collapsed and r else e for e, r in zip(self.extents, self.reduction, strict=True))


def _refuse(op: Operation, reason: str) -> TreadleError:
    return TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason=reason)


def loops_of(op: Operation, maps: Sequence[AffineMap], iterators: Sequence[bool], shapes: Sequence[tuple[int, ...]]) -> Loops:
    """Extents are read off the operands' shapes, wherever a map uses a loop alone."""
    extents: dict[int, int] = {}
    for affine_map, shape in zip(maps, shapes, strict=True):
        for expression, extent in zip(affine_map.results, shape, strict=True):
            if isinstance(expression, AffineDimExpr) and extents.setdefault(expression.position, extent) != extent:
                raise _refuse(op, f"loop {expression.position} has extent {extents[expression.position]} and {extent}")
    if len(extents) != len(iterators):
        raise _refuse(op, "the extent of a loop cannot be read off the operands")
    return Loops(tuple(maps), tuple(iterators), tuple(extents[d] for d in range(len(iterators))))


def _indices(expression: AffineExpr, extents: Sequence[int]) -> Array:
    """The values of an index expression over all loops, in loop space."""
    if isinstance(expression, AffineDimExpr):
        axis = expression.position
        return np.arange(extents[axis]).reshape([-1 if d == axis else 1 for d in range(len(extents))])
    if isinstance(expression, AffineConstantExpr):
        return np.full([1] * len(extents), expression.value)
    if not isinstance(expression, AffineBinaryOpExpr):
        raise TreadleError(NOT_EXECUTABLE, name="linalg.generic", reason=f"index expression {expression} has symbols")
    a, b = _indices(expression.lhs, extents), _indices(expression.rhs, extents)
    match expression.kind.name:
        case "Add":
            return a + b
        case "Mul":
            return a * b
        case "Mod":
            return a % b
        case "FloorDiv":
            return a // b
        case _:
            return -(-a // b)


def to_loop_space(array: Array, affine_map: AffineMap, extents: Sequence[int]) -> Array:
    """An operand as the loops see it; a view where the map is a projected permutation."""
    positions = [e.position for e in affine_map.results if isinstance(e, AffineDimExpr)]
    if len(positions) == len(affine_map.results) and len(set(positions)) == len(positions):
        order = sorted(range(len(positions)), key=lambda i: positions[i])
        return array.transpose(order).reshape([extents[d] if d in positions else 1 for d in range(len(extents))])
    if 0 in extents:
        return np.zeros([extents[d] if d in affine_map.used_dims() else 1 for d in range(len(extents))], dtype=array.dtype)
    return array[tuple(_indices(e, extents) for e in affine_map.results)]


def from_loop_space(op: Operation, array: Array, affine_map: AffineMap, loops: Loops) -> Array:
    """A result over the parallel loops, with its axes in the order of the output's map."""
    positions = [e.position for e in affine_map.results if isinstance(e, AffineDimExpr)]
    parallel = [d for d in range(loops.rank) if not loops.reduction[d]]
    if sorted(positions) != parallel or len(positions) != len(affine_map.results):
        raise _refuse(op, f"the map of its output {affine_map} is not a permutation of the parallel loops")
    full = np.broadcast_to(array, loops.shape(collapsed=True)).reshape([loops.extents[d] for d in parallel])
    return full.transpose([parallel.index(d) for d in positions])


def evaluate(value: SSAValue, environment: Environment, apply: Apply) -> Tracked:
    """The value of a body's SSA value, evaluating what it depends on and remembering it in `environment`."""
    pending = [value]  # not by recursion: bodies are as long as their authors want
    while pending:
        current = pending[-1]
        op = current.owner
        if current in environment:
            pending.pop()
        elif not isinstance(op, Operation):
            raise TreadleError(NOT_EXECUTABLE, name="linalg.generic", reason="its body uses a value of another block")
        elif missing := [operand for operand in _needed(op) if operand not in environment]:
            pending += reversed(missing)
        elif isinstance(op, scf.IfOp):
            number = next(at for at, result in enumerate(op.results) if result is current)
            chosen, other = (environment[end.operands[number]] for end in _ends(op))
            environment[current] = selected(environment[op.cond], chosen, other)
        elif isinstance(op, tensor.ExtractOp):
            source, *places = [environment[operand] for operand in op.operands]
            environment[current] = gathered(source, places)
        else:
            environment.update(zip(op.results, apply(op, [environment[operand] for operand in op.operands]), strict=True))
    return environment[value]


def _needed(op: Operation) -> list[SSAValue]:
    """What an operation of a body is computed from; of a branch, both sides."""
    return [*op.operands, *(value for end in _ends(op) for value in end.operands)]


def _ends(op: Operation) -> list[Operation]:
    """The ends of a branch's sides."""
    ends = [side.block.last_op for side in (op.true_region, op.false_region)] if isinstance(op, scf.IfOp) else []
    return [end for end in ends if end is not None]


def gathered(table: Tracked, places: Sequence[Tracked]) -> Tracked:
    """The elements of a tensor at computed places; a place outside means the nearest one inside, as kernels have it."""
    if 0 in table.value.shape:
        shape = np.broadcast_shapes(*(np.shape(place.value) for place in places))
        return Tracked(np.zeros(shape, dtype=table.value.dtype))
    inside = tuple(np.clip(place.value, 0, size - 1) for place, size in zip(places, table.value.shape, strict=True))
    found = table.spread().map(lambda a: np.asarray(a[inside]))
    doubtful = combined(*(place.error for place in places))
    error = found.error if doubtful is None else combined(found.error, np.where(doubtful > 0, np.inf, 0.0))
    return Tracked(found.value, error, any_unwritten([found.unwritten, *(place.unwritten for place in places)]))


def _body_environment(block: Block, operands: Sequence[Tracked], loops: Loops, outer: Environment) -> Environment:
    environment = dict(outer)
    for argument, operand, affine_map in zip(block.args, operands, loops.maps, strict=True):
        environment[argument] = operand.spread().map(lambda a, m=affine_map: to_loop_space(a, m, loops.extents))
    for op in block.walk():
        if isinstance(op, IndexOp):
            environment[op.result] = Tracked(_indices(AffineExpr.dimension(op.dim.value.data), loops.extents))
    return environment


def run_structured(
    op: Operation,
    block: Block,
    loops: Loops,
    operands: Sequence[Tracked],
    outer: Environment,
    apply: Apply,
    *,
    f32_precision: Precision = "ieee",
) -> list[Tracked]:
    """The results of a structured operation.

    `operands` are its inputs and then its outputs' initial values, `outer` what its body may capture.
    """
    environment = _body_environment(block, operands, loops, outer)
    terminator = block.last_op
    if terminator is None:
        raise _refuse(op, "its body is empty")
    yielded = list(terminator.operands)
    accumulators = list(block.args[len(block.args) - len(yielded) :])
    if not loops.reduced:
        found = [evaluate(value, environment, apply) for value in yielded]
    elif 0 in (loops.extents[d] for d in loops.reduced):
        found = [environment[a] for a in accumulators]
    else:
        reductions = [
            find_reduction(value, accumulators, own, f32_precision=f32_precision) for value, own in zip(yielded, accumulators, strict=True)
        ]
        if all(r is not None for r in reductions):
            found = [_reduce(r, environment, loops, apply) for r in reductions if r is not None]
        else:
            found = _sequential(yielded, accumulators, environment, loops, apply)
    maps = loops.maps[len(loops.maps) - len(yielded) :]
    return [
        result.spread().map(lambda a, m=affine_map: from_loop_space(op, np.asarray(a), m, loops))
        for result, affine_map in zip(found, maps, strict=True)
    ]


def _slice(environment: Environment, loops: Loops, where: dict[int, slice]) -> Environment:
    """The environment of a part of the loops (values that do not depend on them, and tensors that are gathered from, stay whole)."""

    def cut(array: Array) -> Array:
        if array.ndim != loops.rank:
            return array
        return array[tuple(where[d] if d in where and array.shape[d] != 1 else slice(None) for d in range(loops.rank))]

    return {value: tracked if is_tensor(value.type) else tracked.spread().map(cut) for value, tracked in environment.items()}


def _chunks(loops: Loops, elements: int) -> Iterator[tuple[dict[int, slice], tuple[int, ...]]]:
    """Parts of the loops along the longest reduction, each of about `CHUNK_ELEMENTS` at most, with their extents."""
    axis = max(loops.reduced, key=lambda d: loops.extents[d])
    extent = loops.extents[axis]
    step = max(1, extent * CHUNK_ELEMENTS // max(elements, 1))
    for start in range(0, extent, step):
        stop = min(start + step, extent)
        yield {axis: slice(start, stop)}, tuple(stop - start if d == axis else e for d, e in enumerate(loops.extents))


def _reduce(reduction: Reduction, environment: Environment, loops: Loops, apply: Apply) -> Tracked:
    """Combine the terms over the reduction loops, then with the initial value."""
    initial = environment[reduction.accumulator]
    given = {v: t for v, t in environment.items() if v is not reduction.accumulator}
    factors = reduction.factors
    elements = prod(loops.extents) if reduction.needs_loop_space(given, apply) else 1
    masks: list[Array | None] = [initial.unwritten]
    if elements <= CHUNK_ELEMENTS:
        terms = [evaluate(f, given, apply) for f in factors]
        total = reduction.total(terms, loops.reduced, loops.extents)
        masks.append(_unwritten(terms, loops))
    else:
        parts: list[Any] = []
        for where, extents in _chunks(loops, elements):
            local = _slice(given, loops, where)
            terms = [evaluate(f, local, apply) for f in factors]
            parts.append(reduction.total(terms, loops.reduced, extents))
            masks.append(_unwritten(terms, loops))
        total = reduction.join(parts)
    count = prod(loops.extents[d] for d in loops.reduced)
    return replace(reduction.finish(total, initial, count), unwritten=any_unwritten(masks))


def _unwritten(terms: Sequence[Tracked], loops: Loops) -> Array | None:
    """Where some term of the reduction is unwritten, in loop space without the reduction loops."""
    mask = any_unwritten(term.unwritten for term in terms)
    if mask is None or mask.ndim != loops.rank:  # a scalar
        return mask
    return np.asarray(mask.any(axis=loops.reduced, keepdims=True))


def _sequential(
    yielded: Sequence[SSAValue], accumulators: Sequence[SSAValue], environment: Environment, loops: Loops, apply: Apply
) -> list[Tracked]:
    """Any combiner: one step of the reduction loops after the other, in row-major order."""
    state = [environment[a] for a in accumulators]
    given = {v: t for v, t in environment.items() if v not in accumulators}
    reduced = loops.reduced
    for place in np.ndindex(*(loops.extents[d] for d in reduced)):
        local = _slice(given, loops, {d: slice(i, i + 1) for d, i in zip(reduced, place, strict=True)})
        local.update(zip(accumulators, state, strict=True))
        state = [evaluate(value, local, apply) for value in yielded]
    return [replace(s, value=np.broadcast_to(s.value, loops.shape(collapsed=True))) for s in state]
