"""Merging of parts by the workgroups that have them: each stores its part of the root's result, and the last one goes on with all of them
merged; or each in its turn adds its part to those before.

The parts are joined in the same order, whichever workgroup is last: every run gives the same bits.
"""

from collections.abc import Generator
from contextlib import contextmanager
from math import prod

from treadle.analysis.identities import identity_of
from treadle.analysis.kernel_slices import stored_part
from treadle.dialects import dispatch, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, scf
from treadle.plan.expr import Expr, ceil_div, product
from treadle.plan.part_merges import parts_at_once
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.cluster_merging import finish_in_cluster
from treadle.transforms.kernel.tiling.joins import join_by, joined_along
from treadle.transforms.kernel.tiling.scalars import Tile


def finish(kernel: KernelBuilder, frame: Frame, whole: tuple[int, int] = (1, 1), together: int = 1) -> None:
    """Compute the consumers of the root and store the results, over the tile `frame` of the result; where there are parts to merge, as the
    last workgroup does. `whole`: along the frame's first two axes there are tiles of multiples of so many, since groups of warps have
    neighbours along the first one, each of which arrives for its own, and clusters along either.
    `together`: that many workgroups, those of a cluster, have all parts of a tile, and merge them without arrivals.
    """
    marked = kernel.kernel.attributes.get(dispatch.MERGE)
    if not isinstance(marked, builtin.IntegerAttr):
        kernel.finish_consumers(frame)
        return
    if together > 1:
        how = _combining(kernel)
        finish_in_cluster(kernel, frame, together, join_by(type(how), how))
        return
    index = kernel.index
    kernel.counters = product([count for *_, count in _tiled(kernel, frame, whole)])
    if dispatch.MERGE_IN_TURN in kernel.kernel.attributes:
        _finish_in_turn(kernel, frame, _counters(kernel, marked.value.data), _tile_number(kernel, frame, whole))
        return
    kernel.store_result(0, frame)
    last = index.insert(tile.ArriveLastOp(_counters(kernel, marked.value.data), [_tile_number(kernel, frame, whole)], _count(kernel)))
    block = Block()
    index.builder.insert(scf.IfOp(last, [], Region(block)))
    place = kernel.enter(block)
    part, _ = stored_part(kernel.yielded()[0])
    kernel.known[part] = Tile(_merged(kernel, frame))
    kernel.finish_consumers(frame, first=1)
    index.builder.insert(scf.YieldOp())
    kernel.leave(place)


def _finish_in_turn(kernel: KernelBuilder, frame: Frame, counters: SSAValue, number: SSAValue) -> None:
    """Add the workgroup's part to the sum of those before it, which the next one goes on with, and the last one with what follows.

    The parts are the turns. The first one stores its part as it is; there are at least two.
    """
    index, how, (part, _) = kernel.index, _combining(kernel), stored_part(kernel.yielded()[0])
    own = kernel.evaluator(frame).materialize(kernel.known[part], frame.extents)
    (axis,) = [at for at, axis in enumerate(kernel.nest.axes) if axis.block]
    turn, count = kernel.offset[axis], _count(kernel)
    kernel.known[part] = Tile(own)
    index.builder.insert(tile.AwaitTurnOp(counters, [number], turn, count))
    with _branches(kernel, index.insert(arith.CmpiOp(turn, index.constant(0), "eq"))) as (first, others):
        with _inside(kernel, first):
            kernel.store_result(0, frame)
        with _inside(kernel, others):
            before = kernel.load_result(0, frame)
            (total,) = join_by(type(how), how)(index.insert, [before], [own])
            kernel.known[part] = Tile(total)
            is_last = index.insert(arith.CmpiOp(index.add(turn, index.constant(1)), count, "eq"))
            with _branches(kernel, is_last) as (last, more):
                with _inside(kernel, last):
                    kernel.finish_consumers(frame, first=1)
                with _inside(kernel, more):
                    kernel.store_result(0, frame)
    index.builder.insert(tile.PassTurnOp(counters, [number], turn, count))


@contextmanager
def _branches(kernel: KernelBuilder, condition: SSAValue) -> Generator[tuple[Block, Block]]:
    """The two sides of a branch, to be filled."""
    sides = Block(), Block()
    kernel.index.builder.insert(scf.IfOp(condition, [], Region(sides[0]), Region(sides[1])))
    yield sides


@contextmanager
def _inside(kernel: KernelBuilder, block: Block) -> Generator[None]:
    """What is built goes into a block, which ends with it."""
    place = kernel.enter(block)
    yield
    kernel.index.builder.insert(scf.YieldOp())
    kernel.leave(place)


