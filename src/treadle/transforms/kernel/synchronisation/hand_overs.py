"""Which buffers roles hand to each other, and when: rings, the fills of one role, and the visits of the roles that read them.

A *visit* is everything that a role does to a slot of a ring under one value of the slot's number: that value lives in one block, and the
visit lasts from the first to the last operation of that block that touches the slot. Buffers that are always visited together share a
ring. Pure: nothing is changed here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle import errors
from treadle.analysis.buffers import buffer_view
from treadle.dialects import pipe, tile
from treadle.dialects.effects import HasEffects
from treadle.errors import TreadleError
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.locations import location_of


@dataclass(eq=False, slots=True)
class Visit:
    """One use of a slot by a role: in `block`, from `first` to `last`, operations of it. `places`: the `pipe.slot`s that name the slot."""

    role: int
    block: Block
    first: Operation
    last: Operation
    places: list[pipe.SlotOp]
    copies: list[tile.CopyOp] = field(default_factory=list[tile.CopyOp])

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

    def ranks(self) -> tuple[int, ...]:
        """The workgroups of the cluster that fill each other's slots; none where each fills its own."""
        return tuple(sorted({rank for fill in self.fills for copy in fill.copies for rank in copy.multicast_ranks()}))

    def arrivals(self, roles: pipe.RolesOp) -> int:
        """How many agents hand a slot back: all groups of the roles that read it, of one role among those that take turns."""
        readers = sorted({visit.role for visit in self.reads})
        turns = [role for role in readers if role in roles.alternating()]
        counted = [role for role in readers if role not in turns[1:]]
        return sum(roles.role_groups()[role] for role in counted) * max(1, len(self.ranks()))


def hand_overs(roles: pipe.RolesOp) -> list[HandOver]:
    """The rings of a kernel's roles that copies fill and no barrier orders yet. Raises TR301 for what cannot be handed over."""
    touched: dict[tile.AllocOp, list[tuple[int, Operation, pipe.SlotOp | None]]] = {}
    for role, region in enumerate(roles.roles):
        for op in region.walk():
            if isinstance(op, HasEffects):
                for effect in op.effects():
                    view = buffer_view(effect.resource)
                    if view is not None:
                        touched.setdefault(view.alloc, []).append((role, op, _outermost_slot(effect.resource)))
    rings: dict[frozenset[tuple[int, SSAValue]], HandOver] = {}
    for alloc, uses in touched.items():
        copies = [op for _, op, _ in uses if isinstance(op, tile.CopyOp)]
        if len({role for role, _, _ in uses}) < 2 or not copies or any(copy.barrier is not None for copy in copies):
            continue
        visits = _visits(uses)
        key = frozenset((visit.role, visit.slot) for visit in visits)
        ring = rings.setdefault(key, HandOver([], tile.memref_type(alloc.result).get_shape()[0]))
        _add(ring, alloc, visits)
    for ring in rings.values():
        _check(ring)
    return list(rings.values())


def _outermost_slot(value: SSAValue) -> pipe.SlotOp | None:
    """The `pipe.slot` that takes a slot of the allocation itself."""
    found: pipe.SlotOp | None = None
    while isinstance(op := value.owner, pipe.SlotOp | pipe.PartOp):
        found = op if isinstance(op, pipe.SlotOp) else found
        value = op.source
    return found


def _visits(uses: Sequence[tuple[int, Operation, pipe.SlotOp | None]]) -> list[Visit]:
    found: dict[tuple[int, SSAValue, Block], Visit] = {}
    for role, op, place in uses:
        if place is None:
            raise _refused(op, "a buffer without slots", "give the buffer a leading dimension of slots, one if need be")
        block = _home(place.indices[0], op)
        anchor = _within(block, op)
        visit = found.setdefault((role, place.indices[0], block), Visit(role, block, anchor, anchor, []))
        if place not in visit.places:
            visit.places.append(place)
        visit.first = anchor if anchor.is_before_in_block(visit.first) else visit.first
        visit.last = anchor if visit.last.is_before_in_block(anchor) else visit.last
        if isinstance(op, tile.CopyOp):
            visit.copies.append(op)
    return list(found.values())


def _home(slot: SSAValue, op: Operation) -> Block:
    """The block in which a slot's number stands for one use: where it is defined; of a constant, the innermost loop around the use."""
    owner = slot.owner
    if isinstance(slot, BlockArgument):
        return slot.block
    if isinstance(owner, Operation) and not isinstance(owner, arith.ConstantOp) and owner.parent is not None:
        return owner.parent
    current = op
    while not isinstance(current.parent_op(), scf.ForOp | pipe.RolesOp):
        parent = current.parent_op()
        if parent is None:
            break
        current = parent
    if current.parent is None:
        raise _refused(op, "an operation outside of blocks", "put it into the kernel")
    return current.parent


def _within(block: Block, op: Operation) -> Operation:
    """The operation of a block that `op` is or lies in."""
    current = op
    while current.parent is not block:
        parent = current.parent_op()
        if parent is None:
            raise _refused(op, "a slot outside of the block of its number", "use the slot where its number is defined")
        current = parent
    return current


def _add(ring: HandOver, alloc: tile.AllocOp, visits: list[Visit]) -> None:
    """Take a buffer into its ring, whose visits grow by what is done to it."""
    ring.buffers.append(alloc)
    for visit in visits:
        known = ring.fills if visit.copies else ring.reads
        same = next((v for v in known if v.role == visit.role and v.slot is visit.slot and v.block is visit.block), None)
        if same is None:
            known.append(visit)
            continue
        same.places += visit.places
        same.copies += visit.copies
        same.first = visit.first if visit.first.is_before_in_block(same.first) else same.first
        same.last = visit.last if same.last.is_before_in_block(visit.last) else same.last


def _check(ring: HandOver) -> None:
    """Refuse what no barrier of copies completes."""
    filling = {visit.role for visit in ring.fills}
    if len(filling) != 1 or filling & {visit.role for visit in ring.reads}:
        one = (ring.fills or ring.reads)[0].first
        raise _refused(
            one, "a buffer between roles that is not filled by the copies of one role and read by others", "fill it by bulk copies"
        )
    for visit in ring.fills:
        if any(not copy.is_bulk for copy in visit.copies):
            raise _refused(visit.copies[0], f"a hand-over of a copy by '{visit.copies[0].path.data}'", "copy by 'bulk_tensor'")
    for visit in ring.reads:
        if any(
            not isinstance(use.operation, tile.ContractOp | tile.LocalLoadOp | pipe.SlotOp) for p in visit.places for use in p.result.uses
        ):
            raise _refused(visit.first, "a buffer that its reader writes", "write to a buffer of the role itself")


def _refused(op: Operation, what: str, hint: str) -> TreadleError:
    return TreadleError(errors.UNSUPPORTED, location_of(op), what=what, hint=hint)
