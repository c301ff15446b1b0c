"""Tiles of reductions that are no contractions: enough loads in flight on every unit, whatever is reduced.

A unit waits for memory unless about as many bytes are on their way to it as its threads ask for with `USUAL_HELD` elements each. So few
rows have many threads each, and what a thread holds at once depends on how many accumulators each element has.
"""

from math import prod

from treadle.machine.spec import TargetSpec
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.row_tiles import ACCESS_BYTES, USUAL_HELD, row_tiles
from treadle.plan.tile_config import UNKNOWN_EXTENT, most_threads, next_power_of_two, usual_threads

PARTS_IN_LANES = range(17, 65)
"""Of a short reduction across rows, such as merging parts: lengths that threads share where launches overlap. Each thread has whole
accesses of twice as many elements, and half as many threads find room beside the kernel before: merging 21, 31, 32 and 33 parts of
contractions took 0.8, 0.5, 1.3 and 0.5 us less on an H200, of 9 to 29 for both kernels.
"""
LINE_BYTES = 128
"""What neighbouring threads read of neighbouring columns: whole lines."""


def reduction_tile(
    axes: tuple[AxisShape, ...], spec: TargetSpec, separable: bool, *, element_bytes: int = 4, outputs: int = 1
) -> tuple[tuple[int, ...], int]:
    """Tile extents and warps. `element_bytes`: of what is reduced; `outputs`: accumulators of each element.

    `separable`: partial results can be combined. Otherwise the reduced axes are walked one element at a time.
    """
    main = max(range(len(axes)), key=lambda i: _traffic(axes, i))
    if not separable:
        return _one_at_a_time(axes, spec)
    if axes[main].is_reduction and outputs == 1:
        whole = row_tiles(axes, element_bytes, spec)[0]
        if whole.is_whole and prod(whole.extents) <= USUAL_HELD * whole.warps * spec.subgroup_size:
            return whole.extents, whole.warps
    return _parts(axes, main, element_bytes, spec, outputs)


def _traffic(axes: tuple[AxisShape, ...], i: int) -> tuple[int, int]:
    return (axes[i].unit_stride_reads, i)


def _one_at_a_time(axes: tuple[AxisShape, ...], spec: TargetSpec) -> tuple[tuple[int, ...], int]:
    tile = [1] * len(axes)
    if parallel := [i for i, a in enumerate(axes) if not a.is_reduction]:
        inner = max(parallel, key=lambda i: _traffic(axes, i))
        tile[inner] = min(256, next_power_of_two(axes[inner].size or 256))
    return tuple(tile), max(1, min(usual_threads(spec), prod(tile)) // spec.subgroup_size)


def _parts(axes: tuple[AxisShape, ...], main: int, element_bytes: int, spec: TargetSpec, outputs: int) -> tuple[tuple[int, ...], int]:
    """A tile that loops move along the reduced axes: long along the unit-stride axis, or of a line's columns and many rows."""
    tile = [1] * len(axes)
    words = max(4, element_bytes) // 4
    each = max(ACCESS_BYTES // 4, 1 << (USUAL_HELD // outputs).bit_length() - 1) // words
    length = prod(axis.size or UNKNOWN_EXTENT for axis in axes if axis.is_reduction)
    is_short = spec.overlapping_launches and not axes[main].is_reduction and length in PARTS_IN_LANES
    if not axes[main].is_reduction:
        tile[main] = min(max(1, LINE_BYTES // element_bytes), next_power_of_two(axes[main].size or LINE_BYTES))
    kept = [-(-(a.size or UNKNOWN_EXTENT) // extent) for a, extent in zip(axes, tile, strict=True) if not a.is_reduction]
    room = each * _threads(prod(kept), spec)
    if is_short:
        each, room = 2 * each, each * usual_threads(spec)
    # Reduced axes first, from the one of unit stride; what is left goes to more columns or rows.
    reduced = sorted((i for i, a in enumerate(axes) if a.is_reduction), key=lambda i: _traffic(axes, i), reverse=True)
    others = sorted((i for i, a in enumerate(axes) if not a.is_reduction), key=lambda i: _traffic(axes, i), reverse=True)
    for i in (*reduced, *others):
        more = max(1, room // prod(tile))
        if i in others:
            more = min(more, max(2 if is_short else 1, prod(kept) // spec.compute_units))
        extent = tile[i] * (1 << more.bit_length() - 1)
        tile[i] = max(tile[i], min(extent, next_power_of_two(axes[i].size or extent)))
    threads = max(spec.subgroup_size, prod(tile) // each)
    return tuple(tile), max(1, threads // spec.subgroup_size)


def _threads(workgroups: int, spec: TargetSpec) -> int:
    """Threads of each of so many workgroups, so that those on a unit are half of what it holds; not fewer than usual."""
    shared = max(1, round(workgroups / spec.compute_units))
    return max(usual_threads(spec), min(most_threads(spec), next_power_of_two(spec.max_threads_per_unit // 2 // shared)))
