"""How the parts of a reduction are joined: the places of a tile with each other, and what loops find with what they start from."""

from collections.abc import Callable, Sequence

from treadle.analysis.indexing import StructuredOp
from treadle.analysis.root_positions import Linears
from treadle.dialects import tile
from treadle.ir.builtin import attr_number, element_of, is_integer
from treadle.ir.core import Attribute, Block, Builder, InsertPoint, Operation, Region, SSAValue
from treadle.ir.dialects import arith
from treadle.ir.emitter import Emitter
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.scalars import Constant, Tile, Value, convert, stored_type

Insert = Callable[[Operation], SSAValue]
Join = Callable[[Insert, Sequence[SSAValue], Sequence[SSAValue]], Sequence[SSAValue]]
"""Inserts what joins two parts of each output, tiles or scalars of one type, left before right."""


@dataclass(frozen=True, slots=True)
class Initial:
    """What output `number` of a root starts from; a constant of the number `neutral` changes nothing. `dims`: the place of its loops."""

    root: StructuredOp
    number: int = 0
    neutral: float | None = 0
    dims: Linears | None = None


def join_by(kind: type[Operation], like: Operation | None = None) -> Join:
    """One output, joined by one operation, with the properties and the location of `like`."""

    def join(insert: Insert, left: Sequence[SSAValue], right: Sequence[SSAValue]) -> list[SSAValue]:
        properties = {} if like is None else dict(like.properties)
        op = kind.create(operands=[left[0], right[0]], result_types=[left[0].type], properties=properties)
        if like is not None:
            op.location = like.location
        return [insert(op)]

    return join


def sum_of(element: Attribute) -> Join:
    """The join of sums of an element type."""
    return join_by(arith.AddiOp if is_integer(element) else arith.AddfOp)


def joined_along(
    kernel: KernelBuilder, root: StructuredOp, frame: Frame, axes: Sequence[int], parts: Sequence[SSAValue], join: Join
) -> list[SSAValue]:
    """Tiles of a frame, one an output of the root, joined along some of its axes."""
    found: list[SSAValue] = list(parts)
    for j, (axis, extent) in enumerate(zip(frame.axes, frame.extents, strict=True)):
        if axis in axes and extent > 1:
            block = Block(arg_types=[tile.tile_type(part).element_type for part in (*found, *found)])
            emit = Emitter(Builder(InsertPoint.at_end(block)), like=root.op)
            block.add_op(tile.YieldOp(join(emit.insert, block.args[: len(found)], block.args[len(found) :])))
            reduce = tile.ReduceOp(found, j, Region(block))
            kernel.index.insert(reduce)
            found = [*reduce.results]
    return found


def with_initial(kernel: KernelBuilder, start: Initial, total: SSAValue, frame: Frame, join: Join) -> Value:
    """A result of a root, of what its loops have found over `frame` and its initial value.

    The initial value comes last: matrix instructions then start from nothing, and its load overlaps the loop.
    """
    evaluator, kind = kernel.evaluator(frame), tile.tile_type(total).element_type
    root, number = start.root, start.number
    initial = kernel.value(root.outputs[number], kernel.reached(root.output_maps[number], start.dims), frame)
    if not (isinstance(initial, Constant) and attr_number(initial.value) == start.neutral):
        started = evaluator.materialize(convert(evaluator, initial, kind), frame.extents)
        (total,) = join(kernel.index.insert, [started], [total])
    return convert(evaluator, Tile(total), stored_type(element_of(root.op.results[number].type), kernel.index))
