"""store-in-bulk: results leave through shared memory and descriptor copies instead of through each thread's own stores.

Level: tile. Reads: a tile.store whose value was just brought into another layout through shared memory, or stored as it is; the view's
facts; the machine's bulk copies. Writes: the tile cut into boxes as wide as the widest swizzle (what is left of a row: as wide as narrower
ones, at last 16 bytes without one), each put into one of two buffers and sent with tile.copy_out; boxes of one shape share the buffers,
whatever result they belong to.
Leaves alone: kernels without roles; stores whose view breaks a rule of bulk copies (a remark names it).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

from treadle import remarks
from treadle.analysis.bulk_accesses import BoxType, box_types, is_elementwise, own_copies, store_refusal, stored_value
from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import pipe, tile
from treadle.dialects.tile_types import is_tile
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.slicing import slice_layout
from treadle.machine import BulkTensorCopy, TargetSpec
from treadle.plan.access import contiguous_dim
from treadle.plan.mixed_widths import MixedWidths
from treadle.plan.role_forms import leave_box_by_box
from treadle.plan.role_tiles import box_buffers
from treadle.plan.staging import box_layout
from treadle.records import dataclass
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import (
    KernelPass,
    erase,
    erase_if_unused,
    insert_before,
)

NAME = "store-in-bulk"


PURE = (tile.LocalLoadOp, tile.LoadOp, tile.BroadcastOp, tile.SliceOp, tile.ConvertLayoutOp)


class Boxes:
    """Boxes of tiles, computed box by box: elementwise arithmetic of a whole tile would hold all its registers at once.

    `is_large`: accumulators leave no registers for what several boxes read; each is read behind the one before (assemblers move loads of
    arrays that nobody writes ahead of all barriers). `mixed`: the tiles' two widths. Boxes that reach beyond a narrow tile's columns are
    moved back to end with them there. `own`: copies of tiles that nothing but this store is computed from: each box of them is a copy of
    its own.
    """

    def __init__(
        self, store: tile.StoreOp, mixed: MixedWidths | None, own: Mapping[SSAValue, tile.CopyOp], rules: BulkTensorCopy, *, is_large: bool
    ) -> None:
        self.store = store
        self.is_large = is_large
        self.mixed = mixed
        self.own, self.rules = own, rules
        self.made: dict[tuple[SSAValue, int], SSAValue] = {}

    @cached_property
    def is_narrow(self) -> SSAValue:
        """Whether the tile is one of the narrow ones."""
        first = 0 if self.mixed is None else self.mixed.first_narrow
        place = self._insert(tile.ProgramIdOp(0))
        bound = self._insert(arith.ConstantOp(builtin.IntegerAttr(first, builtin.IndexType())))
        return self._insert(arith.CmpiOp(place, bound, "uge"))

    def moved(self, at: int, width: int) -> int:
        """Where a box begins in a narrow tile."""
        return at if self.mixed is None else min(at, self.mixed.narrow - width)

    def shift(self, at: int, width: int) -> SSAValue:
        """The column of the tile at which a box begins."""
        wide = self._insert(arith.ConstantOp(builtin.IntegerAttr(at, builtin.IndexType())))
        if self.moved(at, width) == at:
            return wide
        narrow = self._insert(arith.ConstantOp(builtin.IntegerAttr(self.moved(at, width), builtin.IndexType())))
        return self._insert(arith.SelectOp(self.is_narrow, narrow, wide))

    def of(self, value: SSAValue, at: int, width: int) -> SSAValue:
        """Columns `at` to `at + width` of a tile; a tile of one column stands for all of them."""
        if (value, at) not in self.made:
            self.made[value, at] = self._make(value, at, width)
        return self.made[value, at]

    def _make(self, value: SSAValue, at: int, width: int) -> SSAValue:
        kind, layout, op = tile.tile_type(value), tile.layout_of(value), value.owner
        rows, columns = kind.get_shape()
        if columns == 1:
            return value
        if layout is None:
            raise InternalError("store-in-bulk after assign-layouts only")
        part = tile.tile_of((rows, width), kind.element_type, slice_layout(layout, (rows, width)))
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.DenseIntOrFPElementsAttr):
            number = cast("float", op.value.get_values()[0])
            typed = cast("builtin.TensorType[builtin.IntegerType]", part)
            return self._insert(arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(typed, [cast(int, number)])))
        if isinstance(op, tile.LoadOp):
            offsets, along = list(op.offsets), tile.ints(op.dims)[1]
            offsets[along] = self._insert(arith.AddiOp(offsets[along], self.shift(at, width)))
            vector, other, dims = op.vector.value.data, op.other, tile.ints(op.dims)
            return self._insert(tile.LoadOp(op.view, offsets, dims, part, vector=vector, other=other, is_ordered=self.is_large))
        if isinstance(op, tile.LocalLoadOp) and op.source in self.own and (box := self._copied(self.own[op.source], at, part)) is not None:
            return box
        if isinstance(op, tile.LocalLoadOp) and op.peer is None:
            row, column = tile.ints(op.offsets)
            wide, narrow = at, self.moved(at, width)
            found = [self._insert(tile.LocalLoadOp(op.source, (row, column + place), part)) for place in dict.fromkeys((wide, narrow))]
            return found[0] if len(found) == 1 else self._insert(arith.SelectOp(self.is_narrow, found[1], found[0]))
        if isinstance(op, tile.BroadcastOp):
            return self._insert(tile.BroadcastOp(self.of(op.source, at, width), part))
        if isinstance(op, Operation) and is_elementwise(op):
            operands = [self.of(v, at, width) if is_tile(v) else v for v in op.operands]
            new = type(op).create(
                operands=operands, result_types=[part], properties=dict(op.properties), attributes=dict(op.attributes), location=op.location
            )
            return self._insert(new)
        wide = self._insert(tile.SliceOp(value, (0, at), (rows, width)))
        if self.moved(at, width) == at:
            return wide
        narrow = self._insert(tile.SliceOp(value, (0, self.moved(at, width)), (rows, width)))
        return self._insert(arith.SelectOp(self.is_narrow, narrow, wide))

    def _copied(self, copy: tile.CopyOp, at: int, part: BoxType) -> SSAValue | None:
        """A box of what a copy brings, by a copy of its own (a slot of a ring, in roles); None where the box is no whole pieces."""
        shape, dims, size = part.get_shape(), tile.ints(copy.dims), element_bytes(part.element_type)
        along = contiguous_dim(tile.view_strides(copy.view), dims, tile.memref_type(copy.destination).get_shape())
        layout = None if along is None else box_layout(shape, (along, 1 - along), size, self.rules)
        if layout is None:
            return None
        buffer = self._insert(tile.AllocOp(tile.shared_buffer_type(shape, part.element_type, layout)))
        offsets = list(copy.offsets)
        offsets[dims[1]] = self._insert(arith.AddiOp(offsets[dims[1]], self.shift(at, shape[1])))
        insert_before(self.store, tile.CopyOp(copy.view, offsets, dims, buffer, path=copy.path.data))
        return self._insert(tile.LocalLoadOp(buffer, (0, 0), part))

    def _insert(self, op: Operation) -> SSAValue:
        insert_before(self.store, op)
        return op.results[0]


@dataclass(slots=True)
class Ring:
    """Buffers that boxes of one shape take in turn, those of all stores together: `filled` of them have been so far."""

    alloc: tile.AllocOp
    box: SharedLayout
    filled: int = 0

    def next_slot(self) -> int:
        """The buffer of the next box."""
        self.filled += 1
        return (self.filled - 1) % tile.memref_type(self.alloc.result).get_shape()[0]


def erase_unused(value: SSAValue) -> None:
    """Erase what nothing uses any more of what a tile was computed from, copies into buffers that nobody reads included."""
    op = value.owner
    is_pure = isinstance(op, PURE) or (isinstance(op, Operation) and op.name.startswith(("arith.", "math.")))
    if not isinstance(op, Operation) or not is_pure or op.parent is None or any(tuple(result.uses) for result in op.results):
        return
    operands = list(op.operands)
    op.detach()
    op.erase()
    for operand in operands:
        uses = [use.operation for use in operand.uses]
        if isinstance(operand.owner, tile.AllocOp) and all(isinstance(user, tile.CopyOp) for user in uses):
            for dead in (*uses, operand.owner):
                dead.detach()
                dead.erase()
        elif is_tile(operand):
            erase_unused(operand)


def make_rings(by_store: Mapping[tile.StoreOp, Sequence[BoxType]], rules: BulkTensorCopy) -> dict[BoxType, Ring]:
    """The buffers for all boxes of all stores, in front of the first."""
    boxes = Counter(kind for kinds in by_store.values() for kind in kinds)
    elements = max((sum(kind.element_count() for kind in kinds) for kinds in by_store.values()), default=0)
    rings: dict[BoxType, Ring] = {}
    for kind, count in boxes.items():
        box = box_layout(kind.get_shape(), (1, 0), element_bytes(kind.element_type), rules)
        if box is None:
            raise InternalError(f"results in boxes of {kind}")
        buffers = box_buffers(count, elements)
        alloc = tile.AllocOp(tile.shared_buffer_type((buffers, *kind.get_shape()), kind.element_type, box.stacked(buffers)))
        insert_before(next(iter(by_store)), alloc)
        rings[kind] = Ring(alloc, box)
    return rings


def _rewrite(store: tile.StoreOp, kinds: Sequence[BoxType], rings: Mapping[BoxType, Ring], boxes: Boxes) -> None:
    value, old = stored_value(store)
    mixed = boxes.mixed
    inner = tile.ints(store.dims)[-1]
    # Boxes that end behind this column share columns with one that is moved in narrow tiles; the first is the widest.
    alone = tile.tile_type(value).get_shape()[1] if mixed is None else mixed.narrow - kinds[0].get_shape()[1]
    at = 0
    for kind in kinds:
        ring, width = rings[kind], kind.get_shape()[1]
        part = boxes.of(value, at, width)
        place = arith.ConstantOp(builtin.IntegerAttr(ring.next_slot(), builtin.IndexType()))
        slot = pipe.SlotOp(ring.alloc.result, [place.result], ring.box)
        offset = arith.AddiOp(store.offsets[inner], boxes.shift(at, width))
        offsets = [offset.result if d == inner else o for d, o in enumerate(store.offsets)]
        insert_before(
            store,
            place,
            slot,
            tile.LocalStoreOp(part, slot.result, (0, 0)),
            offset,
            tile.CopyOutOp(slot.result, store.view, offsets, tile.ints(store.dims), path="bulk_tensor", repeats=at + width > alone),
        )
        at += width
    erase(store)
    for op in old:
        if isinstance(op, tile.LocalStoreOp):
            erase(op)
        else:
            erase_if_unused(op)
    if boxes.own:  # roles are formed of what is there: a whole tile that nobody needs would be brought too
        erase_unused(value)


@register_pass
@dataclass(frozen=True)
class StoreInBulkPass(KernelPass):
    """Works on kernels that set-roles will be asked about (of a form with roles)."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the stores of one kernel."""
        config = config_of(kernel)
        if not isinstance(config, roles.Config):
            return
        by_store: dict[tile.StoreOp, tuple[BoxType, ...]] = {}
        for store in [op for op in kernel.body.block.ops if isinstance(op, tile.StoreOp)]:
            reason = store_refusal(store, spec)
            boxes = box_types(store, spec) if reason is None else reason
            if isinstance(boxes, tuple):
                by_store[store] = boxes
            else:
                reason = boxes
            text = "stored by descriptor copies" if reason is None else f"stored by the threads: {reason}"
            remarks.emit("decision" if reason is None else "refusal", NAME, kernel.sym_name.data, text, location_of(store))
        if (rules := spec.bulk_tensor) is None:
            return
        rings = make_rings(by_store, rules)
        own = own_copies([op for op in kernel.body.block.ops if isinstance(op, tile.StoreOp)])
        threads = kernel.num_warps.value.data * spec.subgroup_size
        for store, kinds in by_store.items():
            is_large = leave_box_by_box(tile.tile_type(store.value).element_count(), threads)
            _rewrite(store, kinds, rings, Boxes(store, config.mixed_widths, own[store], rules, is_large=is_large))
