"""Merging of parts by the last workgroup: each stores its part of the root's result, and the last one goes on with all of them merged.

The parts are joined in their order, whichever workgroup is last: every run gives the same bits.
"""

from treadle.analysis.kernel_slices import stored_part
from treadle.dialects import dispatch, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import builtin, linalg, scf
from treadle.plan.expr import ceil_div, product
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.joins import join_by
from treadle.transforms.kernel.tiling.scalars import Tile


def finish(kernel: KernelBuilder, frame: Frame) -> None:
    """Compute the consumers of the root and store the results, over the tile `frame` of the result; where there are parts to merge, as the
    last workgroup does.
    """
    marked = kernel.kernel.attributes.get(dispatch.MERGE)
    if not isinstance(marked, builtin.IntegerAttr):
        kernel.finish_consumers(frame)
        return
    index = kernel.index
    kernel.counters = product([ceil_div(kernel.axis_bound(axis), extent) for axis, extent in _tiled(kernel, frame)])
    kernel.store_result(0, frame)
    last = index.insert(tile.ArriveLastOp(_counters(kernel, marked.value.data), [_tile_number(kernel, frame)], _count(kernel)))
    block = Block()
    index.builder.insert(scf.IfOp(last, [], Region(block)))
    place = kernel.enter(block)
    part, _ = stored_part(kernel.yielded()[0])
    kernel.known[part] = Tile(_merged(kernel, frame))
    kernel.finish_consumers(frame, first=1)
    index.builder.insert(scf.YieldOp())
    kernel.leave(place)


def _tiled(kernel: KernelBuilder, frame: Frame) -> list[tuple[int, int]]:
    """The axes of the result, with the extent of a tile along each."""
    extents = dict(zip(frame.axes, frame.extents, strict=True))
    axes = enumerate(kernel.nest.axes)
    return [(number, extents.get(number, 1)) for number, axis in axes if not axis.block and not axis.is_reduction]


def _counters(kernel: KernelBuilder, number: int) -> SSAValue:
    count = kernel.counters
    if count is None or (known := count.as_int()) is None:
        raise InternalError("the parts of a result whose size only the runtime knows are merged by a kernel of its own")
    return kernel.index.insert(tile.ViewOp(kernel.inputs[number], [known], [1], align=16))


def _tile_number(kernel: KernelBuilder, frame: Frame) -> SSAValue:
    """The number of the workgroup's tile among those of the result."""
    index = kernel.index
    found = index.constant(0)
    for axis, extent in _tiled(kernel, frame):
        count = ceil_div(kernel.axis_bound(axis), extent).as_int()
        if count is None:
            raise InternalError("a tile count that only the runtime knows")
        own = index.divide(kernel.offset[axis], index.constant(extent))
        found = index.add(index.multiply(found, count), own)
    return found


def _count(kernel: KernelBuilder) -> SSAValue:
    return kernel.index.expression(product([axis.size for axis in kernel.nest.axes if axis.block]))


def _merged(kernel: KernelBuilder, frame: Frame) -> SSAValue:
    """All parts of the workgroup's tile, joined in their order."""
    index = kernel.index
    (number,) = [number for number, axis in enumerate(kernel.nest.axes) if axis.block]
    block_axis = kernel.nest.axes[number]
    join = join_by(type(how := _combining(kernel)), how)
    own = kernel.offset[number]

    def part(at: SSAValue) -> SSAValue:
        kernel.offset[number] = at
        kernel.settle_blocks()
        return kernel.load_result(0, frame)

    first = part(index.constant(0))
    block = Block(arg_types=[builtin.IndexType(), first.type])
    loop = scf.ForOp(index.constant(1), index.expression(block_axis.size), index.constant(1), [first], block)
    index.builder.insert(loop)
    place = kernel.enter(block)
    (joined,) = join(index.insert, [block.args[1]], [part(block.args[0])])
    index.builder.insert(scf.YieldOp(joined))
    kernel.leave(place)
    kernel.offset[number] = own
    kernel.settle_blocks()
    return loop.results[0]


def _combining(kernel: KernelBuilder) -> Operation:
    """The operation that joins two parts."""
    for op in kernel.kernel.body.block.ops:
        if isinstance(op, linalg.ops.GenericOp) and dispatch.MERGE in op.attributes and (first := op.body.block.first_op) is not None:
            return first
    raise InternalError("a kernel that merges parts without what joins them")
