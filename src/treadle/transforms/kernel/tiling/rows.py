"""Tiling of kernels of rows: reductions over the same dimensions, and what is computed between and behind them.

A tile holds several rows, or a part of one. Where it holds whole rows, each array is read once and all else is in registers. Where it does
not, every reduction is a loop along the rows, and what it reads is computed anew from the arrays; so is what is stored.
"""

from collections.abc import Sequence

from treadle.analysis.indexing import structured
from treadle.analysis.kernel_slices import stored_part
from treadle.analysis.row_structure import Rows
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.plan.expr import Expr
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.elementwise import frame_of, grid_of, place_tiles
from treadle.transforms.kernel.tiling.loops import reduction_loops
from treadle.transforms.kernel.tiling.reduction import reduced_values


def build_rows(kernel: KernelBuilder, extents: Sequence[int]) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid."""
    nest, rows = kernel.nest, kernel.nest.rows
    if rows is None:
        raise InternalError("a kernel of rows is wanted")
    parallel = [i for i, axis in enumerate(nest.axes) if not axis.is_reduction]
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    place_tiles(kernel, parallel, [extents[i] for i in parallel])
    frame = frame_of(range(len(nest.axes)), extents)
    loops = [(i, extents[i]) for i in sorted(reduced, key=lambda i: extents[i])]
    for op in rows.members:
        _compute(kernel, rows, op, frame, loops)
    _store(kernel, frame, loops)
    return grid_of(nest, parallel, [extents[i] for i in parallel])


def _compute(kernel: KernelBuilder, rows: Rows, op: Operation, frame: Frame, loops: Sequence[tuple[int, int]]) -> None:
    """The results of one member, as far as there is one a row; what is computed for whole rows is left to what reads it."""
    view = structured(op)
    if view is None:
        raise InternalError(f"member {op} is not structured")
    dims = kernel.nest.consumer_dims[op]
    if not view.is_parallel:
        values = reduced_values(kernel, view, dims, frame, loops)
    elif not rows.is_whole(op):
        kept = frame.with_unit([axis for axis, _ in loops])
        values = kernel.body_values(view, dims, kept, view.yielded())
    else:
        return
    kernel.known.update(zip(op.results, values, strict=True))


def _store(kernel: KernelBuilder, frame: Frame, loops: Sequence[tuple[int, int]]) -> None:
    """The kernel's results: those of one element a row, then whole rows, all in one loop along them."""
    results = [(number, stored_part(value)[0]) for number, value in enumerate(kernel.yielded())]
    whole = [(number, value) for number, value in results if value not in kernel.known]
    kept = frame.with_unit([axis for axis, _ in loops])
    for number, value in results:
        if value in kernel.known:
            kernel.store_result(number, kept)

    def step(_: Sequence[SSAValue]) -> list[SSAValue]:
        for number, value in whole:
            kernel.store(number, kernel.value(value, kernel.result_dims(value), frame), kernel.place_of(number), frame)
        return []

    if whole:
        reduction_loops(kernel, loops, [], step)
