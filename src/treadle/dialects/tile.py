"""The `tile` dialect: one workgroup's program on register tiles and shared buffers, sequential.

Register tiles are builtin tensors of static shape; their encoding, once assigned, is `#tile.layout`. Shared buffers are memrefs with a
`#tile.shared_layout` in the space `#tile.shared`. Global arrays are seen through `tile.view`. See docs/architecture.md, "Tile level".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from treadle.dialects.effects import Effect, HasEffects, Slice
from treadle.dialects.tile_attributes import PointerType, SharedLayoutAttr, SharedSpaceAttr, TileLayoutAttr, is_shared
from treadle.ir.core import (
    Attribute,
    AttrSizedOperandSegments,
    Block,
    Dialect,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    Operation,
    Pure,
    Region,
    SSAValue,
    SymbolOpInterface,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout

DYNAMIC = builtin.DYNAMIC_INDEX
COPY_QUEUES = {"cp_async": "cp_async", "direct": "vmcnt"}
"""Paths of tile.copy whose groups a queue retires."""
INDEX = builtin.IndexType()


def i64_array(values: Sequence[int]) -> builtin.DenseArrayBase:
    """A dense i64 array attribute."""
    return builtin.DenseArrayBase.from_list(builtin.i64, list(values))


def ints(attribute: Attribute) -> tuple[int, ...]:
    """The values of a dense integer array attribute."""
    if not isinstance(attribute, builtin.DenseArrayBase):
        raise VerifyException(f"expected array<i64: ..>, got {attribute}")
    return tuple(int(v) for v in attribute.get_values())


def tile_type(value: SSAValue | Operation) -> builtin.TensorType[Attribute]:
    """The tensor type of a register tile."""
    value_type = SSAValue.get(value).type
    if not isinstance(value_type, builtin.TensorType):
        raise VerifyException(f"expected a register tile (tensor), got {value_type}")
    return cast("builtin.TensorType[Attribute]", value_type)


def memref_type(value: SSAValue | Operation) -> builtin.MemRefType[Attribute]:
    """The memref type of a view or shared buffer."""
    value_type = SSAValue.get(value).type
    if not isinstance(value_type, builtin.MemRefType):
        raise VerifyException(f"expected a view or shared buffer (memref), got {value_type}")
    return cast("builtin.MemRefType[Attribute]", value_type)


def layout_of(value: SSAValue | Operation) -> TileLayout | None:
    """The distributed layout of a register tile, None before assign-layouts."""
    encoding = tile_type(value).encoding
    return encoding.data if isinstance(encoding, TileLayoutAttr) else None


def shared_layout_of(value: SSAValue | Operation) -> SharedLayout:
    """The layout of a shared buffer."""
    layout = memref_type(value).layout
    if not isinstance(layout, SharedLayoutAttr):
        raise VerifyException(f"expected a shared buffer with #tile.shared_layout, got {memref_type(value)}")
    return layout.data


def tile_of(shape: Sequence[int], element: Attribute, layout: TileLayout | None = None) -> builtin.TensorType[Attribute]:
    """The type of a register tile."""
    return builtin.TensorType(element, list(shape), TileLayoutAttr(layout) if layout is not None else builtin.NoneAttr())


def shared_buffer_type(shape: Sequence[int], element: Attribute, layout: SharedLayout) -> builtin.MemRefType[Attribute]:
    """The type of a shared buffer."""
    return builtin.MemRefType(element, list(shape), SharedLayoutAttr(layout), SharedSpaceAttr())


def view_strides(view: SSAValue | Operation) -> tuple[int | None, ...]:
    """Static strides of a view in elements, None where they are dynamic."""
    layout = memref_type(view).layout
    if not isinstance(layout, builtin.StridedLayoutAttr):
        raise VerifyException(f"expected a strided view, got {memref_type(view)}")
    strides = layout.get_strides()
    return tuple(None if s is None or s == DYNAMIC else s for s in strides)


def _verify_tile_dims(dims: tuple[int, ...], tile_shape: Sequence[int], rank: int) -> None:
    if len(dims) != len(tile_shape):
        raise VerifyException(f"dims {list(dims)} must name one dimension of the view for each of the tile's {len(tile_shape)}")
    if len(set(dims)) != len(dims) or any(not 0 <= d < rank for d in dims):
        raise VerifyException(f"dims {list(dims)} must be distinct dimensions below {rank}")


@irdl_op_definition
class KernelOp(IRDLOperation):
    """One workgroup's program. Block arguments: input pointers, output pointers, then one index for each of `symbols`.

    `grid`: three size expressions over the symbols. `arg_align`: bytes each pointer is aligned to. `output_count`: how many pointers are
    outputs.
    """

    name = "tile.kernel"
    sym_name = prop_def(builtin.StringAttr)
    symbols = prop_def(builtin.ArrayAttr)
    grid = prop_def(builtin.ArrayAttr)
    num_warps = prop_def(builtin.IntegerAttr)
    target = prop_def(builtin.StringAttr)
    arg_align = prop_def(builtin.DenseArrayBase)
    output_count = prop_def(builtin.IntegerAttr)
    config = opt_prop_def(builtin.DictionaryAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface(), NoTerminator())

    def __init__(
        self,
        name: str,
        body: Region | Block,
        *,
        symbols: Sequence[str],
        grid: Sequence[str],
        num_warps: int,
        target: str,
        arg_align: Sequence[int],
        output_count: int,
        config: builtin.DictionaryAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": builtin.StringAttr(name),
                "symbols": builtin.ArrayAttr([builtin.StringAttr(s) for s in symbols]),
                "grid": builtin.ArrayAttr([builtin.StringAttr(g) for g in grid]),
                "num_warps": builtin.IntegerAttr(num_warps, builtin.i64),
                "target": builtin.StringAttr(target),
                "arg_align": i64_array(arg_align),
                "output_count": builtin.IntegerAttr(output_count, builtin.i64),
                "config": config,
            },
            regions=[Region(body) if isinstance(body, Block) else body],
        )

    def symbol_names(self) -> tuple[str, ...]:
        """Names of the trailing index arguments."""
        return tuple(cast(builtin.StringAttr, s).data for s in self.symbols)

    def grid_text(self) -> tuple[str, str, str]:
        """The three grid expressions as text."""
        x, y, z = (cast(builtin.StringAttr, g).data for g in self.grid)
        return x, y, z

    def verify_(self) -> None:
        pointers = [a for a in self.body.block.args if isinstance(a.type, PointerType)]
        indices = [a for a in self.body.block.args if isinstance(a.type, builtin.IndexType)]
        if len(pointers) + len(indices) != len(self.body.block.args):
            raise VerifyException("tile.kernel takes pointers and index arguments only")
        if len(indices) != len(self.symbols):
            raise VerifyException(f"tile.kernel names {len(self.symbols)} symbols for {len(indices)} index arguments")
        if len(ints(self.arg_align)) != len(pointers):
            raise VerifyException("tile.kernel needs one arg_align entry for each pointer")
        if len(self.grid) != 3:
            raise VerifyException("tile.kernel needs three grid expressions")
        for op in self.body.walk():
            if op.name.split(".")[0] in ("tile", "pipe", "sync") and not isinstance(op, HasEffects):
                raise VerifyException(f"{op.name} does not state its effects")


@irdl_op_definition
class ReturnOp(IRDLOperation, HasEffects):
    """Ends a kernel."""

    name = "tile.return"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class ProgramIdOp(IRDLOperation, HasEffects):
    """The workgroup's id along grid axis 0, 1 or 2."""

    name = "tile.program_id"
    axis = prop_def(builtin.IntegerAttr)
    result = result_def(builtin.IndexType)
    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict"

    def __init__(self, axis: int) -> None:
        super().__init__(properties={"axis": builtin.IntegerAttr(axis, builtin.i64)}, result_types=[INDEX])

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class ViewOp(IRDLOperation, HasEffects):
    """A global array seen through loop dimensions.

    Result: memref with strided layout; static sizes and strides stand in the type, dynamic ones are operands in order. `offset` is in
    elements and
    static. `align`: bytes the address of element zero is known to be aligned to.
    """

    name = "tile.view"
    pointer = operand_def(PointerType)
    sizes = var_operand_def(builtin.IndexType)
    strides = var_operand_def(builtin.IndexType)
    offset = prop_def(builtin.IntegerAttr)
    align = prop_def(builtin.IntegerAttr)
    result = result_def(builtin.MemRefType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())
    assembly_format = (
        "$pointer `offset` $offset `align` $align `sizes` `[` $sizes `]` `strides` `[` $strides `]` attr-dict `:` "
        "type($pointer) `->` type($result)"
    )

    def __init__(
        self,
        pointer: SSAValue,
        sizes: Sequence[int | SSAValue],
        strides: Sequence[int | SSAValue],
        *,
        offset: int = 0,
        align: int,
    ) -> None:
        pointer_type = pointer.type
        if not isinstance(pointer_type, PointerType):
            raise VerifyException(f"tile.view needs a pointer, got {pointer_type}")
        layout = builtin.StridedLayoutAttr([s if isinstance(s, int) else None for s in strides], 0)
        shape = [s if isinstance(s, int) else DYNAMIC for s in sizes]
        super().__init__(
            operands=[pointer, [s for s in sizes if not isinstance(s, int)], [s for s in strides if not isinstance(s, int)]],
            properties={"offset": builtin.IntegerAttr(offset, builtin.i64), "align": builtin.IntegerAttr(align, builtin.i64)},
            result_types=[builtin.MemRefType(pointer_type.element_type, shape, layout)],
        )

    def size_values(self) -> tuple[int | SSAValue, ...]:
        """Sizes, static ones as ints."""
        dynamic = iter(self.sizes)
        return tuple(next(dynamic) if s == DYNAMIC else s for s in memref_type(self.result).get_shape())

    def stride_values(self) -> tuple[int | SSAValue, ...]:
        """Strides in elements, static ones as ints."""
        dynamic = iter(self.strides)
        return tuple(next(dynamic) if s is None else s for s in view_strides(self.result))

    def verify_(self) -> None:
        if sum(s == DYNAMIC for s in memref_type(self.result).get_shape()) != len(self.sizes):
            raise VerifyException("tile.view needs one size operand for each dynamic size of its type")
        if sum(s is None for s in view_strides(self.result)) != len(self.strides):
            raise VerifyException("tile.view needs one stride operand for each dynamic stride of its type")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class LoadOp(IRDLOperation, HasEffects):
    """Register tile of a view: tile dimension j lies along view dimension `dims[j]`, the others are taken at their offset.

    Elements outside the view's sizes are `other` (default: zero of the type). `vector`: elements along the unit-stride dimension that
    may be
    accessed at once; the compiler guarantees that alignment, and that a group is wholly inside or wholly outside.
    """

    name = "tile.load"
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    dims = prop_def(Attribute)
    vector = prop_def(builtin.IntegerAttr)
    other = opt_prop_def(Attribute)
    result = result_def(builtin.TensorType)
    assembly_format = "$view `[` $offsets `]` `dims` $dims `vector` $vector (`other` $other^)? attr-dict `:` type($view) `->` type($result)"

    def __init__(
        self,
        view: SSAValue,
        offsets: Sequence[SSAValue],
        dims: Sequence[int],
        result_type: builtin.TensorType[Attribute],
        *,
        vector: int = 1,
        other: Attribute | None = None,
    ) -> None:
        super().__init__(
            operands=[view, list(offsets)],
            properties={"dims": i64_array(dims), "vector": builtin.IntegerAttr(vector, builtin.i64), "other": other},
            result_types=[result_type],
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.load needs {rank} offsets, got {len(self.offsets)}")
        _verify_tile_dims(ints(self.dims), tile_type(self.result).get_shape(), rank)
        if memref_type(self.view).element_type != tile_type(self.result).element_type:
            raise VerifyException("tile.load: element types of view and tile differ")

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "read", _view_slice(self.offsets, ints(self.dims), tile_type(self.result).get_shape()), "generic"),)


