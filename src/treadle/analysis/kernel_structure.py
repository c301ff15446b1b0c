"""What one kernel can be built of: asked of every group of a function's operations, and of a `dispatch.kernel` before its loops are read.

Dispatch level states any straight line of structured operations around operations marked as roots. Built today are kernels around one root
of any kind, around several contractions side by side (*siblings*): over the same dimensions, reading one operand together, none computed
from another; around reductions over the same dimensions, with what is computed between and behind them (*rows*, `row_structure.py`); or
around two contractions with a softmax between them (*attention*, `attention_structure.py`). Other chains of roots are stated, verified and
evaluated by the reference, and no kernel form builds them: `unbuildable` says so, and nothing else in the compiler does.
"""

from collections.abc import Container, Mapping, Sequence

from treadle.analysis.attention_structure import NoAttention, attention_of, is_chain
from treadle.analysis.convolution import PADDED, reads_windows
from treadle.analysis.indexing import (
    Contraction,
    StructuredOp,
    is_permutation,
    is_projection,
    map_dims,
    tensor_of,
)
from treadle.analysis.operation_marks import ORIGIN
from treadle.analysis.row_structure import NoRows, needed_rows
from treadle.dialects import dispatch
from treadle.ir.core import AffineMap, Operation, SSAValue
from treadle.ir.locations import location_of
from treadle.records import dataclass

Axes = Mapping[SSAValue, tuple[int, ...]]
"""For results of roots and consumers: which loop of the roots each axis walks."""


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """The operation for which no kernel form builds a kernel, and why."""

    op: Operation
    reason: str


def result_axes(view: StructuredOp, loops: Sequence[int]) -> dict[SSAValue, tuple[int, ...]]:
    """Which of `loops`, one for each dimension of the operation, each axis of its results walks."""
    found: dict[SSAValue, tuple[int, ...]] = {}
    for result, map_ in zip(view.op.results, view.output_maps, strict=True):
        found[result] = tuple(loops[d] for d in map_dims(map_) or ())
    return found


def consumer_loops(view: StructuredOp, axes: Axes) -> tuple[int, ...] | None:
    """The roots' loops that an elementwise operation iterates over, one for each dimension, as what it reads of `axes` tells.

    None where two of its reads tell differently (one transposed, say): they meet different elements. Reads are permutations.
    """
    found: set[tuple[int, ...]] = set()
    for value, map_ in view.operands():
        if value in axes and is_permutation(map_):
            loops = [0] * view.rank
            for axis, d in zip(axes[value], map_dims(map_) or (), strict=True):
                loops[d] = axis
            found.add(tuple(loops))
    return found.pop() if len(found) == 1 else None


def consumer_refusal(view: StructuredOp, axes: Axes) -> str | None:
    """Why an operation that reads some of `axes` cannot run on the tile of the roots' results; None where it can."""
    if not view.is_parallel:
        return "it is a reduction or contraction itself"
    if not all(map_ == AffineMap.identity(view.rank) for map_ in view.output_maps[:1]):
        return "its result is not in the order of its loops"
    for value, map_ in view.operands():
        if value in axes and not is_permutation(map_):
            return f"it reads the result through {map_}, so it needs more than the accumulator's own tile"
    if any(value in axes for value in view.gathered):
        return "it gathers from the result, so it needs more than the accumulator's own tile"
    if consumer_loops(view, axes) is None:
        return "it reads results at two places, so it needs more than the accumulator's own tile"
    return None


def producer_refusal(view: StructuredOp, read: AffineMap) -> str | None:
    """Why what an operation computes cannot be computed anew where another one reads it through the map `read`; None where it can."""
    if not view.is_parallel:
        return "it is a reduction or contraction, and nothing in the kernel is computed from one"
    is_read = is_projection(read) or (PADDED in view.op.attributes and reads_windows(read))
    if any(output != AffineMap.identity(view.rank) for output in view.output_maps) or not is_read:
        return f"it is read through {read}"
    return None


def siblings_refusal(first: StructuredOp, other: StructuredOp) -> str | None:
    """Why the loops, types or bodies of two operations keep them from being roots of one kernel side by side; None where they do not."""
    kinds = first.computation, other.computation
    if any(not isinstance(kind, Contraction) or kind.scales for kind in kinds):
        return "only contractions without scales are built side by side"
    if other.iterators != first.iterators or other.output_maps != first.output_maps or _roles(other) != _roles(first):
        return "its loops have other roles"
    if _types(other) != _types(first):
        return "its operands or its result have other types"
    known, result = tensor_of(first.op.results[0]), tensor_of(other.op.results[0])
    shapes = [() if type_ is None else type_.get_shape() for type_ in (known, result)]
    if any(a != b and min(a, b) >= 0 for a, b in zip(*shapes, strict=True)):
        return f"its result is {result}, not {known}"
    return None


