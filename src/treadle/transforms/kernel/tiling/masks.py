"""Which elements of a tile are within the sizes of the axes that it is cut from."""

from collections.abc import Iterator, Sequence

from treadle.dialects import tile
from treadle.ir.core import Attribute, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.scalars import dense


def tail_masks(kernel: KernelBuilder, shape: Sequence[int], frame: Frame, axes: Sequence[int]) -> Iterator[SSAValue]:
    """For each of `axes` that its size does not fill: a tile of i1 that tells what of `shape` is before the axis' end."""
    index = kernel.index
    for j, (axis, extent) in enumerate(zip(frame.axes, frame.extents, strict=True)):
        if axis not in axes or extent == 1:
            continue
        ahead, behind = kernel.ends.get(axis, (False, True))
        size = kernel.axis_size(axis)
        is_shifted = axis in kernel.walks and kernel.walks[axis].slack > 0
        if (known := size.as_int()) is not None and known % extent == 0 and not is_shifted:
            continue
        unit = [extent if i == j else 1 for i in range(len(shape))]
        if ahead:
            first = index.insert(
                tile.SplatOp(index.subtract(index.constant(0), kernel.offset[axis]), builtin.TensorType(builtin.i32, unit))
            )
            steps = index.insert(tile.IotaOp(j, builtin.TensorType(builtin.i32, unit)))
            inside = index.insert(arith.CmpiOp(steps, first, "sge"))
            yield index.insert(tile.BroadcastOp(inside, builtin.TensorType(builtin.i1, list(shape)))) if unit != list(shape) else inside
        if not behind:
            continue
        room = index.subtract(index.expression(size), kernel.offset[axis])
        if index.element != builtin.i32:  # the elements' type need only tell what is within the tile
            room = index.minimum(room, index.constant(extent))
        steps = index.insert(tile.IotaOp(j, builtin.TensorType(builtin.i32, unit)))
        limit = index.insert(tile.SplatOp(room, builtin.TensorType(builtin.i32, unit)))
        inside = index.insert(arith.CmpiOp(steps, limit, "slt"))
        yield index.insert(tile.BroadcastOp(inside, builtin.TensorType(builtin.i1, list(shape)))) if unit != list(shape) else inside


def mask_tail(kernel: KernelBuilder, value: SSAValue, frame: Frame, axes: Sequence[int], neutral: Attribute) -> SSAValue:
    """`value` with the neutral element wherever an axis that its size does not fill is past its end."""
    shape, element = tile.tile_type(value).get_shape(), tile.tile_type(value).element_type
    for whole in tail_masks(kernel, shape, frame, axes):
        value = kernel.index.insert(arith.SelectOp(whole, value, kernel.index.insert(dense(neutral, element, shape))))
    return value


def select_inside(
    kernel: KernelBuilder, frame: Frame, axes: Sequence[int], inside: Sequence[SSAValue], outside: Sequence[SSAValue]
) -> list[SSAValue]:
    """`inside` before the ends of the axes, `outside` past them, tile by tile; all of the frame's extents."""
    found = list(inside)
    for whole in tail_masks(kernel, frame.extents, frame, axes):
        found = [kernel.index.insert(arith.SelectOp(whole, new, old)) for new, old in zip(found, outside, strict=True)]
    return found
