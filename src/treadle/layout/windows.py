"""How the dimensions of a folded view are walked over the axes of an array: `m` over the pixels of images, `k` over windows and channels.

A convolution is a product of matrices whose left one repeats elements of an image: row `m` is an output pixel, column `k` an element of
its window. No such matrix is stored. A folded view has its shape, and finds element `(m, k)` by taking `m` and `k` apart into parts, each
of which steps along one axis of the array:

    NHWC, 3x3, stride 1, padding 1:    m = (n, oh, ow),  k = (kh, kw, c)
    along h: oh + kh,  inside where 1 <= oh + kh < H + 1;    along w: ow + kw;    along n: n;    along c: c

Source: the mapping is that of implicit GEMM, S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning" (2014), section 3.
"""

from collections.abc import Sequence
from functools import cached_property
from math import gcd, prod
from typing import Any

from treadle.layout.bits import power_of_two_part
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class FoldedAxis:
    """An axis of the array: elements from one of its places to the next. What lies outside `low <= place < high` is zero, where `high` is
    not 0: an axis without bounds is never left within the view's sizes.
    """

    pitch: int
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A digit of an index: `extent` values, each `step` places along `axis`. 0: the first part of a dimension, of unknown extent."""

    axis: int
    extent: int
    step: int


@dataclass(frozen=True)
class Windows:
    """The axes of the array that are folded, and for each dimension of the view its parts, outermost first; none of a dimension that has a
    stride of its own.
    """

    axes: tuple[FoldedAxis, ...]
    dims: tuple[tuple[Part, ...], ...]

    def spans(self, dim: int) -> tuple[int, ...]:
        """For each part of a dimension, how many indices it stays the same for."""
        parts = self.dims[dim]
        return tuple(prod(part.extent for part in parts[number + 1 :]) for number in range(len(parts)))

    def step(self, dim: int) -> int:
        """Elements from one index of a folded dimension to the next, while its last part lasts."""
        last = self.dims[dim][-1]
        return last.step * self.axes[last.axis].pitch

    def run(self, dim: int) -> int:
        """Indices of a folded dimension that follow one another evenly, the first run beginning at 0."""
        parts = self.dims[dim]
        return parts[-1].extent if len(parts) > 1 else 0

    def divisor(self, dim: int) -> int:
        """A power of two that divides the distance from any index of a folded dimension that begins a run to any other one that does; 0
        where there is one run.
        """
        found = 0
        for part in self.dims[dim][:-1]:
            found = gcd(found, part.step * self.axes[part.axis].pitch)
        return power_of_two_part(found) if found else 0

    @cached_property
    def checked(self) -> tuple[int, ...]:
        """The axes that a place may leave, whatever the first parts are."""
        return tuple(number for number, axis in enumerate(self.axes) if axis.high and not self._stays_inside(number))

    def _stays_inside(self, number: int) -> bool:
        parts = [part for dim in self.dims for part in dim if part.axis == number]
        last = sum((part.extent - 1) * part.step for part in parts)
        return self.axes[number].low <= 0 and last < self.axes[number].high and all(part.extent for part in parts)

    def taken_apart(self, dim: int, index: Any) -> tuple[tuple[int, Any], ...]:
        """The axis and the steps along it of each part of an index, or of an array of them."""
        found: list[tuple[int, Any]] = []
        for number, (part, span) in enumerate(zip(self.dims[dim], self.spans(dim), strict=True)):
            digit = index // span if number == 0 else index // span % part.extent
            found.append((part.axis, digit * part.step))
        return tuple(found)


def box_of(windows: Windows, dim: int, rows: int) -> tuple[tuple[int, int, int], ...] | None:
    """The box of the array that `rows` indices of a dimension are, beginning at a multiple of `rows`: axis, count and step of each part,
    innermost first. None where they are no box.
    """
    found: list[tuple[int, int, int]] = []
    parts = windows.dims[dim]
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        taken = rows if number == 0 else min(rows, part.extent)
        if rows % taken or (number and part.extent % taken):
            return None
        found.append((part.axis, taken, part.step))
        rows //= taken
    return tuple(found)


def listed(windows: Windows) -> tuple[list[list[int]], list[list[list[int]]]]:
    """Axes and dimensions as numbers."""
    axes = [[axis.pitch, axis.low, axis.high] for axis in windows.axes]
    return axes, [[[part.axis, part.extent, part.step] for part in dim] for dim in windows.dims]


def windows_of(axes: Sequence[Sequence[int]], dims: Sequence[Sequence[Sequence[int]]]) -> Windows:
    """The inverse of `listed`. Raises ValueError for what is no folding."""
    if any(len(axis) != 3 for axis in axes) or any(len(part) != 3 for dim in dims for part in dim):
        raise ValueError("an axis is [pitch, low, high], a part [axis, extent, step]")
    if any(not 0 <= part[0] < len(axes) or part[1] < 0 or part[2] < 1 for dim in dims for part in dim):
        raise ValueError("a part steps forward along one of the axes")
    if any(part[1] < 1 for dim in dims for part in dim[1:]):
        raise ValueError("every part but the first of a dimension has an extent")
    return Windows(tuple(FoldedAxis(*axis) for axis in axes), tuple(tuple(Part(*part) for part in dim) for dim in dims))