def shared_operands(views: Sequence[StructuredOp]) -> list[int]:
    """Input numbers at which all of `views` read the same value through the same map."""
    return [
        number
        for number in (0, 1)
        if len({view.inputs[number] for view in views}) == 1 and len({view.input_maps[number] for view in views}) == 1
    ]


def unbuildable(operations: Sequence[StructuredOp], roots: Sequence[Operation]) -> Unbuildable | None:
    """The first operation that keeps these from being one kernel; None where a kernel form builds them.

    `operations`: everything that the kernel computes, in program order. `roots`: those of them that it is formed around, at least one.
    """
    rows = needed_rows(operations, roots)
    if isinstance(rows, NoRows):
        return Unbuildable(rows.op, rows.reason)
    if rows is not None:
        return _unbuildable_producers(operations, rows.members)
    if is_chain(roots):
        chain = attention_of(operations, roots)
        if isinstance(chain, NoAttention):
            return Unbuildable(chain.op, chain.reason)
        return _unbuildable_producers(operations, chain.members)
    axes: dict[SSAValue, tuple[int, ...]] = {}
    members: dict[Operation, Operation] = {}  # to the root that it is, or is computed from
    for view in operations:
        above = _root_above(view, members)
        if view.op in roots:
            if above is not None:
                return Unbuildable(
                    view.op, f"it is computed from {_place(above)}, another root: no kernel form builds such chains of roots yet"
                )
            axes.update(result_axes(view, range(view.rank)))
        elif above is None:
            continue
        elif (reason := consumer_refusal(view, axes)) is not None:
            return Unbuildable(view.op, reason)
        else:
            axes.update(result_axes(view, consumer_loops(view, axes) or ()))
        members[view.op] = above or view.op
    return _unbuildable_siblings(operations, roots) or _unbuildable_producers(operations, members)


def _root_above(view: StructuredOp, members: Mapping[Operation, Operation]) -> Operation | None:
    read = (*(value for value, _ in view.operands()), *view.gathered)
    return next((members[v.owner] for v in read if isinstance(v.owner, Operation) and v.owner in members), None)


def _unbuildable_siblings(operations: Sequence[StructuredOp], roots: Sequence[Operation]) -> Unbuildable | None:
    views = [view for view in operations if view.op in roots]
    for view in views[1:]:
        if (reason := siblings_refusal(views[0], view)) is not None:
            return Unbuildable(view.op, reason)
    if len(views) > 1 and not shared_operands(views):
        return Unbuildable(views[-1].op, f"it shares no operand with {_place(views[0].op)} and the other roots")
    return None


def _unbuildable_producers(operations: Sequence[StructuredOp], members: Container[Operation]) -> Unbuildable | None:
    producers = {view.op: view for view in operations if view.op not in members}
    for view in operations:
        for value, map_ in view.operands():
            made = producers.get(value.owner) if isinstance(value.owner, Operation) else None
            if made is not None and (reason := producer_refusal(made, map_)) is not None:
                return Unbuildable(made.op, reason)
        for value in view.gathered:
            if isinstance(value.owner, Operation) and value.owner in producers:
                return Unbuildable(value.owner, "another operation gathers from it")
    return None


def _place(op: Operation) -> str:
    place = location_of(op)
    return f"line {place.line}" if place is not None else op.name


def _roles(view: StructuredOp) -> tuple[tuple[int, ...], ...]:
    kind = view.computation
    return (kind.batch, kind.m, kind.n, kind.k) if isinstance(kind, Contraction) else ()


def _types(view: StructuredOp) -> tuple[object, ...]:
    kind = view.computation
    casts = (kind.lhs_cast, kind.rhs_cast) if isinstance(kind, Contraction) else ()
    elements = [type_.element_type for value in (*view.inputs, *view.op.results) if (type_ := tensor_of(value)) is not None]
    marks = {name: value for name, value in view.op.attributes.items() if name not in (ORIGIN, dispatch.GROUP, dispatch.ROOT)}
    return (*casts, *elements, marks)
