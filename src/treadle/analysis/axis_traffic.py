"""What memory traffic there is along the axes of a loop nest."""

from math import prod

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.group_runs import runs_along
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access, Axis
from treadle.plan.expr import constant
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.tile_config import UNKNOWN_EXTENT


def bytes_touched(nest: LoopNest, access: Access) -> int:
    """Size of the array along the axes it depends on, of an image once; unknown extents count as 4096."""
    if access.image is not None and (count := access.image.elements.as_int()) is not None:
        return element_bytes(access.element) * count
    walked = [number for number, axis in enumerate(nest.axes) if nest.stride_along(access, axis) != constant(0)]
    runs = {number: found for number in walked if (found := runs_along(nest, number)) is not None}
    shared = {found.block for found in runs.values()}  # by the groups, all of whose elements are counted along the axis
    bounds = [
        runs[number].most if number in runs else nest.axes[number].bound for number in walked if nest.axes[number].block not in shared
    ]
    return element_bytes(access.element) * prod(bound.as_int() or UNKNOWN_EXTENT for bound in bounds)


def axis_shapes(nest: LoopNest) -> tuple[AxisShape, ...]:
    """What the pointwise and reduction tilings need to know of each axis."""
    touched = [(access, bytes_touched(nest, access)) for access in nest.accesses]

    def shape(axis: Axis) -> AxisShape:
        if axis.block:
            return AxisShape(1, False, 0, 0)  # a workgroup is of one block
        along = [(access.is_result, moved) for access, moved in touched if nest.stride_along(access, axis) == constant(1)]
        reads, writes = (sum(moved for is_result, moved in along if is_result is which) for which in (False, True))
        return AxisShape(axis.bound.as_int(), axis.is_reduction, reads, writes)

    return tuple([shape(axis) for axis in nest.axes])