@irdl_op_definition
class StoreOp(IRDLOperation, HasEffects):
    """Writes a register tile to a view; elements outside the view's sizes are not written. `dims`, `vector` as in tile.load."""

    name = "tile.store"
    value = operand_def(builtin.TensorType)
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    dims = prop_def(Attribute)
    vector = prop_def(builtin.IntegerAttr)
    assembly_format = "$value `,` $view `[` $offsets `]` `dims` $dims `vector` $vector attr-dict `:` type($value) `,` type($view)"

    def __init__(self, value: SSAValue, view: SSAValue, offsets: Sequence[SSAValue], dims: Sequence[int], *, vector: int = 1) -> None:
        super().__init__(
            operands=[value, view, list(offsets)],
            properties={"dims": i64_array(dims), "vector": builtin.IntegerAttr(vector, builtin.i64)},
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.store needs {rank} offsets, got {len(self.offsets)}")
        _verify_tile_dims(ints(self.dims), tile_type(self.value).get_shape(), rank)
        if memref_type(self.view).element_type != tile_type(self.value).element_type:
            raise VerifyException("tile.store: element types of view and tile differ")

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "write", _view_slice(self.offsets, ints(self.dims), tile_type(self.value).get_shape()), "generic"),)


@irdl_op_definition
class AllocOp(IRDLOperation, HasEffects):
    """A shared buffer of the workgroup, uninitialised, alive to the end of the kernel; `byte_offset` is set by allocate-shared."""

    name = "tile.alloc"
    byte_offset = opt_prop_def(builtin.IntegerAttr)
    result = result_def(builtin.MemRefType)
    assembly_format = "(`at` $byte_offset^)? attr-dict `:` type($result)"

    def __init__(self, result_type: builtin.MemRefType[Attribute], byte_offset: int | None = None) -> None:
        offset = None if byte_offset is None else builtin.IntegerAttr(byte_offset, builtin.i64)
        super().__init__(properties={"byte_offset": offset}, result_types=[result_type])

    def verify_(self) -> None:
        if not is_shared(self.result.type):
            raise VerifyException("tile.alloc must give a memref in #tile.shared")
        if shared_layout_of(self.result).shape != memref_type(self.result).get_shape():
            raise VerifyException("tile.alloc: the layout covers another shape than the buffer's")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class CopyOp(IRDLOperation, HasEffects):
    """Hardware copy of a view's box into a shared buffer (tile dimension j along view dimension `dims[j]`), zero outside the view.

    `path`: "bulk_tensor" (descriptor copy by one thread), "cp_async" or "direct" (each thread its part, completing in a queue). At tile
    level the
    copy is complete when the next op starts; at schedule level
    `barrier`, where given, is the mbarrier it completes on.
    """

    name = "tile.copy"
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    destination = operand_def(builtin.MemRefType)
    barrier = opt_operand_def()
    dims = prop_def(Attribute)
    path = prop_def(builtin.StringAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$view `[` $offsets `]` `dims` $dims `,` $destination (`signals` $barrier^ `:` type($barrier))? `path` $path attr-dict `:` "
        "type($view) `,` type($destination)"
    )

    def __init__(
        self,
        view: SSAValue,
        offsets: Sequence[SSAValue],
        dims: Sequence[int],
        destination: SSAValue,
        *,
        path: str,
        barrier: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[view, list(offsets), destination, barrier],
            properties={"dims": i64_array(dims), "path": builtin.StringAttr(path)},
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.copy needs {rank} offsets, got {len(self.offsets)}")
        if not is_shared(self.destination.type):
            raise VerifyException("tile.copy writes shared buffers only")
        if self.path.data != "bulk_tensor" and self.path.data not in COPY_QUEUES:
            raise VerifyException(f"tile.copy: unknown path '{self.path.data}'")
        if self.barrier is not None and self.path.data in COPY_QUEUES:
            raise VerifyException(f"tile.copy by '{self.path.data}' completes in a queue, it signals no barrier")
        _verify_tile_dims(ints(self.dims), memref_type(self.destination).get_shape(), rank)

    def effects(self) -> tuple[Effect, ...]:
        shape = memref_type(self.destination).get_shape()
        whole = Slice((0,) * len(shape), tuple(shape))
        source = _view_slice(self.offsets, ints(self.dims), shape)
        path = self.path.data
        if path == "bulk_tensor":
            done = "mbarrier" if self.barrier is not None else "program_order"
            return (
                Effect(self.view, "read", source, "async", done),
                Effect(self.destination, "write", whole, "async", done),
            )
        queue = COPY_QUEUES[path]
        return (
            Effect(self.view, "read", source, "generic", "queue", queue),
            Effect(self.destination, "write", replace(whole, own_part=True), "generic", "queue", queue),
        )


@irdl_op_definition
class CopyOutOp(IRDLOperation, HasEffects):
    """Hardware copy of a shared buffer into a view's box; elements outside the view are not written. Issued by one thread.

    Its group in the queue "bulk_store" is complete when the global array is written; a wait with `read` asks only that the buffer is free.
    """

    name = "tile.copy_out"
    source = operand_def(builtin.MemRefType)
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    dims = prop_def(Attribute)
    path = prop_def(builtin.StringAttr)
    assembly_format = "$source `,` $view `[` $offsets `]` `dims` $dims `path` $path attr-dict `:` type($source) `,` type($view)"

    def __init__(self, source: SSAValue, view: SSAValue, offsets: Sequence[SSAValue], dims: Sequence[int], *, path: str) -> None:
        super().__init__(
            operands=[source, view, list(offsets)],
            properties={"dims": i64_array(dims), "path": builtin.StringAttr(path)},
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.copy_out needs {rank} offsets, got {len(self.offsets)}")
        if not is_shared(self.source.type):
            raise VerifyException("tile.copy_out reads shared buffers only")
        if self.path.data != "bulk_tensor":
            raise VerifyException(f"tile.copy_out: unknown path '{self.path.data}'")
        _verify_tile_dims(ints(self.dims), memref_type(self.source).get_shape(), rank)

    def effects(self) -> tuple[Effect, ...]:
        shape = memref_type(self.source).get_shape()
        return (
            Effect(self.source, "read", Slice((0,) * len(shape), tuple(shape)), "async", "queue", "bulk_store"),
            Effect(self.view, "write", _view_slice(self.offsets, ints(self.dims), shape), "async", "queue", "bulk_store"),
        )


@irdl_op_definition
class LocalLoadOp(IRDLOperation, HasEffects):
    """Register tile of a shared buffer at static offsets; tile dimension j along buffer dimension j."""

    name = "tile.local_load"
    source = operand_def(builtin.MemRefType)
    offsets = prop_def(Attribute)
    result = result_def(builtin.TensorType)
    assembly_format = "$source $offsets attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, offsets: Sequence[int], result_type: builtin.TensorType[Attribute]) -> None:
        super().__init__(operands=[source], properties={"offsets": i64_array(offsets)}, result_types=[result_type])

    def verify_(self) -> None:
        _verify_local(memref_type(self.source), ints(self.offsets), tile_type(self.result))

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.source, "read", Slice(ints(self.offsets), tuple(tile_type(self.result).get_shape()))),)


