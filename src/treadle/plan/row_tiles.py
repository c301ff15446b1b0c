"""Tiles of kernels of rows: how many rows a workgroup takes, and how many threads share one.

A thread holds as many elements as hide the latency of memory (`USUAL_HELD`), more where rows are too long for that; longer rows yet are
walked part by part. What an access of several threads reads of one row begins and ends within sectors, so short pieces read more than they
need; so do tiles whose rows go beyond those of the array.
"""

from math import log2, prod

from treadle.machine.spec import TargetSpec
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.tile_config import most_threads, next_power_of_two
from treadle.records import dataclass

USUAL_HELD = 16
"""Elements of a thread whose loads are in flight together: 64 bytes of f32."""
MOST_HELD = 64
"""Elements of a thread at most, where its registers are twice as many."""
HELD_WEIGHT = 0.05
"""How much slower a kernel gets for each doubling or halving of `USUAL_HELD`."""
SECTOR_BYTES = 32
FEW_THREADS = 128
"""Of a workgroup at least, where there are rows enough."""
ACCESS_BYTES = 16
"""Of the widest access of a thread."""
WALKED_BYTES = 32
"""Of a tile in a thread that walks a row: with two accumulators for each element, and what is in flight, they fit 64 registers."""
LONG_ROW = 1024
"""Elements of a row from which on a workgroup takes it from the aligned address before it, where rows begin anywhere."""
IN_FLIGHT_BYTES = 64
"""Of a thread that walks a row, on their way together."""
KEPT_ELEMENTS = 32
"""Neighbours along the kept axis that are read together, where they are what lies next to each other in memory."""


@dataclass(frozen=True, slots=True)
class RowTile:
    """Extents along the axes of the nest, and the warps of the workgroup. `is_whole`: it holds whole rows."""

    extents: tuple[int, ...]
    warps: int
    is_whole: bool


