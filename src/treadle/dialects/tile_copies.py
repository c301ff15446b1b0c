"""Operations of the `tile` dialect that hardware copies by: boxes from global to shared memory and back."""

from collections.abc import Sequence
from dataclasses import replace

from treadle.dialects.effects import Effect, HasEffects, Slice
from treadle.dialects.limits import check_ranks, machine_of
from treadle.dialects.sync import MbarrierType, check_single_barrier
from treadle.dialects.tile_attributes import is_shared
from treadle.dialects.tile_boxes import verify_tile_dims, view_slice
from treadle.dialects.tile_memory import ViewOp
from treadle.dialects.tile_types import (
    BULK_TENSOR,
    i64_array,
    ints,
    memref_type,
    view_strides,
)
from treadle.ir.core import (
    Attribute,
    AttrSizedOperandSegments,
    IRDLOperation,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin
from treadle.ir.misuse import Misuse
from treadle.machine import TargetSpec


@irdl_op_definition
class CopyOp(IRDLOperation, HasEffects):
    """Hardware copy of a view's box into a shared buffer (tile dimension j along view dimension `dims[j]`), zero outside the view.

    `path`: "bulk_tensor" (descriptor copy by one thread), or what the machine's row calls copies by all threads (each its part, completing
    in the queue of the role "copy_in"). At tile
    level the copy is complete when the next op starts; at schedule level `barrier`, where given, is the mbarrier it completes on.
    `multicast`: it fills the destination in each of these workgroups of the cluster, by rank, and signals each one's own `barrier`.
    `relative`: of those whose ranks combined with the executing one's by exclusive or are these.
    `vector`: of copies by all threads, how many elements along the view's unit stride a thread may move at once (aligned, and never
    across the end of the array).
    `repeats`: of copies by all threads, dimensions of the tile along which places behind the view's end are filled with what its last
    place has, not with zero: nothing is compared for them. The tile begins inside the view, whose size along them is known. None of them
    has unit stride, for along that one threads move several elements at once.
    """

    name = "tile.copy"
    view = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    destination = operand_def(builtin.MemRefType)
    barrier = opt_operand_def()
    dims = prop_def(Attribute)
    path = prop_def(builtin.StringAttr)
    multicast = opt_prop_def(Attribute)
    relative = opt_prop_def(builtin.UnitAttr)
    vector = opt_prop_def(builtin.IntegerAttr)
    repeats = opt_prop_def(Attribute)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$view `[` $offsets `]` `dims` $dims `,` $destination (`signals` $barrier^ `:` type($barrier))? `path` $path "
        "(`vector` $vector^)? (`repeats` $repeats^)? (`multicast` $multicast^)? (`relative` $relative^)? attr-dict "
        "`:` type($view) `,` type($destination)"
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
        relative: bool = False,
        vector: int = 0,
        repeats: Sequence[int] = (),
    ) -> None:
        ranks = None if multicast is None else i64_array(multicast)
        width = builtin.IntegerAttr(vector, builtin.i64) if vector else None
        super().__init__(
            operands=[view, list(offsets), destination, barrier],
            properties={
                "dims": i64_array(dims),
                "path": builtin.StringAttr(path),
                "multicast": ranks,
                "relative": builtin.UnitAttr() if relative else None,
                "vector": width,
                "repeats": i64_array(repeats) if repeats else None,
            },
        )

    @property
    def repeated(self) -> tuple[int, ...]:
        """Dimensions of the tile along which the last place of the view is repeated behind its end."""
        return () if self.repeats is None else ints(self.repeats)

    @property
    def is_bulk(self) -> bool:
        """Whether one thread issues it and a transaction barrier tells that it is complete."""
        return self.path.data == BULK_TENSOR

    def multicast_ranks(self, rank: int = 0) -> tuple[int, ...]:
        """The workgroups that it fills, by rank, where workgroup `rank` executes it; empty: that one."""
        ranks = () if self.multicast is None else ints(self.multicast)
        return ranks if self.relative is None else tuple([rank ^ other for other in ranks])

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
            check_ranks(self, self.multicast_ranks(), relative=self.relative is not None)
        elif self.relative is not None:
            raise VerifyException("tile.copy fills relative workgroups only where `multicast` lists them")
        if self.barrier is not None:
            if not isinstance(self.barrier.type, MbarrierType):
                raise VerifyException(f"tile.copy signals a !sync.mbarrier, not {self.barrier.type}")
            check_single_barrier(self.barrier)
        verify_tile_dims(ints(self.dims), memref_type(self.destination).get_shape(), rank)
        self._verify_repeats()

    def _verify_repeats(self) -> None:
        dims, sizes, view = ints(self.dims), memref_type(self.view).get_shape(), self.view.owner
        for axis in self.repeated:
            if self.is_bulk or not 0 <= axis < len(dims):
                raise VerifyException("tile.copy repeats places along dimensions of a tile that all threads copy")
            if sizes[dims[axis]] <= 0 or view_strides(self.view)[dims[axis]] in (None, 1):
                raise VerifyException("tile.copy repeats places along dimensions of known size that are rows of their own in memory")
            if isinstance(view, ViewOp) and view.folding is not None:
                raise VerifyException("tile.copy repeats no places of folded views")

    def check_machine(self, spec: TargetSpec) -> None:
        """Raises Misuse where the machine has no such copies."""
        queue = spec.queue_for("copy_in")
        if spec.bulk_tensor is None if self.is_bulk else queue is None or queue.path != self.path.data:
            fix = "use tile.load and tile.local_store, or a path of the machine"
            raise Misuse(f"{spec.name} has no copies by '{self.path.data}'", fix)

    def effects(self) -> tuple[Effect, ...]:
        shape = memref_type(self.destination).get_shape()
        whole = Slice((0,) * len(shape), tuple(shape))
        source = view_slice(self.offsets, ints(self.dims), shape)
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
        verify_tile_dims(ints(self.dims), memref_type(self.source).get_shape(), rank)
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
            Effect(self.view, "write", view_slice(self.offsets, ints(self.dims), shape), "async", "queue", "copy_out"),
        )
