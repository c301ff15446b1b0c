"""fold-rings: loops with stages whose rings bring operands ahead become loops that load them, where a producer brings them ahead by itself.

Level: tile. Reads: loops with stages (or that ask for them) of kernels whose form has roles, their buffers of several slots, the loads that
fill them. Writes: a read of a slot becomes the load that filled it, at the place of the iteration that reads; the stages, the buffers and
what filled them are taken out; the kernel's form, which what is no ring of loads takes back, so that groups of warps run the stages. Leaves
alone: kernels without stages.

On machines with descriptor copies the groups of a warp pipeline are best its consumers: a warp of its own copies further ahead than the
ring of the stages, without registers and without their barriers.

*Why it is the same.* A ring is filled by one store an iteration, of a load at places that are linear in the number of the iteration. Slots
are compared as congruences (`analysis/slots.py`): the read meets the store of `ahead` iterations before and none in between, and in the
first iterations what stands ahead of the loop, which must have loaded what that store would have. Nothing writes to the array.
"""

from collections.abc import Callable, Sequence
from typing import cast

from treadle.analysis.slot_motion import LoopMotion
from treadle.analysis.slot_values import SlotValues, Trip, is_inside
from treadle.analysis.slots import Atom, Congruence, Linear, atom, exactly, same
from treadle.dialects import pipe, tile
from treadle.dialects.stages import WARP_PIPELINE, EndStageOp, StageOp
from treadle.ir.core import BlockArgument, Builder, InsertPoint, Operation, OpResult, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import give_location, location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, erase_if_unused, outermost_in_kernel, written
from treadle.transforms.kernel.tiling.index_math import IndexBuilder

NAME = "fold-rings"


@dataclass(frozen=True, slots=True)
class Ring:
    """A buffer of slots that `store` fills with `load` once an iteration of `loop`, `ahead` iterations ahead of the `reads`.

    `turned`: the permutation of the load that is stored, where it is. `first`: what fills it ahead of the loop.
    """

    alloc: tile.AllocOp
    loop: scf.ForOp
    load: tile.LoadOp
    turned: tile.PermuteOp | None
    store: tile.LocalStoreOp
    reads: tuple[tile.LocalLoadOp, ...]
    first: tuple[tile.LocalStoreOp, ...]
    ahead: int


class _NoRing(Exception):
    """What keeps a buffer from being one."""


@register_pass
@dataclass(frozen=True)
class FoldRingsPass(KernelPass):
    """Works on kernels with stages whose form is decided: what folds keeps it."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Fold all rings of one kernel, or none."""
        loops = [op for op in kernel.body.walk() if isinstance(op, scf.ForOp) and _has_stages(op)]
        marks = [op for op in kernel.body.walk() if isinstance(op, StageOp | EndStageOp)]
        if kernel.config is None or not (loops or marks):
            return
        try:
            if spec.bulk_tensor is None or spec.register_moves is None:
                raise _NoRing("the machine has no warps that copy for others")
            if any(not isinstance(mark.parent_op(), scf.ForOp) for mark in marks):
                raise _NoRing("stages stand outside of loops")
            changed, values = written(kernel), SlotValues()
            allocs = [op for op in kernel.body.walk() if isinstance(op, tile.AllocOp)]
            held = {alloc: found for alloc in allocs if (found := kept(alloc, kernel)) is not None}
            rings = [ring_of(alloc, loops, values, changed) for alloc in allocs if alloc not in held]
            if not all(any(isinstance(op, tile.ContractOp) for op in loop.body.block.ops) for loop in loops):
                raise _NoRing("a loop with stages multiplies nothing")
            places = [_places(ring, values) for ring in rings]
        except _NoRing as problem:
            kernel.properties.pop("config", None)
            emit("refusal", NAME, kernel.sym_name.data, f"groups of warps run the stages: {problem}", location_of((loops or marks)[0]))
            return
        for ring, forms in zip(rings, places, strict=True):
            _fold(ring, forms)
        for alloc, (store, reads) in held.items():
            for read in reads:
                read.result.replace_all_uses_with(store.value)
            _take_out(alloc, store, *reads)
        erase(*marks)
        for loop in loops:
            loop.attributes.pop(WARP_PIPELINE, None)
        text = "the stages' rings are the producer's: its copies run ahead by themselves, and the groups of warps are its consumers"
        emit("decision", NAME, kernel.sym_name.data, text, location_of(loops[0]))


def _has_stages(loop: scf.ForOp) -> bool:
    return WARP_PIPELINE in loop.attributes or any(isinstance(op, StageOp) for op in loop.body.block.ops)


