"""What must hold for indices of 32 bits to be enough: how large what a kernel walks over, counts, steps by and computes may be."""

from collections.abc import Iterator, Sequence

from treadle.analysis.index_bounds import Bound, IndexBounds, exactly, up_to
from treadle.analysis.indexing import StructuredOp, structured
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.root_positions import KernelSizes, kernel_symbols
from treadle.dialects import dispatch
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.plan.block_bounds import greatest
from treadle.plan.expr import Expr, as_expr, ceil_div, constant, maximum, product, symbol
from treadle.plan.index_range import INDEX_LIMIT, SIZE_LIMIT, largest, peaks
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """32-bit indices are enough where `value <= limit`; `what` says what has this value. None: whatever the sizes, they may not be."""

    value: Expr | None
    limit: int
    what: str

    @property
    def is_met(self) -> bool | None:
        """None where only the runtime knows."""
        if self.value is None:
            return False
        known = self.value.as_int()
        return None if known is None else known <= self.limit


def _tile_counts(nest: LoopNest, extents: Sequence[int], together: int) -> Iterator[tuple[Expr, str]]:
    """How many tiles there are, times the rows of them that are walked together; the tiles of one axis are fewer than its elements."""
    counts = [ceil_div(axis.bound, e) for axis, e in zip(nest.axes, extents, strict=True) if not axis.is_reduction]
    if len(counts) > 1 or together > 1:
        yield product(counts) * together, "the number of tiles"


def _sizes(nest: LoopNest, extents: Sequence[int], together: int) -> Iterator[tuple[Expr, str]]:
    """What the tile program walks over, counts, and steps by."""
    blocks = nest.kernel.ranges
    for axis in nest.axes:
        for peak in peaks(axis.size):
            yield from ((bound, "an axis") for bound in _in_any_block(peak, blocks))
    for access in nest.accesses:
        for place in (*access.cuts, *access.corners):
            yield from ((peak, "an axis") for peak in peaks(place.extent))
    yield from _tile_counts(nest, extents, together)
    for name in dispatch.texts(nest.kernel.symbols):
        yield as_expr(name), "a size or stride"
    for access in nest.accesses:
        for axis in nest.axes:
            if not axis.block and not (stride := nest.stride_along(access, axis)).is_constant:
                for peak in peaks(stride):
                    yield peak, "a stride"


def _in_any_block(value: Expr, extents: dict[str, Expr]) -> Sequence[Expr]:
    """Bounds of what grows with the indices of blocks, a sum of products that are not negative."""
    if extents.keys().isdisjoint(value.symbols()):
        return (value,)
    return greatest(value, extents) or (value.substitute(extents),)


def _is_index(value: SSAValue) -> bool:
    return isinstance(value.type, builtin.IndexType)


def _index_results(ops: Sequence[Operation]) -> Iterator[SSAValue]:
    """Values that index arithmetic computes, and those that integers are taken for."""
    for op in ops:
        if not isinstance(op, linalg.ops.IndexOp):
            yield from (result for result in op.results if _is_index(result))


def _body_bounds(view: StructuredOp, known: KernelSizes, outer: IndexBounds) -> Iterator[Bound | None]:
    """Bounds of the index arithmetic in a generic's body."""
    values = list(_index_results(list(view.body.ops)))
    if not values:
        return
    sizes = known.loops(view)

    def leaf(value: SSAValue) -> Bound | None:
        op = value.owner
        if isinstance(op, linalg.ops.IndexOp):
            return up_to(sizes[op.dim.value.data])
        return outer.of(value)

    bounds = IndexBounds(leaf)
    yield from (bounds.of(value) for value in values)


def _arithmetic(kernel: dispatch.KernelOp) -> Iterator[Bound | None]:
    """Bounds of all index arithmetic that the user wrote: at the kernel's top, and in bodies."""
    symbols, known = kernel_symbols(kernel), KernelSizes(kernel)
    blocks = {symbol(name): extent for name, extent in kernel.ranges.items()}

    def leaf(value: SSAValue) -> Bound | None:
        known = symbols.get(value)
        return None if known is None else up_to(maximum(blocks[known] - 1, 0)) if known in blocks else exactly(known)

    outer = IndexBounds(leaf)
    top = list(kernel.body.block.ops)
    yield from (outer.of(value) for value in _index_results(top))
    for op in top:
        view = structured(op) if isinstance(op, linalg.ops.GenericOp) else None
        if view is not None:
            yield from _body_bounds(view, known, outer)


def needs(nest: LoopNest, extents: Sequence[int], together: int) -> tuple[Need, ...]:
    """What must hold for 32-bit indices; those that others imply are left out.

    `extents`: of a tile along the nest's axes. `together`: rows of tiles that are walked together.
    """
    whole: dict[Expr, str] = {}
    for value, what in _sizes(nest, extents, together):
        whole.setdefault(value, what)
    found = [Need(value, SIZE_LIMIT, whole[value]) for value in largest(whole)]
    what = "index arithmetic of the body"
    negative, positive = set[Expr](), set[Expr]()
    for bound in _arithmetic(nest.kernel):
        if bound is None:
            found.append(Need(None, INDEX_LIMIT, what))
        else:
            negative.add(bound.negative)
            positive.add(bound.positive)
    found += [Need(value, INDEX_LIMIT, what) for value in largest(positive - {constant(0)})]
    found += [Need(value, INDEX_LIMIT + 1, what) for value in largest(negative - {constant(0)})]
    return tuple(dict.fromkeys(found))
