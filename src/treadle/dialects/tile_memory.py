"""Operations of the `tile` dialect on memory: views, loads and stores, shared buffers."""

from collections.abc import Sequence

from treadle.dialects.effects import Access, Effect, HasEffects, Slice
from treadle.dialects.limits import check_ranks
from treadle.dialects.tile_attributes import PointerType, WindowsAttr, is_shared
from treadle.dialects.tile_boxes import verify_tile_dims, view_slice
from treadle.dialects.tile_types import (
    DYNAMIC,
    i64_array,
    ints,
    memref_type,
    shared_layout_of,
    tile_type,
    view_strides,
)
from treadle.ir.core import (
    Attribute,
    AttrSizedOperandSegments,
    IRDLOperation,
    Operation,
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin
from treadle.ir.misuse import Misuse
from treadle.layout.windows import Windows


def _verify_vector(vector: builtin.IntegerAttr) -> None:
    if vector.value.data < 1:
        raise VerifyException(f"an access of {vector.value.data} elements at once")


def _may_read_folded(op: Operation) -> bool:
    return op.name == "tile.copy" or (isinstance(op, LoadOp) and op.other is None)


@irdl_op_definition
class ViewOp(IRDLOperation, HasEffects):
    """A global array seen through loop dimensions.

    Result: memref with strided layout; static sizes and strides stand in the type, dynamic ones are operands in order. `offset` is in
    elements and
    static. `align`: bytes the address of element zero is known to be aligned to. `windows`: the view is folded (layout/windows.py): some
    dimensions step along several axes of the array, and what lies outside of these is zero; it is only read. The stride of such a
    dimension is the one within its last part.
    """

    name = "tile.view"
    pointer = operand_def(PointerType)
    sizes = var_operand_def(builtin.IndexType)
    strides = var_operand_def(builtin.IndexType)
    offset = prop_def(builtin.IntegerAttr)
    align = prop_def(builtin.IntegerAttr)
    windows = opt_prop_def(WindowsAttr)
    result = result_def(builtin.MemRefType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())
    assembly_format = (
        "$pointer `offset` $offset `align` $align `sizes` `[` $sizes `]` `strides` `[` $strides `]` "
        "(`windows` $windows^)? attr-dict `:` type($pointer) `->` type($result)"
    )

    def __init__(
        self,
        pointer: SSAValue,
        sizes: Sequence[int | SSAValue],
        strides: Sequence[int | SSAValue],
        *,
        offset: int = 0,
        align: int,
        windows: Windows | None = None,
    ) -> None:
        pointer_type = pointer.type
        if not isinstance(pointer_type, PointerType):
            raise VerifyException(f"tile.view needs a pointer, got {pointer_type}")
        layout = builtin.StridedLayoutAttr([s if isinstance(s, int) else None for s in strides], 0)
        shape = [s if isinstance(s, int) else DYNAMIC for s in sizes]
        super().__init__(
            operands=[pointer, [s for s in sizes if not isinstance(s, int)], [s for s in strides if not isinstance(s, int)]],
            properties={
                "offset": builtin.IntegerAttr(offset, builtin.i64),
                "align": builtin.IntegerAttr(align, builtin.i64),
                "windows": None if windows is None else WindowsAttr(windows),
            },
            result_types=[builtin.MemRefType(pointer_type.element_type, shape, layout)],
        )

    @property
    def folding(self) -> Windows | None:
        """How the view folds axes of the array, None where each dimension has one stride."""
        return None if self.windows is None else self.windows.data

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
        pointer = self.pointer.type
        if isinstance(pointer, PointerType) and pointer.element_type != memref_type(self.result).element_type:
            raise VerifyException("tile.view: element types of pointer and view differ")
        if self.align.value.data < 1:
            raise VerifyException(f"tile.view: an alignment of {self.align.value.data} bytes")
        if (windows := self.folding) is not None:
            if len(windows.dims) != len(memref_type(self.result).get_shape()):
                raise VerifyException("tile.view: windows have a list of parts for each dimension")
            if any(not _may_read_folded(use.operation) for use in self.result.uses):
                raise VerifyException("tile.view: a folded view is loaded, with zeros outside, or copied from; nothing else")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class LoadOp(IRDLOperation, HasEffects):
    """Register tile of a view: tile dimension j lies along view dimension `dims[j]`, the others are taken at their offset.

    Elements outside the view's sizes are `other` (default: zero of the type). `vector`: elements along the unit-stride dimension that
    may be accessed at once; the compiler guarantees that alignment, and that a group is wholly inside or wholly outside. With `edges` a
    group may lie across an end of the view: as it is aligned, all of it may be read where one element is inside. With `shifted` a group
    begins at any element and may lie across an end: aligned pieces that have an element inside are read, and shifted into place.
    `streaming`: nobody reads these elements again, so that caches need not keep them. `ordered`: it stays behind the barriers that the text
    has ahead of it; others of arrays that nobody writes may be moved ahead of them, where registers hold what they bring.
    """

    name = "tile.load"
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    dims = prop_def(Attribute)
    vector = prop_def(builtin.IntegerAttr)
    other = opt_prop_def(Attribute)
    edges = opt_prop_def(builtin.UnitAttr)
    shifted = opt_prop_def(builtin.UnitAttr)
    streaming = opt_prop_def(builtin.UnitAttr)
    ordered = opt_prop_def(builtin.UnitAttr)
    result = result_def(builtin.TensorType)
    assembly_format = (
        "$view `[` $offsets `]` `dims` $dims `vector` $vector (`edges` $edges^)? (`shifted` $shifted^)? (`streaming` $streaming^)? "
        "(`ordered` $ordered^)? (`other` $other^)? attr-dict `:` type($view) `->` type($result)"
    )

    def __init__(
        self,
        view: SSAValue,
        offsets: Sequence[SSAValue],
        dims: Sequence[int],
        result_type: builtin.TensorType[Attribute],
        *,
        vector: int = 1,
        other: Attribute | None = None,
        is_streaming: bool = False,
        is_ordered: bool = False,
    ) -> None:
        super().__init__(
            operands=[view, list(offsets)],
            properties={
                "dims": i64_array(dims),
                "vector": builtin.IntegerAttr(vector, builtin.i64),
                "other": other,
                "streaming": builtin.UnitAttr() if is_streaming else None,
                "ordered": builtin.UnitAttr() if is_ordered else None,
            },
            result_types=[result_type],
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.load needs {rank} offsets, got {len(self.offsets)}")
        verify_tile_dims(ints(self.dims), tile_type(self.result).get_shape(), rank)
        if memref_type(self.view).element_type != tile_type(self.result).element_type:
            raise VerifyException("tile.load: element types of view and tile differ")
        if self.shifted is not None and self.edges is not None:
            raise VerifyException("tile.load: groups that are shifted begin anywhere, those of edges are aligned")
        _verify_vector(self.vector)

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "read", view_slice(self.offsets, ints(self.dims), tile_type(self.result).get_shape()), "generic"),)


