"""Tiles of kernels that compute each element for itself, and what an axis is to their choice and to that of reductions. No IR."""

from math import prod
from typing import Final

from treadle.machine.spec import TargetSpec
from treadle.plan.tile_config import next_power_of_two, usual_threads
from treadle.records import dataclass

MOST_BEHIND: Final = 1 / 4
"""Of a row's length, what tiles may have behind its end, where they have nothing to do."""
SECTOR_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class AxisShape:
    """One axis for the pointwise and reduction tilings: extent, role, and how many bytes are read and written along it as unit-stride
    axis.
    """

    size: int | None
    is_reduction: bool
    unit_stride_reads: int
    unit_stride_writes: int


def pointwise_tile(axes: tuple[AxisShape, ...], element_bytes: int, spec: TargetSpec) -> tuple[tuple[int, ...], int]:
    """Tile extents (1: one at a time) and warps for an all-parallel kernel.

    The unit-stride axes of reads and writes are tiled; where they differ (transposes) both get a side long enough for whole memory sectors.
    """
    heaviest = max((a.unit_stride_reads + a.unit_stride_writes for a in axes), default=0)
    # Small side inputs (a row's maximum, a bias) must not turn a streaming kernel into a transposing one.
    unit = [i for i, a in enumerate(axes) if 8 * (a.unit_stride_reads + a.unit_stride_writes) > heaviest]
    tile = [1] * len(axes)
    elements = 2048 * 4 // max(element_bytes, 2)
    if not axes:
        return (), 1
    main = max(range(len(axes)), key=lambda i: (axes[i].unit_stride_writes * 2 + axes[i].unit_stride_reads, i))
    others = [i for i in unit if i != main]
    if others:
        second = max(others, key=lambda i: axes[i].unit_stride_reads + axes[i].unit_stride_writes)
        for i in (main, second):
            tile[i] = min(64, next_power_of_two(axes[i].size or 64))
    else:
        tile[main] = _along(axes[main].size or elements, elements, element_bytes, spec)
        # Short rows: take several of them.
        for i in reversed(range(main)):
            room = elements // prod(tile)
            if room > 1:
                tile[i] = min(room, next_power_of_two(axes[i].size or room))
                break
    threads = max(spec.subgroup_size, min(usual_threads(spec), prod(tile) // 4))
    return tuple(tile), max(1, threads // spec.subgroup_size)


def _along(size: int, elements: int, element_bytes: int, spec: TargetSpec) -> int:
    """How long a tile of at most so many elements is along rows of a size: shorter than it could be where that leaves much less of it
    behind the rows' ends. Each piece of a row may take a sector more than its bytes.
    """
    longest, each = min(elements, next_power_of_two(size)), max(element_bytes, 2)

    def covered(length: int) -> int:
        return -(-size // length) * length

    if covered(longest) <= (1 + MOST_BEHIND) * size:
        return longest
    lengths = [longest >> times for times in range(longest.bit_length()) if longest >> times >= min(longest, spec.line_bytes // each)]
    return min(lengths, key=lambda length: covered(length) * (1 + SECTOR_BYTES / (length * each)))


def halved(tile: tuple[int, ...], times: int) -> tuple[int, ...]:
    """The tile with its longest side halved so many times, down to one element."""
    found = list(tile)
    for _ in range(times):
        if found:
            longest = max(range(len(found)), key=lambda i: found[i])
            found[longest] = max(1, found[longest] // 2)
    return tuple(found)