@irdl_op_definition
class LocalStoreOp(IRDLOperation, HasEffects):
    """Writes a register tile into a shared buffer at static offsets."""

    name = "tile.local_store"
    value = operand_def(builtin.TensorType)
    destination = operand_def(builtin.MemRefType)
    offsets = prop_def(Attribute)
    assembly_format = "$value `,` $destination $offsets attr-dict `:` type($value) `,` type($destination)"

    def __init__(self, value: SSAValue, destination: SSAValue, offsets: Sequence[int]) -> None:
        super().__init__(operands=[value, destination], properties={"offsets": i64_array(offsets)})

    def verify_(self) -> None:
        _verify_local(memref_type(self.destination), ints(self.offsets), tile_type(self.value))

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.destination, "write", Slice(ints(self.offsets), tuple(tile_type(self.value).get_shape()), own_part=True)),)


@irdl_op_definition
class ContractOp(IRDLOperation, HasEffects):
    """acc[m, n] + sum over k of a[m, k] * b[k, n].

    Operands are register tiles, or shared buffers where the instruction reads them there. `instruction` names a matrix instruction of the
    target's rows, "fma" for multiply-adds by the vector units, or "" while it is not chosen. Products and sums are in the accumulator's
    type.
    """

    name = "tile.contract"
    a = operand_def()
    b = operand_def()
    accumulator = operand_def(builtin.TensorType)
    instruction = prop_def(builtin.StringAttr)
    result = result_def(builtin.TensorType)
    assembly_format = (
        "$a `,` $b `,` $accumulator $instruction attr-dict `:` type($a) `,` type($b) `,` type($accumulator) `->` type($result)"
    )

    def __init__(self, a: SSAValue, b: SSAValue, accumulator: SSAValue, instruction: str = "") -> None:
        super().__init__(
            operands=[a, b, accumulator],
            properties={"instruction": builtin.StringAttr(instruction)},
            result_types=[accumulator.type],
        )

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

    def effects(self) -> tuple[Effect, ...]:
        found: list[Effect] = []
        for value in (self.a, self.b):
            if is_shared(value.type):
                shape = self.operand_shape(value)
                found.append(Effect(value, "read", Slice((0,) * len(shape), shape), "async", "queue", "wgmma"))
        if found:
            found.append(Effect(self.result, "write", None, "async", "queue", "wgmma"))
        return tuple(found)


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
    """A register tile with its dimensions renamed: dimension j of the result is dimension `order[j]` of the source. Moves no data."""

    name = "tile.permute"
    order = prop_def(Attribute)
    assembly_format = "$source $order attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, order: Sequence[int]) -> None:
        source_type = tile_type(source)
        layout = layout_of(source)
        shape = [source_type.get_shape()[d] for d in order]
        result_type = tile_of(shape, source_type.element_type, layout.permute(tuple(order)) if layout is not None else None)
        super().__init__(operands=[source], properties={"order": i64_array(order)}, result_types=[result_type])


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
        if self.scalar.type != element and not (isinstance(self.scalar.type, builtin.IndexType) and element == builtin.i32):
            raise VerifyException("tile.splat: scalar and element types differ (an index may become i32)")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class IotaOp(IRDLOperation, HasEffects):
    """A tile of i32 whose elements are their index along `axis` within the tile."""

    name = "tile.iota"
    axis = prop_def(builtin.IntegerAttr)
    result = result_def(builtin.TensorType)
    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict `:` type($result)"

    def __init__(self, axis: int, result_type: builtin.TensorType[Attribute]) -> None:
        super().__init__(properties={"axis": builtin.IntegerAttr(axis, builtin.i64)}, result_types=[result_type])

    def effects(self) -> tuple[Effect, ...]:
        return ()