@irdl_op_definition
class GatherOp(IRDLOperation, HasEffects):
    """Elements of a view at computed places: `indices` are tiles of integers as wide as an index, one a dimension of the view.

    All are of the result's shape and layout.

    An index outside means the nearest one inside: every access lies within the view, whose sizes are not zero.
    """

    name = "tile.gather"
    view = operand_def(builtin.MemRefType)
    indices = var_operand_def(builtin.TensorType)
    result = result_def(builtin.TensorType)
    assembly_format = "$view `[` $indices `]` attr-dict `:` type($view) `,` type($indices) `->` type($result)"

    def __init__(self, view: SSAValue, indices: Sequence[SSAValue]) -> None:
        first = tile_type(indices[0])
        result = builtin.TensorType(memref_type(view).element_type, first.get_shape(), first.encoding)
        super().__init__(operands=[view, list(indices)], result_types=[result])

    def verify_(self) -> None:
        rank, result = len(memref_type(self.view).get_shape()), tile_type(self.result)
        if len(self.indices) != rank or not rank:
            raise VerifyException(f"tile.gather needs {rank} index tiles (at least one), got {len(self.indices)}")
        wide, narrow = (builtin.TensorType(kind, result.get_shape(), result.encoding) for kind in (builtin.i64, builtin.i32))
        if any(value.type != self.indices[0].type or value.type not in (wide, narrow) for value in self.indices):
            raise VerifyException(f"tile.gather: index tiles must all be {narrow}, or all {wide}")
        if memref_type(self.view).element_type != result.element_type:
            raise VerifyException("tile.gather: element types of view and tile differ")

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "read", None, "generic"),)


