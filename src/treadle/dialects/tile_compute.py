"""Operations of the `tile` dialect on register tiles: contraction, reduction, and what gives tiles another form."""

from collections.abc import Sequence
from math import prod

from treadle.dialects.effects import Effect, HasEffects, Slice
from treadle.dialects.tile_attributes import is_shared
from treadle.dialects.tile_types import (
    i64_array,
    ints,
    layout_of,
    tile_of,
    tile_type,
)
from treadle.ir.core import (
    Attribute,
    IRDLOperation,
    IsTerminator,
    Pure,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from treadle.ir.dialects import builtin
from treadle.layout.slicing import has_box, slice_layout
from treadle.layout.tile_layout import NEW_DIM, TileLayout


@irdl_op_definition
class ContractOp(IRDLOperation, HasEffects):
    """acc[m, n] + sum over k of a[m, k] * b[k, n].

    Operands are register tiles, or shared buffers where the instruction reads them there. `instruction` names a matrix instruction of the
    target's rows, "fma" for multiply-adds by the vector units, or "" while it is not chosen. Products and sums are in the accumulator's
    type. Of the result, columns from `columns` on are undefined where that is given.
    """

    name = "tile.contract"
    a = operand_def()
    b = operand_def()
    accumulator = operand_def(builtin.TensorType)
    instruction = prop_def(builtin.StringAttr)
    columns = opt_prop_def(builtin.IntegerAttr)
    result = result_def(builtin.TensorType)
    assembly_format = (
        "$a `,` $b `,` $accumulator $instruction (`columns` $columns^)? attr-dict"
        " `:` type($a) `,` type($b) `,` type($accumulator) `->` type($result)"
    )

    def __init__(self, a: SSAValue, b: SSAValue, accumulator: SSAValue, instruction: str = "") -> None:
        super().__init__(
            operands=[a, b, accumulator],
            properties={"instruction": builtin.StringAttr(instruction)},
            result_types=[accumulator.type],
        )

    def defined_columns(self) -> int:
        """How many columns of the result are defined."""
        return self.columns.value.data if self.columns is not None else tile_type(self.result).get_shape()[1]

    def operand_shape(self, value: SSAValue) -> tuple[int, ...]:
        """Shape of `a` or `b`, wherever it lives."""
        value_type = value.type
        if isinstance(value_type, builtin.TensorType | builtin.MemRefType):
            return tuple(value_type.get_shape())
        raise VerifyException(f"tile.contract: operand of type {value_type}")

    def verify_(self) -> None:
        a, b, acc = self.operand_shape(self.a), self.operand_shape(self.b), tuple(tile_type(self.accumulator).get_shape())
        if len(a) != 2 or len(b) != 2 or a[1] != b[0] or acc != (a[0], b[1]):
            raise VerifyException(f"tile.contract: shapes {a}, {b} and {acc} do not agree")
        if self.accumulator.type != self.result.type:
            raise VerifyException("tile.contract: result and accumulator differ in type")
        if not 1 <= self.defined_columns() <= acc[1]:
            raise VerifyException(f"tile.contract: {self.defined_columns()} columns of {acc[1]}")

    def effects(self) -> tuple[Effect, ...]:
        if not is_shared(self.a.type) and not is_shared(self.b.type):
            return ()
        found: list[Effect] = []
        for value in (self.a, self.b):
            shape = self.operand_shape(value)
            part = Slice((0,) * len(shape), shape) if is_shared(value.type) else None
            found.append(Effect(value, "read", part, "async", "queue", "matrix"))
        return (*found, Effect(self.result, "write", None, "async", "queue", "matrix"))

    def holds_registers(self) -> bool:
        """Whether an operand beside one in shared memory comes from registers, which are read until its group is retired."""
        return is_shared(self.a.type) != is_shared(self.b.type)


@irdl_op_definition
class ReduceOp(IRDLOperation, HasEffects):
    """Reduces tiles together along one axis, which keeps extent 1.

    With `group_mask` it reduces within groups: the axis of the results has extent 2^popcount(mask), and element j combines the elements
    whose
    index along the axis has the bits of j, in order, at the set bits of the mask. (What each warp holds is such a group: see
    lower-reductions.)

    The region combines two partial results: its block takes the left values, then the right values (scalars, one of each per operand), and
    yields as many. It must be associative and commutative.
    """

    name = "tile.reduce"
    inputs = var_operand_def(builtin.TensorType)
    axis = prop_def(builtin.IntegerAttr)
    group_mask = opt_prop_def(builtin.IntegerAttr)
    combiner = region_def("single_block")
    results_ = var_result_def(builtin.TensorType)
    traits = traits_def(Pure())

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        axis: int,
        combiner: Region,
        result_types: Sequence[Attribute] | None = None,
        *,
        group_mask: int = 0,
    ) -> None:
        if result_types is None:
            shape = list(tile_type(inputs[0]).get_shape())
            shape[axis] = 1 << group_mask.bit_count()
            result_types = [tile_of(shape, tile_type(v).element_type) for v in inputs]
        super().__init__(
            operands=[list(inputs)],
            properties={
                "axis": builtin.IntegerAttr(axis, builtin.i64),
                "group_mask": builtin.IntegerAttr(group_mask, builtin.i64) if group_mask else None,
            },
            regions=[combiner],
            result_types=[list(result_types)],
        )

    def groups(self) -> int:
        """The mask of `group_mask`, 0 for a whole reduction."""
        return self.group_mask.value.data if self.group_mask is not None else 0

    def verify_(self) -> None:
        axis = self.axis.value.data
        if any(not 0 <= axis < len(tile_type(value).get_shape()) for value in self.inputs):
            raise VerifyException(f"tile.reduce along dimension {axis}")
        for value, result in zip(self.inputs, self.results_, strict=True):
            expected = list(tile_type(value).get_shape())
            if self.groups() >= expected[axis] & -expected[axis] or self.groups() < 0:
                raise VerifyException(f"tile.reduce: group mask {self.groups()} over an extent of {expected[axis]}")
            expected[axis] = 1 << self.groups().bit_count()
            if list(tile_type(result).get_shape()) != expected:
                raise VerifyException("tile.reduce keeps the reduced axis with extent 1 (one element a group)")
        if len(self.combiner.block.args) != 2 * len(self.inputs):
            raise VerifyException("tile.reduce: the combiner takes a left and a right value for each operand")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class YieldOp(IRDLOperation, HasEffects):
    """Ends a combiner."""

    name = "tile.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format = "$values attr-dict `:` type($values)"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(values)])

    def effects(self) -> tuple[Effect, ...]:
        return ()