def _tiled(kernel: KernelBuilder, frame: Frame, whole: tuple[int, int]) -> list[tuple[int, int, Expr]]:
    """The axes of the result, with the extent of a tile along each and how many tiles there are, those beyond the end too that make them
    `whole`.
    """
    extents, multiples = dict(zip(frame.axes, frame.extents, strict=True)), dict(zip(frame.axes, whole, strict=False))
    found: list[tuple[int, int, Expr]] = []
    for number, axis in enumerate(kernel.nest.axes):
        if not axis.block and not axis.is_reduction:
            extent, together = extents.get(number, 1), multiples.get(number, 1)
            found.append((number, extent, ceil_div(kernel.axis_bound(number), extent * together) * together))
    return found


def _counters(kernel: KernelBuilder, number: int) -> SSAValue:
    count = kernel.counters
    if count is None or (known := count.as_int()) is None:
        raise InternalError("the parts of a result whose size only the runtime knows are merged by a kernel of its own")
    return kernel.index.insert(tile.ViewOp(kernel.inputs[number], [known], [1], align=16))


def _tile_number(kernel: KernelBuilder, frame: Frame, whole: tuple[int, int]) -> SSAValue:
    """The number of the tile among those of the result."""
    index = kernel.index
    found = index.constant(0)
    for axis, extent, tiles in _tiled(kernel, frame, whole):
        if (count := tiles.as_int()) is None:
            raise InternalError("a tile count that only the runtime knows")
        own = index.divide(kernel.offset[axis], index.constant(extent))
        found = index.add(index.multiply(found, count), own)
    return found


def _count(kernel: KernelBuilder) -> SSAValue:
    return kernel.index.expression(product([axis.size for axis in kernel.nest.axes if axis.block]))


def _merged(kernel: KernelBuilder, frame: Frame) -> SSAValue:
    """All parts of the workgroup's tile, joined: so many at once as registers hold, each place of these then with the others."""
    index, how = kernel.index, _combining(kernel)
    (number,) = [number for number, axis in enumerate(kernel.nest.axes) if axis.block]
    count = kernel.nest.axes[number].size.as_int()
    if count is None:
        raise InternalError("parts of which only the runtime knows how many there are")
    join, own, together = join_by(type(how), how), kernel.offset[number], parts_at_once(count, prod(frame.extents))

    def parts(at: SSAValue) -> SSAValue:
        kernel.offset[number] = at
        kernel.settle_blocks()
        found = kernel.load_result(0, frame)
        return found if together == 1 else _several(kernel, found, together, how.name)

    found = parts(index.constant(0))
    if count > together:
        block = Block(arg_types=[builtin.IndexType(), found.type])
        loop = scf.ForOp(index.constant(together), index.constant(count), index.constant(together), [found], block)
        index.builder.insert(loop)
        place = kernel.enter(block)
        (joined,) = join(index.insert, [block.args[1]], [parts(block.args[0])])
        index.builder.insert(scf.YieldOp(joined))
        kernel.leave(place)
        found = loop.results[0]
    kernel.offset[number] = own
    kernel.settle_blocks()
    if together == 1:
        return found
    whole = Frame((number, *frame.axes), (together, *frame.extents))
    (found,) = joined_along(kernel, kernel.nest.root, whole, [number], [found], join)
    return index.insert(tile.PermuteOp(found, range(1, len(whole.axes))))


def _several(kernel: KernelBuilder, one: SSAValue, together: int, combiner: str) -> SSAValue:
    """The load of so many parts, from the one on whose load it takes the place of; those behind the last change nothing."""
    load, along = one.owner, 0  # the parts are the view's one corner, and corners come first
    if not isinstance(load, tile.LoadOp) or along in tile.ints(load.dims):
        raise InternalError("parts that are no axis of their own")
    kind = tile.tile_type(one)
    wide = builtin.TensorType(kind.element_type, [together, *kind.get_shape()])
    other = identity_of(combiner, kind.element_type)
    new = tile.LoadOp(load.view, list(load.offsets), [along, *tile.ints(load.dims)], wide, other=other)
    load.detach()
    load.erase()
    return kernel.index.insert(new)


def _combining(kernel: KernelBuilder) -> Operation:
    """The operation that joins two parts."""
    for op in kernel.kernel.body.block.ops:
        if isinstance(op, linalg.ops.GenericOp) and dispatch.MERGE in op.attributes and (first := op.body.block.first_op) is not None:
            return first
    raise InternalError("a kernel that merges parts without what joins them")
