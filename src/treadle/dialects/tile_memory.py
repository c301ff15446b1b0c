"""Operations of the `tile` dialect on memory: views, loads and stores, shared buffers, hardware copies."""

from collections.abc import Sequence
from dataclasses import replace

from treadle.dialects.effects import Access, Effect, HasEffects, Slice
from treadle.dialects.limits import check_ranks, machine_of
from treadle.dialects.sync import MbarrierType, check_single_barrier
from treadle.dialects.tile_attributes import PointerType, is_shared
from treadle.dialects.tile_types import (
    BULK_TENSOR,
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
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin
from treadle.ir.misuse import Misuse
from treadle.machine import TargetSpec


def _verify_vector(vector: builtin.IntegerAttr) -> None:
    if vector.value.data < 1:
        raise VerifyException(f"an access of {vector.value.data} elements at once")


def _verify_tile_dims(dims: tuple[int, ...], tile_shape: Sequence[int], rank: int) -> None:
    if len(dims) != len(tile_shape):
        raise VerifyException(f"dims {list(dims)} must name one dimension of the view for each of the tile's {len(tile_shape)}")
    if len(set(dims)) != len(dims) or any(not 0 <= d < rank for d in dims):
        raise VerifyException(f"dims {list(dims)} must be distinct dimensions below {rank}")


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
        pointer = self.pointer.type
        if isinstance(pointer, PointerType) and pointer.element_type != memref_type(self.result).element_type:
            raise VerifyException("tile.view: element types of pointer and view differ")
        if self.align.value.data < 1:
            raise VerifyException(f"tile.view: an alignment of {self.align.value.data} bytes")

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
        _verify_vector(self.vector)

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "read", _view_slice(self.offsets, ints(self.dims), tile_type(self.result).get_shape()), "generic"),)


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
        _verify_vector(self.vector)

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "write", _view_slice(self.offsets, ints(self.dims), tile_type(self.value).get_shape()), "generic"),)


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
class CopyOp(IRDLOperation, HasEffects):
    """Hardware copy of a view's box into a shared buffer (tile dimension j along view dimension `dims[j]`), zero outside the view.

    `path`: "bulk_tensor" (descriptor copy by one thread), or what the machine's row calls copies by all threads (each its part, completing
    in the queue of the role "copy_in"). At tile
    level the copy is complete when the next op starts; at schedule level `barrier`, where given, is the mbarrier it completes on.
    `multicast`: it fills the destination in each of these workgroups of the cluster, by rank, and signals each one's own `barrier`.
    """

    name = "tile.copy"
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    destination = operand_def(builtin.MemRefType)
    barrier = opt_operand_def()
    dims = prop_def(Attribute)
    path = prop_def(builtin.StringAttr)
    multicast = opt_prop_def(Attribute)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$view `[` $offsets `]` `dims` $dims `,` $destination (`signals` $barrier^ `:` type($barrier))? `path` $path "
        "(`multicast` $multicast^)? attr-dict `:` type($view) `,` type($destination)"
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
        multicast: Sequence[int] | None = None,
    ) -> None:
        ranks = None if multicast is None else i64_array(multicast)
        super().__init__(
            operands=[view, list(offsets), destination, barrier],
            properties={"dims": i64_array(dims), "path": builtin.StringAttr(path), "multicast": ranks},
        )

    @property
    def is_bulk(self) -> bool:
        """Whether one thread issues it and a transaction barrier tells that it is complete."""
        return self.path.data == BULK_TENSOR

    def multicast_ranks(self) -> tuple[int, ...]:
        """The workgroups that it fills, by rank; empty: the executing one."""
        return () if self.multicast is None else ints(self.multicast)

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.copy needs {rank} offsets, got {len(self.offsets)}")
        if not is_shared(self.destination.type):
            raise VerifyException("tile.copy writes shared buffers only")
        if self.barrier is not None and not self.is_bulk:
            raise VerifyException(f"tile.copy by '{self.path.data}' completes in a queue, it signals no barrier")
        if self.multicast is not None and not self.is_bulk:
            raise VerifyException(f"tile.copy by '{self.path.data}' fills the executing workgroup alone")
        if memref_type(self.view).element_type != memref_type(self.destination).element_type:
            raise VerifyException("tile.copy: element types of view and buffer differ")
        if (spec := machine_of(self)) is not None:
            self.check_machine(spec)
        if self.multicast is not None:
            check_ranks(self, self.multicast_ranks())
        if self.barrier is not None:
            if not isinstance(self.barrier.type, MbarrierType):
                raise VerifyException(f"tile.copy signals a !sync.mbarrier, not {self.barrier.type}")
            check_single_barrier(self.barrier)
        _verify_tile_dims(ints(self.dims), memref_type(self.destination).get_shape(), rank)

    def check_machine(self, spec: TargetSpec) -> None:
        """Raises Misuse where the machine has no such copies."""
        queue = spec.queue_for("copy_in")
        if spec.bulk_tensor is None if self.is_bulk else queue is None or queue.path != self.path.data:
            fix = "use tile.load and tile.local_store, or a path of the machine"
            raise Misuse(f"{spec.name} has no copies by '{self.path.data}'", fix)

    def effects(self) -> tuple[Effect, ...]:
        shape = memref_type(self.destination).get_shape()
        whole = Slice((0,) * len(shape), tuple(shape))
        source = _view_slice(self.offsets, ints(self.dims), shape)
        if self.is_bulk:
            done = "mbarrier" if self.barrier is not None else "program_order"
            return (
                Effect(self.view, "read", source, "async", done),
                Effect(self.destination, "write", whole, "async", done),
            )
        return (
            Effect(self.view, "read", source, "generic", "queue", "copy_in"),
            Effect(self.destination, "write", replace(whole, own_part=True), "generic", "queue", "copy_in"),
        )