class _UnaryTileOp(IRDLOperation, HasEffects):
    """A pure operation from one register tile to another."""

    source = operand_def(builtin.TensorType)
    result = result_def(builtin.TensorType)
    traits = traits_def(Pure())

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class BroadcastOp(_UnaryTileOp):
    """Extends dimensions of extent 1 to the result's."""

    name = "tile.broadcast"
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, result_type: builtin.TensorType[Attribute]) -> None:
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        source, result = tile_type(self.source), tile_type(self.result)
        if len(source.get_shape()) != len(result.get_shape()) or source.element_type != result.element_type:
            raise VerifyException("tile.broadcast keeps rank and element type")
        if any(s not in (1, r) for s, r in zip(source.get_shape(), result.get_shape(), strict=True)):
            raise VerifyException(f"tile.broadcast cannot extend {source} to {result}")


@irdl_op_definition
class ConvertLayoutOp(_UnaryTileOp):
    """The same values under another layout."""

    name = "tile.convert_layout"
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, layout: TileLayout) -> None:
        source_type = tile_type(source)
        super().__init__(operands=[source], result_types=[tile_of(source_type.get_shape(), source_type.element_type, layout)])

    def verify_(self) -> None:
        source, result = tile_type(self.source), tile_type(self.result)
        if source.get_shape() != result.get_shape() or source.element_type != result.element_type:
            raise VerifyException("tile.convert_layout keeps shape and element type")


@irdl_op_definition
class PermuteOp(_UnaryTileOp):
    """A register tile with its dimensions renamed: dimension j of the result is dimension `order[j]` of the source. Moves no data.

    -1 (`NEW_DIM`) in the order is a new dimension of extent 1; dimensions of extent 1 may be left out.
    """

    name = "tile.permute"
    order = prop_def(Attribute)
    assembly_format = "$source $order attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, order: Sequence[int]) -> None:
        source_type = tile_type(source)
        layout = layout_of(source)
        shape = _permuted(source_type.get_shape(), order)
        result_type = tile_of(shape, source_type.element_type, layout.permute(tuple(order)) if layout is not None else None)
        super().__init__(operands=[source], properties={"order": i64_array(order)}, result_types=[result_type])

    def verify_(self) -> None:
        order, shape = ints(self.order), tile_type(self.source).get_shape()
        kept = sorted(axis for axis in order if axis != NEW_DIM)
        if len(set(kept)) != len(kept) or not order or not set(kept) <= set(range(len(shape))):
            raise VerifyException(f"tile.permute: {list(order)} is no order of {len(shape)} dimensions")
        if any(extent != 1 for axis, extent in enumerate(shape) if axis not in kept):
            raise VerifyException(f"tile.permute: {list(order)} leaves out a dimension of {list(shape)} that is longer than 1")
        result = tile_type(self.result)
        if tuple(result.get_shape()) != _permuted(shape, order) or result.element_type != tile_type(self.source).element_type:
            raise VerifyException(f"tile.permute {list(order)} of {self.source.type} cannot be {self.result.type}")


