"""Scalar bodies on tiles: evaluates the values of a `linalg.generic` body with register tiles in place of scalars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Attribute, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(frozen=True, slots=True)
class Constant:
    """The same number for every element; becomes a dense constant of whatever shape is asked for."""

    value: Attribute
    element: Attribute


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile, extent 1 in dimensions it does not depend on."""

    value: SSAValue

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the register tile."""
        return tuple(tile.tile_type(self.value).get_shape())

    @property
    def element(self) -> Attribute:
        """Element type."""
        return tile.tile_type(self.value).element_type


Value = Constant | Tile


def stored_type(element: Attribute) -> Attribute:
    """Index elements are 32-bit integers inside tiles."""
    return builtin.i32 if isinstance(element, builtin.IndexType) else element


def dense(value: Attribute, element: Attribute, shape: Sequence[int]) -> arith.ConstantOp:
    """A constant tile."""
    tensor_type = builtin.TensorType(element, list(shape))
    if isinstance(value, builtin.FloatAttr):
        number: float | int = value.value.data
    elif isinstance(value, builtin.IntegerAttr):
        number = value.value.data
    else:
        raise InternalError(f"constant {value} in a scalar body")
    return arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(tensor_type, [number]))  # pyright: ignore[reportArgumentType]


class BodyEvaluator:
    """Evaluates scalars of generic bodies on tiles of one frame.

    `rank`: dimensions of the frame. `scalar_of` gives the tile-level value of a scalar of the kernel's top level; `index_of` the tile of a
    `linalg.index` dimension.
    """

    def __init__(
        self,
        index: IndexBuilder,
        rank: int,
        scalar_of: Callable[[SSAValue], Value],
        index_of: Callable[[int], Value],
    ) -> None:
        self.index = index
        self.rank = rank
        self.scalar_of = scalar_of
        self.index_of = index_of

    def materialize(self, value: Value, shape: Sequence[int]) -> SSAValue:
        """The value as a tile of exactly `shape`."""
        if isinstance(value, Constant):
            return self.index.insert(dense(value.value, stored_type(value.element), shape))
        if value.shape == tuple(shape):
            return value.value
        return self.index.insert(tile.BroadcastOp(value.value, builtin.TensorType(value.element, list(shape))))

    def apply(self, op: Operation, operands: Sequence[Value]) -> Value:
        """One elementwise operation."""
        shapes = [v.shape for v in operands if isinstance(v, Tile)]
        shape = tuple(max(extents) for extents in zip(*shapes, strict=True)) if shapes else (1,) * self.rank
        values = [self.materialize(v, shape) for v in operands]
        element = stored_type(op.results[0].type)
        if isinstance(op, arith.IndexCastOp):
            return self._cast_index(values[0], element, shape)
        result_type = builtin.TensorType(element, list(shape))
        new = type(op).create(operands=values, result_types=[result_type], properties=dict(op.properties), attributes=dict(op.attributes))
        new.location = op.location
        return Tile(self.index.insert(new))

    def _cast_index(self, value: SSAValue, element: Attribute, shape: tuple[int, ...]) -> Value:
        source = tile.tile_type(value).element_type
        if source == element:
            return Tile(value)
        wider = isinstance(element, builtin.IntegerType) and isinstance(source, builtin.IntegerType) and element.width.data > source.width.data
        op = arith.ExtSIOp if wider else arith.TruncIOp
        return Tile(self.index.insert(op(value, builtin.TensorType(element, list(shape)))))  # pyright: ignore[reportArgumentType]

    def evaluate(self, scalar: SSAValue, arguments: dict[SSAValue, Value]) -> Value:
        """A scalar of a body, given the values of the body's arguments; remembers what it computes in `arguments`."""
        if scalar in arguments:
            return arguments[scalar]
        op = scalar.owner
        if isinstance(scalar, BlockArgument) or not isinstance(op, Operation):
            result = self.scalar_of(scalar)
        elif isinstance(op, arith.ConstantOp):
            result = Constant(op.value, op.result.type)
        elif isinstance(op, linalg.ops.IndexOp):
            result = self.index_of(op.dim.value.data)
        elif not any(isinstance(parent, linalg.ops.GenericOp) for parent in _parents(op)):
            result = self.scalar_of(scalar)
        else:
            result = self.apply(op, [self.evaluate(operand, arguments) for operand in op.operands])
        arguments[scalar] = result
        return result


def _parents(op: Operation) -> list[Operation]:
    parent = op.parent_op()
    return [] if parent is None else [parent]


def convert(evaluator: BodyEvaluator, value: Value, target: Attribute, *, unsigned: bool = False) -> Value:
    """A value in another element type: floats widen or round, integers extend (with sign unless `unsigned`) or wrap."""
    source = stored_type(value.element)
    if source == target:
        return value
    if isinstance(value, Constant):
        return Constant(_convert_constant(value.value, target), target)
    result_type = builtin.TensorType(target, list(value.shape))
    if isinstance(source, builtin.IntegerType) and isinstance(target, builtin.IntegerType):
        wider = target.width.data > source.width.data
        op = (arith.ExtUIOp if unsigned else arith.ExtSIOp) if wider else arith.TruncIOp
    elif isinstance(source, builtin.IntegerType):
        op = arith.UIToFPOp if unsigned else arith.SIToFPOp
    else:
        op = arith.ExtFOp if float_width(target) > float_width(source) else arith.TruncFOp
    return Tile(evaluator.index.insert(op(value.value, result_type)))  # pyright: ignore[reportArgumentType]


def _convert_constant(value: Attribute, target: Attribute) -> Attribute:
    number = value.value.data if isinstance(value, builtin.FloatAttr | builtin.IntegerAttr) else 0
    if isinstance(target, builtin.IntegerType):
        return builtin.IntegerAttr(int(number), target)
    return builtin.FloatAttr(float(number), target)  # pyright: ignore[reportArgumentType]


def float_width(element: Attribute) -> int:
    """Bits of a float type."""
    return int(getattr(element, "bitwidth", 0))
