"""Host buffers while a program is built: memory seen through shape and strides, and the views that reshapes and slices make of it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import dispatch
from treadle.ir.builtin import element_of
from treadle.ir.core import Attribute, SSAValue
from treadle.plan.expr import Expr, constant, product
from treadle.plan.expr_atoms import power_of_two
from treadle.records import dataclass

ALLOC_ALIGN = 256


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a part of `whole` lies that differs from block to block: first element and step along each of its axes, and those that stay."""

    whole: "Buffer"
    offsets: tuple[Expr, ...]
    steps: tuple[Expr, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """`base` is the program's value that owns the memory; `offset` and `strides` in elements, `align` in bytes of the base.

    `owned`: an allocation of this program. `value` is the program's value for exactly this view, None while nobody needed one.
    `cut`: of what differs from block to block; the host sees the whole that it is cut from.
    """

    base: SSAValue
    element: Attribute
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    base_align: int
    bytes_per_element: int
    owned: bool
    base_elements: Expr
    value: SSAValue | None = None
    cut: Cut | None = None

    @property
    def whole(self) -> "Buffer":
        """What the host sees."""
        return self if self.cut is None else self.cut.whole

    @property
    def align(self) -> int:
        """Known alignment of the first element in bytes."""
        return min(self.base_align, self.offset.divisor() * power_of_two(self.bytes_per_element))

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps (extents of 1 may have any stride)."""
        expected = constant(1)
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected = expected * size
        return True

    @property
    def is_whole(self) -> bool:
        """All of the base, row-major."""
        return self.offset == 0 and self.is_contiguous and product(self.shape) == self.base_elements


def row_major(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Strides in elements of a row-major array."""
    strides: list[Expr] = []
    step = constant(1)
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def whole_buffer(
    base: SSAValue, tensor: SSAValue, shape: Sequence[Expr], align: int, *, owned: bool, strides: Sequence[Expr] | None = None
) -> Buffer:
    """The buffer of a fresh base: `tensor` gives the element type."""
    element = base.type.element_type if isinstance(base.type, dispatch.BufferType) else base.type
    sizes = tuple(shape)
    return Buffer(
        base=base,
        element=element,
        offset=constant(0),
        shape=sizes,
        strides=tuple(strides) if strides is not None else row_major(sizes),
        base_align=align,
        bytes_per_element=element_bytes(element_of(tensor.type)),
        owned=owned,
        base_elements=product(sizes),
        value=base,
    )


def sliced(buffer: Buffer, offsets: Sequence[Expr], sizes: Sequence[Expr], strides: Sequence[Expr], kept: Sequence[int]) -> Buffer:
    """A slice; `kept` are the axes that stay (the others have size 1)."""
    offset = buffer.offset
    for start, stride in zip(offsets, buffer.strides, strict=True):
        offset = offset + start * stride
    return replace(
        buffer,
        offset=offset,
        shape=tuple(sizes[axis] for axis in kept),
        strides=tuple(buffer.strides[axis] * strides[axis] for axis in kept),
        value=None,
    )


def cut_out(buffer: Buffer, offsets: Sequence[Expr], sizes: Sequence[Expr], strides: Sequence[Expr], kept: Sequence[int]) -> Buffer:
    """The same slice where it differs from block to block, or its source does."""
    rank = len(buffer.shape)
    before = buffer.cut or Cut(buffer, (constant(0),) * rank, (constant(1),) * rank, tuple(range(rank)))
    starts, steps = list(before.offsets), list(before.steps)
    for axis, offset, stride in zip(before.kept, offsets, strides, strict=True):
        starts[axis] = starts[axis] + offset * steps[axis]
        steps[axis] = steps[axis] * stride
    cut = Cut(before.whole, tuple(starts), tuple(steps), tuple(before.kept[axis] for axis in kept))
    return replace(sliced(buffer, offsets, sizes, strides, kept), cut=cut)


def expanded(buffer: Buffer, groups: Sequence[Sequence[int]], shape: Sequence[Expr]) -> Buffer:
    """Each axis split into those of its group; always a view."""
    strides: list[Expr] = []
    for axis, group in enumerate(groups):
        inner = row_major([shape[position] for position in group])
        strides.extend(step * buffer.strides[axis] for step in inner)
    # expand_shape may turn a rank-0 tensor into extents of 1: no group, every stride is free.
    strides.extend(constant(1) for _ in range(len(shape) - len(strides)))
    return replace(buffer, shape=tuple(shape), strides=tuple(strides), value=None)


def collapsed(buffer: Buffer, groups: Sequence[Sequence[int]]) -> Buffer | None:
    """The axes of each group merged; None where the strides of a group are not those of one axis."""
    shape: list[Expr] = []
    strides: list[Expr] = []
    for group in groups:
        axes = [axis for axis in group if buffer.shape[axis] != 1]
        for outer, inner in pairwise(axes):
            if buffer.strides[outer] != buffer.strides[inner] * buffer.shape[inner]:
                return None
        shape.append(product(buffer.shape[axis] for axis in group))
        strides.append(buffer.strides[axes[-1]] if axes else constant(1))
    return replace(buffer, shape=tuple(shape), strides=tuple(strides), value=None)


def reshaped(buffer: Buffer, shape: Sequence[Expr]) -> Buffer | None:
    """Any other shape of as many elements; None where the buffer has gaps."""
    if not buffer.is_contiguous:
        return None
    return replace(buffer, shape=tuple(shape), strides=row_major(shape), value=None)