def row_tiles(axes: tuple[AxisShape, ...], element_bytes: int, spec: TargetSpec, slack: int = 0) -> tuple[RowTile, ...]:
    """The tiles to try, the best first; the last one is always possible. `element_bytes`: of the narrowest array. `slack`: elements that a
    tile may begin ahead of its row, so that all of it is aligned; a workgroup then has one row at a time.
    """
    rows = [i for i, axis in enumerate(axes) if not axis.is_reduction]
    reduced = [i for i, axis in enumerate(axes) if axis.is_reduction]
    if not reduced:
        return (RowTile((1,) * len(axes), 1, True),)
    main = max(range(len(axes)), key=lambda i: (axes[i].unit_stride_reads + axes[i].unit_stride_writes, i))
    threads_most = most_threads(spec)
    extents = [1] * len(axes)
    along = 1
    if main in rows:  # neighbours in memory are of different rows
        along = min(KEPT_ELEMENTS, next_power_of_two(axes[main].size or KEPT_ELEMENTS))
        extents[main] = along
    inner = main if main in reduced else max(reduced, key=lambda i: (axes[i].size or 0, i))
    others = [axes[i].size for i in reduced if i != inner]
    length, beside = axes[inner].size, None if None in others else prod(size for size in others if size is not None)
    vector = max(1, ACCESS_BYTES // element_bytes) if main in reduced else 1
    if length is not None and not slack:
        vector = min(vector, length & -length)
    found: list[RowTile] = []
    if length is not None and beside is not None:
        found += _whole(axes, extents, inner, (length, beside, along, vector, element_bytes), threads_most, spec, slack)
    return (*found, _part(axes, extents, inner, (length, along, vector), threads_most, spec))


def _whole(
    axes: tuple[AxisShape, ...],
    start: list[int],
    inner: int,
    shape: tuple[int, int, int, int, int],
    threads_most: int,
    spec: TargetSpec,
    slack: int,
) -> list[RowTile]:
    """The best two tiles of whole rows; none where rows do not fit a workgroup."""
    length, beside, along, vector, bytes_each = shape
    found: dict[RowTile, float] = {}
    for wide in {vector, max(1, vector // 2)}:
        threads = 1
        while threads <= threads_most // along:
            step = threads * wide
            padded = step * -(-(length + slack) // step)
            held = padded * beside // threads
            if held <= most_held(threads * along, spec):
                extents = [axis.size or 1 if axis.is_reduction else extent for axis, extent in zip(axes, start, strict=True)]
                extents[inner] = padded
                taken = threads * along if slack else _more_rows(axes, extents, threads * along, spec)
                tile = RowTile(tuple(extents), max(1, taken // spec.subgroup_size), True)
                piece = min(step, length) * bytes_each if along == 1 else along * bytes_each
                cost = padded / length * (1 + SECTOR_BYTES / piece) * (1 + HELD_WEIGHT * abs(log2(held / USUAL_HELD)))
                found[tile] = min(cost, found.get(tile, cost))
            threads *= 2
    return sorted(found, key=lambda tile: found[tile])[:2]


def most_held(threads: int, spec: TargetSpec) -> int:
    """Elements that a thread may hold where a workgroup has so many."""
    return min(MOST_HELD, spec.registers_per_unit // (2 * threads))


def _more_rows(axes: tuple[AxisShape, ...], extents: list[int], threads: int, spec: TargetSpec) -> int:
    """Let a workgroup of few threads take several rows, and a thread that holds little, while all units stay full; its threads then."""
    rows = [i for i, axis in enumerate(axes) if not axis.is_reduction]
    count = prod(axes[i].size or spec.compute_units * spec.max_threads_per_unit for i in rows)
    inner = next((i for i in reversed(rows) if extents[i] == 1 and axes[i].size != 1), None)
    while inner is not None and 2 * extents[inner] <= next_power_of_two(axes[inner].size or count):
        workgroups = count // (2 * prod(extents[i] for i in rows))
        if 2 * threads <= min(FEW_THREADS, most_threads(spec)) and workgroups >= spec.compute_units:
            threads *= 2
        elif 2 * prod(extents) > USUAL_HELD * threads or workgroups * threads < spec.compute_units * spec.max_threads_per_unit:
            break
        extents[inner] *= 2
    return threads


def _part(
    axes: tuple[AxisShape, ...], start: list[int], inner: int, shape: tuple[int | None, int, int], threads_most: int, spec: TargetSpec
) -> RowTile:
    """A tile of a part of one row, or of neighbours of rows."""
    length, along, vector = shape
    extents = list(start)
    threads = min(512, threads_most)
    most = threads // along * max(vector, USUAL_HELD // 2)
    extents[inner] = min(most, next_power_of_two(length or most))
    warps = max(1, min(threads, prod(extents) // max(1, vector)) // spec.subgroup_size)
    return RowTile(tuple(extents), warps, all(not a.is_reduction or a.size == e for a, e in zip(axes, extents, strict=True)))


def tiles_in_flight(tile: RowTile, length: int | None, element_bytes: int, spec: TargetSpec) -> int:
    """How many tiles of a row are loaded together, for `element_bytes` of what is read for each element; at least one."""
    held = prod(tile.extents) * element_bytes // (tile.warps * spec.subgroup_size)
    most = IN_FLIGHT_BYTES // max(1, held)
    if length is not None:
        most = min(most, length // max(tile.extents))
    return max(1, most)


def resident_walks(tile: RowTile, element_bytes: int, spec: TargetSpec) -> int:
    """How many workgroups are to share a unit while they walk rows, so that half of its threads are busy; 0 for the tools' choice, where a
    thread holds more than fits the registers that are left. `element_bytes`: of the widest array.
    """
    threads = tile.warps * spec.subgroup_size
    if prod(tile.extents) * max(4, element_bytes) > WALKED_BYTES * threads:
        return 0
    return spec.max_threads_per_unit // 2 // threads


def fits_workgroup(length: int | None, *, contiguous: bool, spec: TargetSpec) -> bool:
    """Whether the threads of a workgroup hold rows of this length, or those of neighbouring columns. None: only the runtime knows."""
    threads_most = most_threads(spec)
    return length is not None and length <= most_held(threads_most, spec) * threads_most // (1 if contiguous else KEPT_ELEMENTS)


def is_worth_it(rows: int | None, length: int | None, *, contiguous: bool, spec: TargetSpec) -> bool:
    """Whether computing on rows in one kernel is faster than in one for each step: they fit a workgroup, or there are enough of them for
    all units and each is read along the memory. None: only the runtime knows.
    """
    return fits_workgroup(length, contiguous=contiguous, spec=spec) or (contiguous and (rows is None or rows >= spec.compute_units))
