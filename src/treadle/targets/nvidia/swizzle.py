"""Recognising the shared layouts that Hopper's tensor copies and matrix instructions know: rows of 128, 64 or 32 bytes, swizzled."""

from functools import lru_cache

from treadle.artifact import Swizzle
from treadle.errors import InternalError
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled
from treadle.records import dataclass

ROW_BYTES = (128, 64, 32)
SLOT_ALIGN: dict[Swizzle, int] = {"none": 128, "32B": 256, "64B": 512, "128B": 1024}
"""What boxes are aligned to in bytes: eight rows, after which a swizzle repeats."""


@dataclass(frozen=True, slots=True)
class SwizzledRows:
    """A matrix in shared memory as column blocks of `row_bytes` wide rows; `inner` is the contiguous dimension, `outer` the other.

    `row_bytes` 0: dense rows of the whole inner extent, without swizzle.
    """

    inner: int
    outer: int
    row_bytes: int

    @property
    def name(self) -> Swizzle:
        """The name of the swizzle in a tensor map."""
        names: dict[int, Swizzle] = {0: "none", 32: "32B", 64: "64B", 128: "128B"}
        return names[self.row_bytes]


@lru_cache(maxsize=512)
def recognise(layout: SharedLayout, element_bytes: int) -> SwizzledRows:
    """The form of a rank-2 layout; raises InternalError, naming the layout, for any other."""
    if layout.rank == 2:
        for inner in (0, 1):
            order = (inner, 1 - inner)
            for row_bytes in ROW_BYTES:
                if layout.shape[inner] * element_bytes % row_bytes == 0 and layout == swizzled(
                    layout.shape, order, element_bytes, row_bytes
                ):
                    return SwizzledRows(inner, 1 - inner, row_bytes)
        for inner in (1, 0):
            dense = layout == row_major(layout.shape, (inner, 1 - inner))
            unit = tuple(int(axis != inner) for axis in range(2))
            if dense and (layout.shape[1 - inner] == 1 or layout.offset_of(unit) == layout.shape[inner]):
                return SwizzledRows(inner, 1 - inner, 0)
    raise InternalError(f"the hardware knows no such shared layout ({element_bytes}-byte elements, {layout.shape}): {layout.to_lists()}")
