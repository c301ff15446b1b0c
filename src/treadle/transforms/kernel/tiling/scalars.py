"""Scalar bodies on tiles: evaluates the values of a `linalg.generic` body with register tiles in place of scalars."""

from collections.abc import Callable, Mapping, Sequence

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number, integer_width, number_attr, splat
from treadle.ir.core import Attribute, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.records import dataclass
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


def stored_type(element: Attribute, index: IndexBuilder) -> Attribute:
    """Index elements are integers inside tiles, as wide as the kernel's indices."""
    return index.element if isinstance(element, builtin.IndexType) else element


def dense(value: Attribute, element: Attribute, shape: Sequence[int]) -> arith.ConstantOp:
    """A constant tile."""
    number = attr_number(value)
    if number is None:
        raise InternalError(f"constant {value} in a scalar body")
    return arith.ConstantOp(splat(number, element, shape))


class BodyEvaluator:
    """Evaluates scalars of generic bodies on tiles of one frame.

    `rank`: dimensions of the frame. `scalar_of` gives the tile-level value of a scalar of the kernel's top level; `index_of` the tile of a
    `linalg.index` dimension; `gather` the tile of a kernel argument's elements at index tiles of one shape. `stands_for`: scalars that are
    known to be others of their body here.
    """

    def __init__(
        self,
        index: IndexBuilder,
        rank: int,
        scalar_of: Callable[[SSAValue], Value],
        index_of: Callable[[int], Value],
        gather: Callable[[SSAValue, Sequence[SSAValue]], SSAValue],
        stands_for: Mapping[SSAValue, SSAValue] | None = None,
    ) -> None:
        self.index = index
        self.rank = rank
        self.scalar_of = scalar_of
        self.index_of = index_of
        self.gather = gather
        self.stands_for = stands_for or {}

    def materialize(self, value: Value, shape: Sequence[int]) -> SSAValue:
        """The value as a tile of exactly `shape`."""
        if isinstance(value, Constant):
            return self.index.insert(dense(value.value, stored_type(value.element, self.index), shape))
        if value.shape == tuple(shape):
            return value.value
        return self.index.insert(tile.BroadcastOp(value.value, builtin.TensorType(value.element, list(shape))))

    def _common_shape(self, values: Sequence[Value]) -> tuple[int, ...]:
        shapes = [v.shape for v in values if isinstance(v, Tile)]
        return tuple(max(extents) for extents in zip(*shapes, strict=True)) if shapes else (1,) * self.rank

    def combine(self, kind: type[Operation], operands: Sequence[Value], like: Operation | None = None) -> Value:
        """One elementwise operation on tiles; its result's elements, properties and location are those of `like`, if any."""
        shape = self._common_shape(operands)
        values = [self.materialize(v, shape) for v in operands]
        if like is None:
            return Tile(self.index.insert(kind.create(operands=values, result_types=[values[0].type])))
        element = stored_type(like.results[0].type, self.index)
        if kind is arith.IndexCastOp:
            return self._cast_index(values[0], element, shape)
        result_type = builtin.TensorType(element, list(shape))
        new = kind.create(operands=values, result_types=[result_type], properties=dict(like.properties), attributes=dict(like.attributes))
        new.location = like.location
        return Tile(self.index.insert(new))

    def _cast_index(self, value: SSAValue, element: Attribute, shape: tuple[int, ...]) -> Value:
        source = tile.tile_type(value).element_type
        if source == element:
            return Tile(value)
        op = arith.ExtSIOp if (integer_width(element) or 0) > (integer_width(source) or 0) else arith.TruncIOp
        return Tile(self.index.insert(op.create(operands=[value], result_types=[builtin.TensorType(element, list(shape))])))

    def evaluate(self, scalar: SSAValue, arguments: dict[SSAValue, Value]) -> Value:
        """A scalar of a body, given the values of the body's arguments; remembers what it computes in `arguments`."""
        pending = [scalar]  # not by recursion: bodies are as long as their authors want
        while pending:
            current = pending[-1]
            op = current.owner
            if current in arguments:
                pending.pop()
            elif (other := self.stands_for.get(current)) is not None:
                if other in arguments:
                    arguments[current] = arguments[other]
                else:
                    pending.append(other)
            elif not _is_computed(current) or not isinstance(op, Operation):
                arguments[current] = self._leaf(current)
            elif missing := [operand for operand in _computed_from(op) if operand not in arguments]:
                pending += reversed(missing)
            elif isinstance(op, tensor.ExtractOp):
                places = [arguments[operand] for operand in op.indices]
                shape = self._common_shape(places)
                arguments[current] = Tile(self.gather(op.tensor, [self.materialize(place, shape) for place in places]))
            else:
                arguments[current] = self.combine(type(op), [arguments[operand] for operand in op.operands], op)
        return arguments[scalar]

    def _leaf(self, scalar: SSAValue) -> Value:
        if isinstance(op := scalar.owner, arith.ConstantOp):
            return Constant(op.value, op.result.type)
        if isinstance(op, linalg.ops.IndexOp):
            return self.index_of(op.dim.value.data)
        return self.scalar_of(scalar)


def _computed_from(op: Operation) -> Sequence[SSAValue]:
    """The scalars that an operation of a body needs."""
    return op.indices if isinstance(op, tensor.ExtractOp) else op.operands


def _is_computed(scalar: SSAValue) -> bool:
    """Whether an operation of the body makes it from other scalars."""
    op = scalar.owner
    if isinstance(scalar, BlockArgument) or not isinstance(op, Operation) or isinstance(op, arith.ConstantOp | linalg.ops.IndexOp):
        return False
    return isinstance(op.parent_op(), linalg.ops.GenericOp)


def convert(evaluator: BodyEvaluator, value: Value, target: Attribute, *, unsigned: bool = False) -> Value:
    """A value in another element type: floats widen or round, integers extend (with sign unless `unsigned`) or wrap."""
    source = stored_type(value.element, evaluator.index)
    if source == target:
        return value
    if isinstance(value, Constant):
        return Constant(number_attr(attr_number(value.value) or 0, target), target)
    source_width, target_width = integer_width(source), integer_width(target)
    if source_width is not None and target_width is not None:
        op = (arith.ExtUIOp if unsigned else arith.ExtSIOp) if target_width > source_width else arith.TruncIOp
    elif source_width is not None:
        op = arith.UIToFPOp if unsigned else arith.SIToFPOp
    else:
        op = arith.ExtFOp if float_width(target) > float_width(source) else arith.TruncFOp
    result_type = builtin.TensorType(target, list(value.shape))
    return Tile(evaluator.index.insert(op.create(operands=[value.value], result_types=[result_type])))


def float_width(element: Attribute) -> int:
    """Bits of a float type."""
    return int(getattr(element, "bitwidth", 0))
