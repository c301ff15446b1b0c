"""What a compiled program may rely on of an argument's memory: classes of layouts, so that few variants serve all strides and bases.

Pitches are values, not types: a program compiled for one pitch of a class runs every pitch of it.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from treadle.records import dataclass

WIDEST_BYTES: Final = 16
"""No access and no descriptor copy gains from an alignment beyond this."""


@dataclass(frozen=True, slots=True)
class ArgumentLayout:
    """A class of layouts. `strides` in elements: 0 and 1 are fixed, None is any other value, known only when the program runs.

    `stride_divisor`: a power of two that divides every stride that is not fixed (elements). `align`: bytes that divide the address.
    """

    strides: tuple[int | None, ...]
    stride_divisor: int
    align: int

    def __str__(self) -> str:
        strides = ",".join("?" if stride is None else str(stride) for stride in self.strides)
        return f"[{strides}]/{self.stride_divisor}@{self.align}"


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """The layout that the program declares, where sizes that only the runtime knows make every row a multiple of 16 bytes.

    `size_divisor`: a power of two that divides the last extent.
    """

    size_divisor: int

    def __str__(self) -> str:
        return f"rows/{self.size_divisor}"


Layouts: TypeAlias = tuple[ArgumentLayout | AlignedRows | None, ...]
"""One entry an argument; None where the layout is the one that the program declares."""


def _power_of_two(value: int) -> int:
    """The largest power of two up to 16 that divides `value`."""
    return min(value & -value or WIDEST_BYTES, WIDEST_BYTES)


def aligned_rows(shape: Sequence[int], element_bytes: int) -> AlignedRows | None:
    """The class of a dense array whose rows are whole multiples of 16 bytes; None for others."""
    divisor = WIDEST_BYTES // element_bytes
    return AlignedRows(divisor) if divisor > 1 and 0 not in shape and shape[-1] % divisor == 0 else None


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    walked = sorted((stride, extent) for stride, extent in zip(strides, shape, strict=True) if stride and extent > 1)
    return any(outer < inner * extent for (inner, extent), (outer, _) in pairwise(walked))


def normal_strides(shape: Sequence[int], strides: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """The strides, with those of extents of 1, which are never used, replaced by ones that restrict nothing.

    A stride of 1 stays where no other axis has it: it says along which axis the array lies.
    """
    whole = max(1, WIDEST_BYTES // element_bytes)
    contiguous = any(stride == 1 and extent > 1 for stride, extent in zip(strides, shape, strict=True))
    normal = [stride if extent > 1 else whole for stride, extent in zip(strides, shape, strict=True)]
    if not contiguous:
        for axis in reversed(range(len(normal))):
            if shape[axis] <= 1 and strides[axis] == 1:
                normal[axis] = 1
                break
    return tuple(normal)


@lru_cache(maxsize=1024)
def classify(shape: tuple[int, ...], strides: tuple[int, ...], address: int, element_bytes: int) -> tuple[ArgumentLayout, tuple[int, ...]]:
    """`layout_class` of an array with any non-negative strides, and its normal strides. `address` modulo 16 is enough."""
    normal = normal_strides(shape, strides, element_bytes)
    return layout_class(shape, normal, address, element_bytes), normal


def layout_class(shape: Sequence[int], strides: Sequence[int], address: int, element_bytes: int) -> ArgumentLayout:
    """The class of an array of normal, non-negative strides in elements whose first element is at `address`, a multiple of its size.

    The class keeps which axis has unit stride (the last, where several have), which are broadcasts, and which rules of 16 bytes hold:
    an address that is off 16 bytes limits every access as much as a pitch does, so a better pitch is not told apart then.
    """
    unit = max((axis for axis, stride in enumerate(strides) if stride == 1), key=lambda axis: (shape[axis] > 1, axis), default=None)
    fixed = tuple(1 if axis == unit else 0 if stride == 0 else None for axis, stride in enumerate(strides))
    free = [stride for stride, known in zip(strides, fixed, strict=True) if known is None]
    pitch = min((_power_of_two(stride * element_bytes) for stride in free), default=WIDEST_BYTES)
    if _overlaps(shape, strides):  # descriptor copies take no such array: nothing may look as if they did
        pitch = element_bytes
    align = _power_of_two(address)
    if align < WIDEST_BYTES:
        align = pitch = min(align, pitch)
    # An element may be wider than what divides its pitch in bytes only if it is no power of two, which none is.
    return ArgumentLayout(fixed, max(1, pitch // element_bytes) if free else 1, align)