def ring_of(alloc: tile.AllocOp, loops: Sequence[scf.ForOp], values: SlotValues, changed: frozenset[SSAValue]) -> Ring:
    """The ring that a buffer is. Raises _NoRing with what keeps it from being one."""
    slots = [use.operation for use in alloc.result.uses]
    accesses = [use.operation for slot in slots if isinstance(slot, pipe.SlotOp) for use in slot.result.uses]
    if not all(isinstance(slot, pipe.SlotOp) and len(slot.indices) == 1 for slot in slots):
        raise _NoRing("a buffer is used as a whole, or has slots in slots")
    stores = [op for op in accesses if isinstance(op, tile.LocalStoreOp)]
    reads = [op for op in accesses if isinstance(op, tile.LocalLoadOp)]
    if len(stores) + len(reads) != len(accesses) or any(set(tile.ints(op.offsets)) - {0} for op in (*stores, *reads)):
        raise _NoRing("a slot is not read and filled as a whole")
    inside = [(op, loop) for op in stores for loop in loops if op.parent is loop.body.block]
    if len(inside) != 1:
        raise _NoRing(f"{len(inside)} stores in loops with stages fill its slots, not one")
    store, loop = inside[0]
    load, turned = _loaded(store)
    if load.parent is not loop.body.block:
        raise _NoRing("what fills a slot is loaded ahead of the loop")
    first = tuple(sorted((op for op in stores if op.parent is loop.parent and op.is_before_in_block(loop)), key=_order_of))
    if len(first) + 1 != len(stores) or not reads or any(op.parent is not loop.body.block for op in reads):
        raise _NoRing("a slot is read or filled elsewhere than in the loop and ahead of it")
    if any(op.result.type != store.value.type for op in reads) or any(use.operation not in (store, turned) for use in load.result.uses):
        raise _NoRing("what fills a slot is used otherwise")
    if not isinstance(view := load.view.owner, tile.ViewOp) or view.pointer in changed:
        raise _NoRing("the kernel writes to the array that is loaded")
    ahead = {_ahead(loop, store, read, values) for read in reads}
    if len(ahead) != 1:
        raise _NoRing("a slot is read in several iterations")
    return Ring(alloc, loop, load, turned, store, tuple(reads), first, ahead.pop())


def _loaded(store: tile.LocalStoreOp) -> tuple[tile.LoadOp, tile.PermuteOp | None]:
    """The load whose tile, or a permutation of it, is stored."""
    found = store.value.owner
    turned = found if isinstance(found, tile.PermuteOp) else None
    load = found if turned is None else turned.source.owner
    if not isinstance(load, tile.LoadOp):
        raise _NoRing("what fills a slot is computed, not loaded")
    return load, turned


def kept(alloc: tile.AllocOp, kernel: tile.KernelOp) -> tuple[tile.LocalStoreOp, tuple[tile.LocalLoadOp, ...]] | None:
    """The store that fills a buffer of one slot once, in the kernel's own block, and the reads, which all stand behind it; else None."""
    slots = [use.operation for use in alloc.result.uses]
    accesses = [use.operation for slot in slots if isinstance(slot, pipe.SlotOp) for use in slot.result.uses]
    stores = [op for op in accesses if isinstance(op, tile.LocalStoreOp)]
    reads = tuple(op for op in accesses if isinstance(op, tile.LocalLoadOp))
    if len(stores) != 1 or len(stores) + len(reads) != len(accesses) or tile.memref_type(alloc.result).get_shape()[0] != 1:
        return None
    store = stores[0]
    is_whole = all(not set(tile.ints(op.offsets)) - {0} for op in (store, *reads)) and all(isinstance(slot, pipe.SlotOp) for slot in slots)
    is_behind = store.parent is kernel.body.block and all(store.is_before_in_block(outermost_in_kernel(op)) for op in reads)
    return (store, reads) if is_whole and is_behind and all(op.result.type == store.value.type for op in reads) else None


def _slot(access: tile.LocalStoreOp | tile.LocalLoadOp, values: SlotValues) -> Congruence:
    slot = (access.destination if isinstance(access, tile.LocalStoreOp) else access.source).owner
    if not isinstance(slot, pipe.SlotOp):
        raise _NoRing("a slot is chosen by a branch")
    return values.of(slot.indices[0])


def _extent(access: tile.LocalStoreOp) -> int:
    slot = access.destination.owner
    return tile.memref_type(slot.source).get_shape()[0] if isinstance(slot, pipe.SlotOp) else 0


def _ahead(loop: scf.ForOp, store: tile.LocalStoreOp, read: tile.LocalLoadOp, values: SlotValues) -> int:
    """How many iterations before a read the store last filled its slot."""
    motion, extent = LoopMotion(loop, values), _extent(store)
    wanted, filled = _slot(read, values), _slot(store, values)
    for apart in range(extent + 1):
        if (apart or store.is_before_in_block(read)) and (met := same(filled, wanted, extent)) != "never":
            if met == "always":
                return apart
            break
        filled = motion.around(filled)
    raise _NoRing("which iteration has filled the slot that is read is not known")


