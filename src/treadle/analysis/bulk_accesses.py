"""What of a kernel may go in and out by descriptor copies: loads and stores whose views they take, and what stands around them."""

from collections.abc import Sequence

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.view_access import access_facts, is_zero
from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.slicing import slice_refusal
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim
from treadle.plan.role_tiles import box_widths
from treadle.plan.staging import box_layout, bulk_refusal

BoxType = builtin.TensorType[Attribute]


def is_elementwise(op: Operation) -> bool:
    """Whether an operation computes each element of its one tile from the same element of its operands."""
    if not op.name.startswith(("arith.", "math.")) or len(op.results) != 1 or not op.operands or not is_tile(op.results[0]):
        return False
    shape = tile.tile_type(op.results[0]).get_shape()
    return all(tile.tile_type(v).get_shape() == shape for v in op.operands if is_tile(v))


def stored_value(store: tile.StoreOp) -> tuple[SSAValue, tuple[Operation, ...]]:
    """The tile before it was brought into the store's layout, and the operations that did it (last first)."""
    load = store.value.owner
    if isinstance(load, tile.ConvertLayoutOp) and len(tuple(load.result.uses)) == 1:
        return load.source, (load,)
    if isinstance(load, tile.LocalLoadOp) and load.peer is None and set(tile.ints(load.offsets)) == {0}:
        alloc = load.source.owner
        writers = [use.operation for use in load.source.uses if isinstance(use.operation, tile.LocalStoreOp)]
        if isinstance(alloc, tile.AllocOp) and len(writers) == 1 and len(tuple(load.source.uses)) == 2:
            return writers[0].value, (load, writers[0], alloc)
    return store.value, ()


def store_refusal(store: tile.StoreOp, spec: TargetSpec) -> str | None:
    """Why a store cannot go in bulk, None where it can."""
    kind = tile.tile_type(store.value)
    dims = tile.ints(store.dims)
    if spec.bulk_tensor is None or len(dims) != 2:
        return "the machine has no bulk copies of such tiles"
    facts = access_facts(store.view, list(store.offsets), dims, kind.get_shape())
    reason = bulk_refusal(facts, dims[-1], spec.bulk_tensor)
    if reason is not None:
        return reason
    inner = facts.dims[dims[-1]]
    if inner.stride != 1:
        return "the tile's last dimension is not the unit-stride one"
    if (inner.size_divisor * facts.element_bytes) % spec.bulk_tensor.base_align_bytes:
        # A descriptor copy writes whole 16-byte pieces: a ragged row end would spill into the next row's start.
        return f"rows of {inner.size} elements do not end at {spec.bulk_tensor.base_align_bytes} bytes"
    return None


def own_copies(stores: Sequence[tile.StoreOp]) -> dict[tile.StoreOp, dict[SSAValue, tile.CopyOp]]:
    """For each store the copies of tiles that it is computed from and no other is, by their buffers."""
    found: dict[tile.StoreOp, dict[SSAValue, tile.CopyOp]] = {store: {} for store in stores}
    readers: dict[SSAValue, list[tile.StoreOp]] = {}
    for store in stores:
        for copy in copies_behind(store):
            found[store][copy.destination] = copy
            readers.setdefault(copy.destination, []).append(store)
    return {store: {buffer: copy for buffer, copy in mine.items() if len(readers[buffer]) == 1} for store, mine in found.items()}


def copies_behind(store: tile.StoreOp) -> list[tile.CopyOp]:
    """The bulk copies that bring what a store's tile is computed from to its threads."""
    found: dict[tile.CopyOp, None] = {}
    pending, seen = [store.value], set[SSAValue]()
    while pending:
        op = pending.pop().owner
        if not isinstance(op, Operation):
            continue
        if isinstance(op, tile.LocalLoadOp):
            users = [use.operation for use in op.source.uses]
            found |= dict.fromkeys(user for user in users if isinstance(user, tile.CopyOp) and user.parent is store.parent)
            operands = [user.value for user in users if isinstance(user, tile.LocalStoreOp)]
        else:
            operands = [value for value in op.operands if is_tile(value)]
        pending += [value for value in operands if value not in seen]
        seen.update(operands)
    return list(found)


def box_types(store: tile.StoreOp, spec: TargetSpec) -> tuple[BoxType, ...] | str:
    """The boxes that the rows of a store's tile are cut into, in order, or why its layout does not allow them."""
    value, _ = stored_value(store)
    kind, layout = tile.tile_type(value), tile.layout_of(value)
    if spec.bulk_tensor is None or layout is None:
        raise InternalError("store-in-bulk after assign-layouts only")
    rows, columns = kind.get_shape()
    widths = box_widths(columns, element_bytes(kind.element_type), spec.bulk_tensor.box_bytes)
    if widths is None:
        return f"{columns} columns are no whole number of the narrowest boxes"
    refusals = (slice_refusal(layout, (rows, width)) for width in widths)
    if (reason := next((found for found in refusals if found is not None), None)) is not None:
        return reason
    return tuple(builtin.TensorType(kind.element_type, (rows, width)) for width in widths)


def load_layout(load: tile.LoadOp, spec: TargetSpec) -> SharedLayout | str:
    """Where a descriptor copy puts the tile of a load, or why none can bring it."""
    if spec.bulk_tensor is None:
        return f"{spec.name} has no descriptor copies"
    kind, dims = tile.tile_type(load.result), tile.ints(load.dims)
    shape, size = kind.get_shape(), element_bytes(kind.element_type)
    if len(shape) != 2 or 1 in shape:
        return "the tile has not two dimensions"
    if not is_zero(load.other):
        return "elements outside the array are not zero"
    along = contiguous_dim(tile.view_strides(load.view), dims, shape)
    facts = access_facts(load.view, tuple(load.offsets), dims, shape)
    reason = bulk_refusal(facts, None if along is None else dims[along], spec.bulk_tensor)
    if reason is not None or along is None:
        return reason or "no dimension of the tile has unit stride"
    layout = box_layout(shape, (along, 1 - along), size, spec.bulk_tensor)
    return layout or f"rows of {shape[along] * size} bytes are no whole pieces of {spec.bulk_tensor.base_align_bytes}"
