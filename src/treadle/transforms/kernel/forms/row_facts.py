"""What the forms of reductions ask of rows: how long they are, where they begin, what is read for each element."""

from treadle.analysis.axis_traffic import axis_shapes
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.row_lines import row_line
from treadle.plan.expr import constant
from treadle.plan.row_tiles import LONG_ROW


def _walked(problem: KernelProblem) -> int | None:
    """The number of the reduced axis along which most memory lies; None where the neighbours in memory are of different rows."""
    shapes = axis_shapes(problem.nest)
    found = max(range(len(shapes)), key=lambda i: (shapes[i].unit_stride_reads + shapes[i].unit_stride_writes, i), default=None)
    return found if found is not None and shapes[found].is_reduction and shapes[found].unit_stride_reads else None


def longest_reduced(problem: KernelProblem) -> int | None:
    """Elements of a row along the axis that is walked; None where only the runtime knows, or there is no such axis."""
    axis = _walked(problem)
    return None if axis is None else problem.nest.axes[axis].bound.as_int()


def line_of_rows(problem: KernelProblem) -> int:
    """Elements of the aligned lines that tiles of long rows begin with, as rows begin anywhere; 0 where they begin with the rows."""
    axis = _walked(problem)
    if axis is None or ((length := problem.nest.axes[axis].bound.as_int()) is not None and length < LONG_ROW):
        return 0
    found = row_line(problem.nest, axis)
    return 0 if found is None else found.elements


def read_bytes(problem: KernelProblem) -> int:
    """What is read for each element of a row, in bytes."""
    axis = _walked(problem)
    if axis is None:
        return 4
    along = [a for a in problem.nest.accesses if not a.is_result and problem.nest.stride_along(a, problem.nest.axes[axis]) != constant(0)]
    return sum(element_bytes(access.element) for access in along) or 4


def walks_longest(problem: KernelProblem, tile: tuple[int, ...]) -> bool:
    """Whether the longest side of a tile lies along the axis that is walked."""
    axis = _walked(problem)
    return axis is not None and tile[axis] == max(tile) > 1