@irdl_op_definition
class StoreOp(IRDLOperation, HasEffects):
    """Writes a register tile to a view; elements outside the view's sizes are not written. `dims`, `vector`, `edges` as in tile.load,
    but of a group across an end only the elements inside are accessed.
    """

    name = "tile.store"
    value = operand_def(builtin.TensorType)
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    dims = prop_def(Attribute)
    vector = prop_def(builtin.IntegerAttr)
    edges = opt_prop_def(builtin.UnitAttr)
    assembly_format = (
        "$value `,` $view `[` $offsets `]` `dims` $dims `vector` $vector (`edges` $edges^)? attr-dict `:` type($value) `,` type($view)"
    )

    def __init__(self, value: SSAValue, view: SSAValue, offsets: Sequence[SSAValue], dims: Sequence[int], *, vector: int = 1) -> None:
        super().__init__(
            operands=[value, view, list(offsets)],
            properties={"dims": i64_array(dims), "vector": builtin.IntegerAttr(vector, builtin.i64)},
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.store needs {rank} offsets, got {len(self.offsets)}")
        verify_tile_dims(ints(self.dims), tile_type(self.value).get_shape(), rank)
        if memref_type(self.view).element_type != tile_type(self.value).element_type:
            raise VerifyException("tile.store: element types of view and tile differ")
        _verify_vector(self.vector)

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "write", view_slice(self.offsets, ints(self.dims), tile_type(self.value).get_shape()), "generic"),)


@irdl_op_definition
class AllocOp(IRDLOperation, HasEffects):
    """A shared buffer of the workgroup, uninitialised, alive to the end of the kernel; `byte_offset` is set by allocate-shared.

    One buffer however often the operation is executed: in a loop, what an iteration wrote is there in the next.
    """

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
        if self.byte_offset is not None and self.byte_offset.value.data < 0:
            raise Misuse(f"byte {self.byte_offset.value.data} of shared memory", "place the buffer at byte 0 or later")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class LocalLoadOp(IRDLOperation, HasEffects):
    """Register tile of a shared buffer at static offsets; tile dimension j along buffer dimension j. `peer`: of the same buffer in that
    workgroup of the cluster, by rank (the executing one's own where it is that).
    """

    name = "tile.local_load"
    source = operand_def(builtin.MemRefType)
    offsets = prop_def(Attribute)
    peer = opt_prop_def(builtin.IntegerAttr)
    result = result_def(builtin.TensorType)
    assembly_format = "$source $offsets (`peer` $peer^)? attr-dict `:` type($source) `->` type($result)"

    def __init__(
        self, source: SSAValue, offsets: Sequence[int], result_type: builtin.TensorType[Attribute], *, peer: int | None = None
    ) -> None:
        rank = None if peer is None else builtin.IntegerAttr(peer, builtin.i64)
        super().__init__(operands=[source], properties={"offsets": i64_array(offsets), "peer": rank}, result_types=[result_type])

    def peer_ranks(self) -> tuple[int, ...]:
        """The workgroup that it reads from, by rank; none: the executing one."""
        return () if self.peer is None else (self.peer.value.data,)

    def verify_(self) -> None:
        _verify_local(memref_type(self.source), ints(self.offsets), tile_type(self.result))
        if self.peer is None:
            return
        check_ranks(self, self.peer_ranks())
        if (element := memref_type(self.source).element_type) not in (builtin.f32, builtin.i32):
            raise Misuse(f"elements of {element} of another workgroup", "hand over f32 or i32, which sums are held in")

    def effects(self) -> tuple[Effect, ...]:
        return (_local(self.source, "read", self.offsets, self.result),)


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
        return (_local(self.destination, "write", self.offsets, self.value),)


def _local(buffer: SSAValue, access: Access, offsets: Attribute, tile: SSAValue) -> Effect:
    box = Slice(ints(offsets), tuple(tile_type(tile).get_shape()), own_part=True)
    return Effect(buffer, access, box, completion="queue", queue="local")


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
