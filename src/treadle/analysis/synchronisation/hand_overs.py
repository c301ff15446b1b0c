"""Which buffers roles hand to each other, and when: rings, the fills of one role, and the visits of the roles that read them.

A *visit* is everything that a role does to a slot of a ring under one value of the slot's number: that value lives in one block, and the
visit lasts from the first to the last operation of that block that touches the slot. Buffers that are always visited together share a
ring. Pure: nothing is changed here.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple, TypeGuard

from treadle.analysis.buffers import buffer_view
from treadle.analysis.synchronisation.operations import refused
from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import Effect, HasEffects
from treadle.ir.ancestry import ancestors, in_block
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.records import dataclass


@dataclass(eq=False, slots=True)
class Visit:
    """One use of a slot by a role: in `block`, from `first` to `last`, operations of it. `places`: the `pipe.slot`s that name the slot.

    `copies`: the bulk copies into it. `fills`: something is written to it. `is_async`: something goes through the async proxy.
    """

    role: int
    block: Block
    first: Operation
    last: Operation
    places: list[pipe.SlotOp]
    copies: list[tile.CopyOp] = field(default_factory=list[tile.CopyOp])
    fills: bool = False
    is_async: bool = False

    @property
    def slot(self) -> SSAValue:
        """The slot's number."""
        return self.places[0].indices[0]


@dataclass(eq=False, slots=True)
class HandOver:
    """One ring: its buffers, how many slots they have, who fills it, who reads it (in program order)."""

    buffers: list[tile.AllocOp]
    slots: int
    fills: list[Visit] = field(default_factory=list[Visit])
    reads: list[Visit] = field(default_factory=list[Visit])

    @property
    def is_bulk(self) -> bool:
        """Whether bulk copies fill it, which signal their barrier themselves; else threads do, or copies that they wait for."""
        return all(visit.copies for visit in self.fills)

    def full_arrivals(self, roles: pipe.RolesOp) -> int:
        """How many agents say that a slot is full: who announces the bytes, or all groups of the role that fills it."""
        return 1 if self.is_bulk else roles.role_groups()[self.fills[0].role]

    def ranks(self) -> tuple[int, ...]:
        """The workgroups of the cluster that fill each other's slots; none where each fills its own."""
        return tuple(sorted({rank for fill in self.fills for copy in fill.copies for rank in copy.multicast_ranks()}))

    @property
    def has_relative_ranks(self) -> bool:
        """Whether `ranks` are relative to the executing workgroup's, as those of copies in parts of a cluster are."""
        return any(copy.relative is not None for fill in self.fills for copy in fill.copies)

    def arrivals(self, roles: pipe.RolesOp) -> int:
        """How many agents hand a slot back: all groups of the roles that read it, of one role among those that take turns."""
        readers = sorted({visit.role for visit in self.reads})
        turns = [role for role in readers if role in roles.alternating()]
        counted = [role for role in readers if role not in turns[1:]]
        return sum(roles.role_groups()[role] for role in counted) * max(1, len(self.ranks()))


def hand_overs(roles: pipe.RolesOp) -> list[HandOver]:
    """The rings of a kernel's roles that one role fills and others read, as far as nothing orders them yet.

    Raises TR301 for what cannot be handed over.
    """
    touched: dict[tile.AllocOp, list[_Use]] = {}
    for role, region in enumerate(roles.roles):
        for op in region.walk():
            if isinstance(op, HasEffects):
                for effect in op.effects():
                    view = buffer_view(effect.resource)
                    if view is not None:
                        touched.setdefault(view.alloc, []).append(_Use(role, op, effect))
    rings: dict[tuple[bool, frozenset[tuple[int, SSAValue]]], HandOver] = {}
    for alloc, uses in touched.items():
        writers = {use.role for use in uses if use.effect.access == "write"}
        copies = [use.op for use in uses if is_bulk_copy(use.op)]
        if not writers or not {use.role for use in uses} - writers:
            continue
        if any(copy.barrier is not None for copy in copies) if copies else _waits_for_each_other(roles):
            continue
        visits = _visits(uses)
        key = bool(copies), frozenset((visit.role, visit.slot) for visit in visits)
        ring = rings.setdefault(key, HandOver([], tile.memref_type(alloc.result).get_shape()[0]))
        _add(ring, alloc, visits)
    for ring in rings.values():
        _check(ring)
    return list(rings.values())


class _Use(NamedTuple):
    role: int
    op: Operation
    effect: Effect


