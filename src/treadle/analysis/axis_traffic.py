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


def axis_shape(nest: LoopNest, axis: Axis) -> AxisShape:
    """What the pointwise and reduction tilings need to know of an axis."""

    if axis.block:
        return AxisShape(1, False, 0, 0)  # a workgroup is of one block

    def total(accesses: list[Access]) -> int:
        return sum(bytes_touched(nest, a) for a in accesses if nest.stride_along(a, axis) == constant(1))

    reads = [a for a in nest.accesses if not a.is_result]
    writes = [a for a in nest.accesses if a.is_result]
    return AxisShape(axis.bound.as_int(), axis.is_reduction, total(reads), total(writes))
