"""Tiling of all-parallel kernels, and the grid shared with reductions."""

from collections.abc import Sequence

from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.root_positions import identity
from treadle.dialects import tile
from treadle.plan.expr import Expr, ceil_div, constant, product
from treadle.transforms.kernel.tiling.builder import UNIT, Frame, KernelBuilder
from treadle.transforms.kernel.tiling.index_math import delinearize


def grid_of(nest: LoopNest, axes: Sequence[int], extents: Sequence[int]) -> tuple[Expr, Expr, Expr]:
    """One linear grid over the tiles of some axes."""
    counts = [ceil_div(nest.axes[a].bound, e) for a, e in zip(axes, extents, strict=True)]
    return product(counts), constant(1), constant(1)


def place_tiles(kernel: KernelBuilder, axes: Sequence[int], extents: Sequence[int]) -> None:
    """Set the offset of each axis from the workgroup's id in the grid of `grid_of`."""
    index = kernel.index
    counts = [index.expression(ceil_div(kernel.nest.axes[a].bound, e)) for a, e in zip(axes, extents, strict=True)]
    places = delinearize(index, index.insert(tile.ProgramIdOp(0)), counts) if axes else []
    for axis, extent, place in zip(axes, extents, places, strict=True):
        kernel.offset[axis] = index.multiply(place, extent)
    kernel.settle_blocks()


def frame_of(axes: Sequence[int], extents: Sequence[int]) -> Frame:
    """The register tile over the axes that are taken more than one element at a time."""
    tiled = [(a, e) for a, e in zip(axes, extents, strict=True) if e > 1]
    if not tiled:
        return Frame((UNIT,), (1,))
    return Frame(tuple(a for a, _ in tiled), tuple(e for _, e in tiled))


def build_elementwise(kernel: KernelBuilder, extents: Sequence[int]) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid."""
    nest = kernel.nest
    axes = range(len(nest.axes))
    place_tiles(kernel, axes, extents)
    frame = frame_of(axes, extents)
    root = nest.root
    values = kernel.body_values(root, identity(root.rank), frame, root.yielded())
    for result, value in zip(root.op.results, values, strict=True):
        kernel.known[result] = value
    kernel.finish_consumers(frame)
    return grid_of(nest, axes, extents)