def is_bulk_copy(op: Operation) -> TypeGuard[tile.CopyOp]:
    """Whether an operation is a copy by the machine's copy engine."""
    return isinstance(op, tile.CopyOp) and op.is_bulk


def _waits_for_each_other(roles: pipe.RolesOp) -> bool:
    """Whether synchronisation between roles is there already: who wrote it hands over what threads fill, too."""
    for number, region in enumerate(roles.roles):
        own = roles.role_warps()[number] * roles.role_groups()[number]
        for op in region.walk():
            if isinstance(op, sync.WaitPhaseOp | sync.ArriveOp | sync.BarrierOp):
                return True
            if isinstance(op, sync.NamedBarrierOp) and op.warps.value.data > own:
                return True
    return False


def _outermost_slot(value: SSAValue) -> pipe.SlotOp | None:
    """The `pipe.slot` that takes a slot of the allocation itself."""
    found: pipe.SlotOp | None = None
    while isinstance(op := value.owner, pipe.SlotOp | pipe.PartOp):
        found = op if isinstance(op, pipe.SlotOp) else found
        value = op.source
    return found


def _visits(uses: Sequence[_Use]) -> list[Visit]:
    found: dict[tuple[int, SSAValue, Block], Visit] = {}
    for role, op, effect in uses:
        place = _outermost_slot(effect.resource)
        if place is None:
            raise refused(op, "a buffer without slots", "give the buffer a leading dimension of slots, one if need be")
        block = _home(place.indices[0], op)
        anchor = _within(block, op)
        visit = found.setdefault((role, place.indices[0], block), Visit(role, block, anchor, anchor, []))
        if place not in visit.places:
            visit.places.append(place)
        visit.first = anchor if anchor.is_before_in_block(visit.first) else visit.first
        visit.last = anchor if visit.last.is_before_in_block(anchor) else visit.last
        visit.fills = visit.fills or effect.access == "write"
        visit.is_async = visit.is_async or effect.proxy == "async"
        if is_bulk_copy(op):
            visit.copies.append(op)
    return list(found.values())


def _home(slot: SSAValue, op: Operation) -> Block:
    """The block in which a slot's number stands for one use: where it is defined; of a constant, the innermost loop around the use."""
    owner = slot.owner
    if isinstance(slot, BlockArgument):
        return slot.block
    if isinstance(owner, Operation) and not isinstance(owner, arith.ConstantOp) and owner.parent is not None:
        return owner.parent
    inside = next((o for o in (op, *ancestors(op)) if isinstance(o.parent_op(), scf.ForOp | pipe.RolesOp)), op)
    if inside.parent is None:
        raise refused(op, "an operation outside of blocks", "put it into the kernel")
    return inside.parent


def _within(block: Block, op: Operation) -> Operation:
    """The operation of a block that `op` is or lies in."""
    if (found := in_block(op, block)) is None:
        raise refused(op, "a slot outside of the block of its number", "use the slot where its number is defined")
    return found


def _add(ring: HandOver, alloc: tile.AllocOp, visits: list[Visit]) -> None:
    """Take a buffer into its ring, whose visits grow by what is done to it."""
    ring.buffers.append(alloc)
    for visit in visits:
        known = ring.fills if visit.fills else ring.reads
        same = next((v for v in known if v.role == visit.role and v.slot is visit.slot and v.block is visit.block), None)
        if same is None:
            known.append(visit)
            continue
        same.places += visit.places
        same.copies += visit.copies
        same.is_async = same.is_async or visit.is_async
        same.first = visit.first if visit.first.is_before_in_block(same.first) else same.first
        same.last = visit.last if same.last.is_before_in_block(visit.last) else same.last


def _check(ring: HandOver) -> None:
    """Refuse what no pair of barriers orders."""
    filling, reading = {visit.role for visit in ring.fills}, {visit.role for visit in ring.reads}
    if len(filling) > 1:
        one = next(visit.first for visit in ring.fills if visit.role != ring.fills[0].role)
        raise refused(one, "a buffer that several roles fill", "let one role fill it")
    if filling & reading:
        one = next(visit.first for visit in ring.reads if visit.role in filling)
        raise refused(one, "a buffer that its reader writes", "write to a buffer of the role itself")
    if not ring.is_bulk and any(visit.copies for visit in ring.fills):
        one = next(visit.first for visit in ring.fills if not visit.copies)
        raise refused(one, "a buffer that bulk copies and threads fill", "fill it in one way")