@irdl_op_definition
class CopyOutOp(IRDLOperation, HasEffects):
    """Hardware copy of a shared buffer into a view's box; elements outside the view are not written. Issued by one thread.

    Its group in the queue of the role "copy_out" is complete when the global array is written; a wait with `read` asks only that the buffer
    is free.
    `repeats`: copies of the same agent that say so too may write some of its elements, in any order, with the same values.
    """

    name = "tile.copy_out"
    source = operand_def(builtin.MemRefType)
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    dims = prop_def(Attribute)
    path = prop_def(builtin.StringAttr)
    repeats = opt_prop_def(builtin.UnitAttr)
    assembly_format = (
        "$source `,` $view `[` $offsets `]` `dims` $dims `path` $path (`repeats` $repeats^)? attr-dict `:` type($source) `,` type($view)"
    )

    def __init__(
        self, source: SSAValue, view: SSAValue, offsets: Sequence[SSAValue], dims: Sequence[int], *, path: str, repeats: bool = False
    ) -> None:
        unit = builtin.UnitAttr() if repeats else None
        super().__init__(
            operands=[source, view, list(offsets)],
            properties={"dims": i64_array(dims), "path": builtin.StringAttr(path), "repeats": unit},
        )

    def verify_(self) -> None:
        rank = len(memref_type(self.view).get_shape())
        if len(self.offsets) != rank:
            raise VerifyException(f"tile.copy_out needs {rank} offsets, got {len(self.offsets)}")
        if not is_shared(self.source.type):
            raise VerifyException("tile.copy_out reads shared buffers only")
        if self.path.data != BULK_TENSOR:
            raise VerifyException(f"tile.copy_out: unknown path '{self.path.data}'")
        if memref_type(self.view).element_type != memref_type(self.source).element_type:
            raise VerifyException("tile.copy_out: element types of view and buffer differ")
        _verify_tile_dims(ints(self.dims), memref_type(self.source).get_shape(), rank)
        if (spec := machine_of(self)) is not None:
            self.check_machine(spec)

    def check_machine(self, spec: TargetSpec) -> None:
        """Raises Misuse where the machine has no such copies."""
        if spec.bulk_tensor is None:
            raise Misuse(f"{spec.name} has no copies by '{self.path.data}'", "use tile.local_load and tile.store")

    def effects(self) -> tuple[Effect, ...]:
        shape = memref_type(self.source).get_shape()
        return (
            Effect(self.source, "read", Slice((0,) * len(shape), tuple(shape)), "async", "queue", "copy_out"),
            Effect(self.view, "write", _view_slice(self.offsets, ints(self.dims), shape), "async", "queue", "copy_out"),
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