def _places(ring: Ring, values: SlotValues) -> list[Linear | SSAValue]:
    """Where the load of an iteration reads what the ring holds for it: forms in the loop's own number, or values from ahead of it.

    Raises _NoRing where that is not linear, or where the first iterations read something else.
    """
    loop, motion = ring.loop, LoopMotion(ring.loop, values)
    offsets = [values.of(offset) for offset in ring.load.offsets]
    for _ in range(ring.ahead):
        offsets = [motion.around(offset) for offset in offsets]
    trip, step, low = Trip(loop), values.of(loop.step).constant, values.of(loop.lb)
    if any(offset.modulus for offset in offsets) or not step or low.modulus:
        raise _NoRing("where a load reads is not linear in the number of the iteration")
    wanted = values.of(_slot_index(ring.reads[0]))
    for number in range(ring.ahead):
        slot, *here = (form.substitute(_at(trip, number)) for form in (wanted, *offsets))
        _check_first(ring, number, slot, here, values)
    forms: list[Linear | SSAValue] = []
    for offset, old in zip(offsets, ring.load.offsets, strict=True):
        speed = offset.form.coefficient(trip)
        if not speed and not is_inside(old, loop):
            forms.append(old)
            continue
        if speed % step:
            raise _NoRing("where a load reads is not linear in the loop's number")
        along = atom(loop.body.block.args[0]) * (speed // step)
        form = offset.form - atom(trip) * speed - low.form * (speed // step) + along
        if form.constant < 0 or any(not isinstance(a, SSAValue) or c < 0 for a, c in form.terms):
            raise _NoRing("where a load reads is no sum of numbers")
        forms.append(form)
    return forms


def _at(trip: Trip, number: int) -> Callable[[Atom], Congruence]:
    """What atoms are in iteration `number`."""
    return lambda a: exactly(Linear(number) if a == trip else atom(a))


def _slot_index(read: tile.LocalLoadOp) -> SSAValue:
    slot = read.source.owner
    if not isinstance(slot, pipe.SlotOp):
        raise _NoRing("a slot is chosen by a branch")
    return slot.indices[0]


def _check_first(ring: Ring, number: int, slot: Congruence, offsets: Sequence[Congruence], values: SlotValues) -> None:
    """Raises _NoRing unless iteration `number` reads from ahead of the loop what the loop's own load would have read for it."""
    extent = _extent(ring.store)
    met = [(same(_slot(store, values), slot, extent), store) for store in ring.first]
    if any(known == "maybe" for known, _ in met) or not any(known == "always" for known, _ in met):
        raise _NoRing(f"what iteration {number} reads was not filled ahead of the loop")
    load, turned = _loaded(next(store for known, store in reversed(met) if known == "always"))
    same_turn = (turned is None and ring.turned is None) or (turned and ring.turned and turned.properties == ring.turned.properties)
    same_load = same_turn and load.view is ring.load.view and load.properties == ring.load.properties
    if not same_load or [values.of(v) for v in load.offsets] != list(offsets):
        raise _NoRing(f"what fills the slot of iteration {number} ahead of the loop is not what the loop loads in others")


def _fold(ring: Ring, places: Sequence[Linear | SSAValue]) -> None:
    """Load where the ring was read; take the ring out."""
    for read in ring.reads:
        index = IndexBuilder(Builder(InsertPoint.before(read)), {})
        offsets = [_value(index, form) if isinstance(form, Linear) else form for form in places]
        load = tile.LoadOp(ring.load.view, offsets, tile.ints(ring.load.dims), tile.tile_type(read.result), other=ring.load.other)
        give_location(load, ring.load.location)
        found = index.insert(load)
        read.result.replace_all_uses_with(found if ring.turned is None else index.insert(ring.turned.clone({ring.load.result: found})))
    _take_out(ring.alloc, ring.store, *ring.first, *ring.reads)


def _take_out(alloc: tile.AllocOp, *accesses: tile.LocalStoreOp | tile.LocalLoadOp) -> None:
    """Erase a buffer, its accesses, and what computed the tiles that they stored alone."""
    tiles = [op.value.owner for op in accesses if isinstance(op, tile.LocalStoreOp)]
    sources = [value.owner for op in tiles if isinstance(op, tile.PermuteOp) for value in op.operands]
    slots = [use.operation for use in alloc.result.uses]
    erase(*accesses)
    for op in (*tiles, *sources, *slots, alloc):
        if isinstance(op, tile.LoadOp | tile.PermuteOp | pipe.SlotOp | tile.AllocOp):
            erase_if_unused(op)


def _value(index: IndexBuilder, form: Linear) -> SSAValue:
    """A form whose atoms are values, as arithmetic."""
    terms = {cast(SSAValue, a): coefficient for a, coefficient in form.terms}
    value: SSAValue = index.constant(form.constant)
    for a in sorted(terms, key=_place_of):
        value = index.add(index.multiply(a, terms[a]), value)
    return value


def _place_of(value: SSAValue) -> tuple[int, ...]:
    """A stable order of values: by their places in the kernel."""
    if isinstance(value, BlockArgument):
        around = value.block.parent_op()
        return (*(() if around is None else _order_of(around)), value.index)
    return _order_of(cast(OpResult, value).op)


def _order_of(op: Operation) -> tuple[int, ...]:
    """The same of operations."""
    path: list[int] = []
    at: Operation | None = op
    while at is not None and at.parent is not None:
        path.append(1 + at.parent.get_operation_index(at))
        at = at.parent_op()
    return tuple(reversed(path))