def _permuted(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if axis == NEW_DIM else shape[axis] for axis in order)


@irdl_op_definition
class ReshapeOp(_UnaryTileOp):
    """The elements of a register tile, in row-major order, as a tile of another shape. Moves no data.

    The sides of both shapes are powers of two, so that every layout of the source is one of the result.
    """

    name = "tile.reshape"
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, shape: Sequence[int]) -> None:
        source_type, layout = tile_type(source), layout_of(source)
        result = tile_of(shape, source_type.element_type, None if layout is None else layout.reshape(tuple(shape)))
        super().__init__(operands=[source], result_types=[result])

    def verify_(self) -> None:
        source, result = tile_type(self.source), tile_type(self.result)
        if prod(source.get_shape()) != prod(result.get_shape()) or source.element_type != result.element_type:
            raise VerifyException(f"tile.reshape of {source} to {result} keeps neither the elements' number nor their type")
        if any(side & (side - 1) for side in (*source.get_shape(), *result.get_shape())):
            raise VerifyException(f"tile.reshape of {list(source.get_shape())} to {list(result.get_shape())}: sides are powers of two")


@irdl_op_definition
class SliceOp(_UnaryTileOp):
    """A box of a register tile at static offsets. Moves no data: each thread keeps those of its registers that lie in the box.

    With layouts, the box must be what some registers hold in every thread (`layout.slicing`).
    """

    name = "tile.slice"
    offsets = prop_def(Attribute)
    assembly_format = "$source $offsets attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, offsets: Sequence[int], extents: Sequence[int]) -> None:
        source_type = tile_type(source)
        layout = layout_of(source)
        part = None if layout is None else slice_layout(layout, tuple(extents))
        super().__init__(
            operands=[source],
            properties={"offsets": i64_array(offsets)},
            result_types=[tile_of(extents, source_type.element_type, part)],
        )

    def verify_(self) -> None:
        source, result = tile_type(self.source), tile_type(self.result)
        if source.element_type != result.element_type or len(ints(self.offsets)) != len(source.get_shape()):
            raise VerifyException("tile.slice keeps rank and element type")
        bounds = list(zip(ints(self.offsets), result.get_shape(), source.get_shape(), strict=True))
        layout = layout_of(self.source)
        apart = any(o % e for o, e, _ in bounds) and layout is not None and not has_box(layout, ints(self.offsets), result.get_shape())
        if apart or any(o < 0 or o + e > s for o, e, s in bounds):
            raise VerifyException(f"tile.slice: box {list(result.get_shape())} at {list(ints(self.offsets))} of {list(source.get_shape())}")


@irdl_op_definition
class SplatOp(IRDLOperation, HasEffects):
    """A register tile with every element equal to a scalar."""

    name = "tile.splat"
    scalar = operand_def()
    result = result_def(builtin.TensorType)
    traits = traits_def(Pure())
    assembly_format = "$scalar attr-dict `:` type($scalar) `->` type($result)"

    def __init__(self, scalar: SSAValue, result_type: builtin.TensorType[Attribute]) -> None:
        super().__init__(operands=[scalar], result_types=[result_type])

    def verify_(self) -> None:
        element = tile_type(self.result).element_type
        if self.scalar.type != element and not (isinstance(self.scalar.type, builtin.IndexType) and element in (builtin.i32, builtin.i64)):
            raise VerifyException("tile.splat: scalar and element types differ (an index may become i32 or i64)")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class IotaOp(IRDLOperation, HasEffects):
    """A tile of i32 or i64 whose elements are their index along `axis` within the tile."""

    name = "tile.iota"
    axis = prop_def(builtin.IntegerAttr)
    result = result_def(builtin.TensorType)
    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict `:` type($result)"

    def __init__(self, axis: int, result_type: builtin.TensorType[Attribute]) -> None:
        super().__init__(properties={"axis": builtin.IntegerAttr(axis, builtin.i64)}, result_types=[result_type])

    def verify_(self) -> None:
        if not 0 <= self.axis.value.data < len(tile_type(self.result).get_shape()):
            raise VerifyException(f"tile.iota along dimension {self.axis.value.data} of {self.result.type}")

    def effects(self) -> tuple[Effect, ...]:
        return ()
