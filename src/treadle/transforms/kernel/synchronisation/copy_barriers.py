"""Transaction barriers of bulk copies: which copies complete together, and where their phases are waited for.

Copies that stand together and fill the same slot share a *fill*: one expect before the first of them, one wait before the first operation
that touches what they write. Buffers that are always filled together share a *ring* of barriers, one for each slot. A data flow follows
fills to their first readers, through loops and branches. A fill whose reader cannot be told (its slot is not known to be the one, or it
was waited for on one path only) is waited for where it is made; a remark says so.
"""

from collections.abc import Iterator

from treadle.analysis.buffers import buffer_view
from treadle.analysis.shared_accesses import SharedAccess, shared_accesses, slot_count
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.synchronisation.fill_flow import Fill, FillFlow, PhaseWait, Ring, is_bulk_copy, never_filled
from treadle.analysis.synchronisation.operations import refused
from treadle.dialects import sync, tile
from treadle.ir.core import Block, Operation
from treadle.ir.locations import location_of
from treadle.remarks import emit as remark
from treadle.transforms.kernel.kernel_ir import insert_before
from treadle.transforms.kernel.synchronisation.announced_copies import announce
from treadle.transforms.kernel.synchronisation.phase_parity import insert_phase_waits, slot_barrier, standing_for

MAX_SLOTS = 32
"""Phases are kept as bits of an i32."""


def _blocks(op: Operation) -> Iterator[Block]:
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.ops:
                yield from _blocks(inner)


def _sites(kernel: tile.KernelOp, values: SlotValues) -> list[list[tile.CopyOp]]:
    """Copies of one block and one slot, each buffer once, that nothing between them touches."""
    found: list[list[tile.CopyOp]] = []
    for block in _blocks(kernel):
        current: list[tile.CopyOp] = []
        written: list[SharedAccess] = []
        for op in block.ops:
            touched = [a for inner in op.walk() for a in shared_accesses(inner, values)]
            if isinstance(op, tile.CopyOp) and is_bulk_copy(op):
                writes = [a for a in touched if a.is_write]
                if current and (writes[0].slots != written[0].slots or any(w.alloc is writes[0].alloc for w in written)):
                    found.append(current)
                    current, written = [], []
                current.append(op)
                written += writes
            elif any(a.overlaps(w) for a in touched for w in written):
                found.append(current)
                current, written = [], []
        if current:
            found.append(current)
    return found


def _fills(kernel: tile.KernelOp, values: SlotValues) -> list[Fill]:
    """The fills of a kernel: sites split so that buffers of one ring are always filled together."""
    sites = _sites(kernel, values)
    places: dict[tile.AllocOp, list[int]] = {}
    dims: dict[tile.AllocOp, int] = {}
    for number, site in enumerate(sites):
        for copy in site:
            view = buffer_view(copy.destination)
            if view is None:
                raise refused(copy, "a bulk copy into something that tile.alloc does not give", "copy into a buffer of the kernel's own")
            if dims.setdefault(view.alloc, len(view.indices)) != len(view.indices):
                raise refused(copy, "a buffer that bulk copies fill by slots and whole", "fill it in one way")
            places.setdefault(view.alloc, []).append(number)
    rings: dict[tuple[object, ...], list[tile.AllocOp]] = {}
    for alloc, numbers in places.items():
        extents = tile.shared_layout_of(alloc.result).shape[: dims[alloc]]
        rings.setdefault((tuple(numbers), extents), []).append(alloc)
    home: dict[tile.AllocOp, Ring] = {}
    for members in rings.values():
        ring = Ring(frozenset(members), dims[members[0]], slot_count(members[0], dims[members[0]]))
        home.update(dict.fromkeys(members, ring))
    fills: list[Fill] = []
    for site in sites:
        parts: dict[Ring, Fill] = {}
        for copy in site:
            view = buffer_view(copy.destination)
            if view is not None:
                ring = home[view.alloc]
                parts.setdefault(ring, Fill([], view.indices, ring)).copies.append(copy)
        fills += parts.values()
    return fills


def _place_waits(kernel: tile.KernelOp, fills: list[Fill], values: SlotValues) -> list[PhaseWait]:
    """Where the phases are waited for; rings that cannot be followed become eager."""
    accesses = {op: shared_accesses(op, values) for op in kernel.walk()}
    starts: dict[Operation, Fill] = {f.copies[0]: f for f in fills}
    ends: dict[Operation, Fill] = {f.copies[-1]: f for f in fills}
    for _ in range(len({f.ring for f in fills}) + 1):
        walk = FillFlow(values, starts, ends, accesses)
        walk.block(kernel.body.block, never_filled(fills, accesses), emit=True)
        if not walk.refused:
            return walk.waits
        for ring in walk.refused:
            ring.is_eager = True
            at = next(f.copies[0] for f in fills if f.ring is ring)
            text = "copies are waited for at once: which of them a reader needs cannot be told from the slots"
            remark("note", "insert-sync", kernel.sym_name.data, text, location_of(at))
    raise refused(fills[0].copies[0], "bulk copies of which no order is known", "use the slots of a buffer in turn")


def insert_copy_barriers(kernel: tile.KernelOp) -> None:
    """Give every fill its expect and its wait."""
    top = kernel.body.block.first_op
    if top is None or not any(is_bulk_copy(op) for op in kernel.walk()):
        return
    values = SlotValues()
    fills = _fills(kernel, values)
    waits = _place_waits(kernel, fills, values)
    barriers: dict[Ring, sync.MbarrierAllocOp] = {}
    for fill in fills:
        ring = fill.ring
        if ring.slots > MAX_SLOTS:
            raise refused(fill.copies[0], f"a buffer of {ring.slots} slots that bulk copies fill", f"use at most {MAX_SLOTS} slots")
        if ring not in barriers:
            barriers[ring] = sync.MbarrierAllocOp(1, ring.slots if ring.slots > 1 else None)
            insert_before(top, barriers[ring])
    replaced = insert_phase_waits(kernel, {ring: alloc.result for ring, alloc in barriers.items()}, waits)
    for fill in fills:
        indices = tuple(standing_for(index, replaced) for index in fill.indices)
        barrier = slot_barrier(fill.copies[0], barriers[fill.ring].result, fill.ring, indices)[0]
        announce(fill.copies[0], fill.copies, barrier)