def _view_slice(offsets: Sequence[SSAValue], dims: Sequence[int], shape: Sequence[int]) -> Slice:
    extents = [1] * len(offsets)
    for dim, extent in zip(dims, shape, strict=True):
        extents[dim] = extent
    return Slice(tuple(offsets), tuple(extents))


def _verify_local(buffer: builtin.MemRefType[Attribute], offsets: tuple[int, ...], tile: builtin.TensorType[Attribute]) -> None:
    if not is_shared(buffer):
        raise VerifyException("local loads and stores need a shared buffer")
    shape, extents = buffer.get_shape(), tile.get_shape()
    if len(offsets) != len(shape) or len(extents) != len(shape):
        raise VerifyException("local loads and stores: buffer, offsets and tile differ in rank")
    if any(o < 0 or o + e > s for o, e, s in zip(offsets, extents, shape, strict=True)):
        raise VerifyException(f"tile {list(extents)} at {list(offsets)} leaves the buffer of {list(shape)}")
    if buffer.element_type != tile.element_type:
        raise VerifyException("local loads and stores: element types differ")


TILE = Dialect(
    "tile",
    [
        KernelOp,
        ReturnOp,
        ProgramIdOp,
        ViewOp,
        LoadOp,
        StoreOp,
        AllocOp,
        CopyOp,
        CopyOutOp,
        LocalLoadOp,
        LocalStoreOp,
        ContractOp,
        ReduceOp,
        YieldOp,
        BroadcastOp,
        ConvertLayoutOp,
        PermuteOp,
        SplatOp,
        IotaOp,
    ],
    [PointerType, TileLayoutAttr, SharedLayoutAttr, SharedSpaceAttr],
)
