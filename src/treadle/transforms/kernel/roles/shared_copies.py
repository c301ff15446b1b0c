"""Copies of an operand that workgroups of a cluster share: what each of them brings, for itself and the others."""

from collections.abc import Iterator, Sequence

from treadle.dialects import pipe, tile
from treadle.dialects.role_plan import RolePlan
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.layout.shared_layout import SharedLayout
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.index_math import IndexBuilder

MOST_SPANS = 4
"""Of a swizzle's rows in a tile's columns."""


@dataclass(frozen=True, slots=True)
class OwnPart:
    """Of a buffer that the workgroups of a cluster fill together, what one copy of each of them brings: the part along `axis` of as many
    as `parts` says whose number is the workgroup's rank times `stride`, and `first` more. Before it, where `span` is one, that of the spans
    of a swizzle's rows along the other axis, of as many as `spans` says. `is_shared`: others have it by this copy, too.
    """

    axis: int
    parts: int
    stride: int
    first: int
    spans: int = 1
    span: int = 0
    is_shared: bool = True


def own_parts(layout: SharedLayout, count: int, *, rows: bool) -> tuple[OwnPart, ...]:
    """What each of `count` workgroups brings of a buffer with such a layout that all of them read; empty where they cannot share it.

    Parts follow one another in memory as wholes: along the result's columns, or its `rows` (A's is (m, k), B's (k, n)); else along k in
    each span of a swizzle's rows; else along the rows again by periods of the swizzle, of which each brings what is left over for itself.
    """
    own, other = layout.rank - (2 if rows else 1), layout.rank - (1 if rows else 2)
    for axis in (own, other):
        if pipe.part_layout(layout, axis, count) is not None:
            return (OwnPart(axis, count, 1, 0),)
    whole = [n for bit in range(MOST_SPANS.bit_length()) if pipe.part_layout(layout, own, n := layout.repeat[own] << bit) is not None]
    for spans in whole:
        if (span := pipe.part_layout(layout, own, spans)) is not None and pipe.part_layout(span, other, count) is not None:
            return tuple(OwnPart(other, count, 1, 0, spans, number) for number in range(spans))
    periods = max(whole, default=1)
    if periods <= count:
        return ()
    each, left = divmod(periods, count)
    shared = tuple(OwnPart(own, periods, each, number) for number in range(each))
    return (*shared, *(OwnPart(own, periods, 0, each * count + number, is_shared=False) for number in range(left)))


def brought_parts(
    index: IndexBuilder, copy: tile.CopyOp, plan: RolePlan, destination: SSAValue, offsets: Sequence[SSAValue], *, rows: bool
) -> Iterator[tuple[SSAValue, list[SSAValue], range | None]]:
    """Where each copy goes that this workgroup makes for one of its tile's `rows` or columns, where it comes from, and the workgroups that
    it fills, relative to this one where they are not the whole cluster; None: this one alone.
    """
    rank, ranks = _sharing(index, plan, rows=rows)
    parts = own_parts(tile.shared_layout_of(copy.destination), len(ranks), rows=rows)
    if not parts:
        raise InternalError("a cluster shares a buffer that has no parts")
    for part in parts:
        yield (*_own_part(index, copy, part, rank, destination, offsets), ranks if part.is_shared else None)


def _sharing(index: IndexBuilder, plan: RolePlan, *, rows: bool) -> tuple[SSAValue, range]:
    """This workgroup's number among those of a cluster that share an operand, and these. Neighbours along m are neighbours by rank."""
    along_m = plan.cluster // plan.cluster_n
    count, apart = (plan.cluster_n, along_m) if rows else (along_m, 1)
    rank = index.insert(pipe.ClusterRankOp())
    if count < plan.cluster:
        rank = index.divide(rank, index.constant(along_m)) if rows else index.remainder(rank, index.constant(along_m))
    return rank, range(0, count * apart, apart)


def _own_part(
    index: IndexBuilder, copy: tile.CopyOp, part: OwnPart, rank: SSAValue, destination: SSAValue, offsets: Sequence[SSAValue]
) -> tuple[SSAValue, list[SSAValue]]:
    """One part of the buffer that a cluster fills together, and where it comes from."""
    moved, dims, shape = list(offsets), tile.ints(copy.dims), tile.memref_type(copy.destination).get_shape()
    if part.spans > 1:
        across = 2 * len(shape) - 3 - part.axis
        destination = index.insert(pipe.PartOp(destination, index.constant(part.span), across, part.spans))
        moved[dims[across]] = index.add(moved[dims[across]], index.constant(part.span * (shape[across] // part.spans)))
    number = index.multiply(rank, part.stride) if part.stride else index.constant(part.first)
    if part.stride and part.first:
        number = index.add(number, index.constant(part.first))
    along = dims[part.axis]
    moved[along] = index.add(moved[along], index.multiply(number, shape[part.axis] // part.parts))
    return index.insert(pipe.PartOp(destination, number, part.axis, part.parts)), moved
