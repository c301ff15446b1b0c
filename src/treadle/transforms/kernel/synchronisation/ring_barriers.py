"""Full and empty barriers of the rings that roles hand over: waits, announced bytes, turns of ping-pong roles; who owes which slot.

Who fills a slot waits until the readers of the round before have handed it back. Bulk copies signal the full barrier themselves, once the
bytes are announced. Threads that fill a slot, or copies that threads wait for, owe it to its readers from the last write on. Who reads a
slot waits until it is full, and owes it to who fills it from the last access on. What is owed is handed over by the walk of
`sync_flow.py`, where the accesses are known to be over. Slots that threads copy while those before are still in flight are handed over as
many steps later as the loop says (`late_fills.py`).
"""

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial

from treadle.analysis.synchronisation.hand_overs import HandOver, Visit, hand_overs
from treadle.analysis.synchronisation.operations import is_arithmetic, is_idle, is_matrix
from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import role_of
from treadle.ir.ancestry import blocks_around, in_block
from treadle.ir.core import Block, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.carried_values import also_yield
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before
from treadle.transforms.kernel.synchronisation.announced_copies import announce
from treadle.transforms.kernel.synchronisation.issue_turns import order_issue
from treadle.transforms.kernel.synchronisation.late_fills import hand_over_late, late_fill
from treadle.transforms.kernel.synchronisation.ring_places import RingPlaces, flipped
from treadle.transforms.kernel.synchronisation.teams import Team, Teams
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(frozen=True, slots=True)
class Release:
    """A slot that is handed over at `barrier` once the accesses to `buffers` up to `after` are over, in `after`'s block.

    `peers`: it is handed over at the barriers of these workgroups of the cluster, which are `relative` to the executing one or not.
    `crosses_proxies`: it was written by threads and is read through the async proxy.
    """

    after: Operation
    barrier: sync.MbarrierSlotOp
    buffers: tuple[tile.AllocOp, ...]
    peers: tuple[int, ...] = ()
    relative: bool = False
    crosses_proxies: bool = False


@dataclass(frozen=True, slots=True)
class Regained:
    """A slot of `buffers` whose `barrier` a role waits for before it fills it again: all its warps know what they did there before."""

    wait: Operation
    barrier: sync.MbarrierSlotOp
    buffers: tuple[tile.AllocOp, ...]


@dataclass(frozen=True, slots=True)
class Owed:
    """What the barriers of rings leave to the walk of `sync_flow.py`."""

    releases: list[Release] = field(default_factory=list[Release])
    regained: list[Regained] = field(default_factory=list[Regained])


def insert_ring_barriers(kernel: tile.KernelOp, spec: TargetSpec) -> Owed:
    """Synchronise what roles hand over, but for handing slots over. Raises TR301 for what cannot be handed over."""
    owed = Owed()
    places = RingPlaces()
    unpaced: list[Operation] = []
    for roles in [op for op in kernel.walk() if isinstance(op, pipe.RolesOp)]:
        rings = hand_overs(roles)
        stretches = {role: _stretch([v.block for ring in rings for v in ring.reads if v.role == role]) for role in roles.alternating()}
        for ring in rings:
            waits = _RingBarriers(roles, ring, places, owed, spec).insert()
            unpaced += waits if ring.is_bulk and not _is_paced(ring, rings) else []
        _order_turns(roles, rings, stretches, places)
        order_issue(roles, places, spec)
        if any(ring.ranks() for ring in rings):
            _meet_peers(roles)
    places.expand(kernel)
    _meet_before_fills(kernel, unpaced)
    for op in kernel.walk():
        op.attributes.pop(pipe.STEPS_IN_FLIGHT, None)
        op.attributes.pop(pipe.FILLS_IN_FLIGHT, None)
        op.attributes.pop(pipe.ISSUE_TURNS, None)
    owed.releases[:] = [replace(one, after=places.current(one.after)) for one in owed.releases]
    return owed


@dataclass(slots=True)
class _RingBarriers:
    """Writes the barriers of one ring."""

    roles: pipe.RolesOp
    ring: HandOver
    places: RingPlaces
    owed: Owed
    spec: TargetSpec

    def insert(self) -> list[Operation]:
        """Insert them, and say who owes which slot; the waits for slots to fill."""
        full = sync.MbarrierAllocOp(self.ring.full_arrivals(self.roles), self.ring.slots)
        empty = sync.MbarrierAllocOp(self.ring.arrivals(self.roles), self.ring.slots)
        insert_before(self.roles, full, empty)
        is_async = any(visit.is_async for visit in self.ring.reads)
        free: list[Operation] = []
        for fill in self.ring.fills:
            free.append(self._wait(fill, empty.result, starts_free=True))
            if self.ring.is_bulk:
                self._announce(fill, full.result)
            elif (late := late_fill(fill, self.places.current(fill.last), self.ring.slots, self.spec)) is not None:
                hand_over_late(late, full.result, crosses_proxies=is_async)
            else:
                owed = self._owed(fill, self.ring.fills, full.result)
                self.owed.releases.extend(replace(one, crosses_proxies=is_async) for one in owed)
        for visit in self.ring.reads:
            self._wait(visit, full.result, starts_free=False)
            owed = self._owed(visit, self.ring.reads, empty.result)
            self.owed.releases.extend(replace(one, peers=self.ring.ranks(), relative=self.ring.has_relative_ranks) for one in owed)
        return free

    def _wait(self, visit: Visit, barriers: SSAValue, *, starts_free: bool) -> Operation:
        """Wait for a slot's phase of this round; slots `starts_free`: for that of the round before, none in the first."""
        parity = self.places.parity(visit.slot, self.ring.slots, visit.first)
        first = self.places.current(visit.first)
        barrier = sync.MbarrierSlotOp(barriers, visit.slot)
        insert_before(first, barrier)
        if starts_free:
            parity = flipped(IndexBuilder(Builder(InsertPoint.before(first)), {}), parity)
        wait = sync.WaitPhaseOp(barrier.result, parity)
        insert_before(first, wait)
        if starts_free and not self.ring.is_bulk:
            self.owed.regained.append(Regained(wait, barrier, tuple(self.ring.buffers)))
        if not starts_free:
            compute_behind(barrier, wait, self.spec)
        return wait

    def _announce(self, fill: Visit, full: SSAValue) -> None:
        """Announce the bytes of a fill, and let its copies signal."""
        first, filled = self.places.current(fill.first), sync.MbarrierSlotOp(full, fill.slot)
        insert_before(first, filled)
        announce(first, fill.copies, filled.result)

    def _owed(self, visit: Visit, visits: list[Visit], barriers: SSAValue) -> list[Release]:
        """The slots owed behind a visit: its own, or that of the visit before it where a step's instructions run under the next step."""
        last = self.places.current(visit.last)
        loop = visit.block.parent_op()
        if isinstance(loop, scf.ForOp) and (ahead := self._ahead_of(loop, visits)) is not None:
            wider = self.places.widened(loop, ahead.slot)
            before = visit.block.args[-1]
            also_yield(visit.block, visit.slot)
            return [self._release(last, before, barriers), self._release(wider, wider.results[-1], barriers)]
        if any(isinstance(op, scf.ForOp) and self._ahead_of(op, visits) is visit for op in visit.block.ops):
            return []  # the loop behind it owes it
        return [self._release(last, visit.slot, barriers)]

    def _ahead_of(self, loop: scf.ForOp, visits: list[Visit]) -> Visit | None:
        """The visit right in front of a loop whose steps run under one another."""
        steps = loop.attributes.get(pipe.STEPS_IN_FLIGHT)
        if not isinstance(steps, builtin.IntegerAttr) or not steps.value.data:
            return None
        ahead = [v for v in visits if v.block is loop.parent and self.places.current(v.last).is_before_in_block(loop)]
        return ahead[-1] if ahead else None

    def _release(self, after: Operation, slot: SSAValue, barriers: SSAValue) -> Release:
        barrier = sync.MbarrierSlotOp(barriers, slot)
        insert_after(after, barrier)
        return Release(after, barrier, tuple(self.ring.buffers))


def compute_behind(barrier: sync.MbarrierSlotOp, wait: sync.WaitPhaseOp, spec: TargetSpec) -> None:
    """Move arithmetic from between matrix instructions and a wait (with its `barrier`) behind it. It runs under the instructions there
    as well, and assemblers, which move no arithmetic across a wait, cannot put it ahead of instructions that are to be issued first.
    """
    arithmetic: list[Operation] = []
    before = barrier.prev_op
    while before is not None and not is_matrix(before, spec):
        if is_arithmetic(before):
            arithmetic.append(before)
        elif not is_idle(before):
            return
        before = before.prev_op
    for op in arithmetic if before is not None else ():
        op.detach()
        insert_after(wait, op)


def _is_paced(ring: HandOver, rings: list[HandOver]) -> bool:
    """Whether a ring's slots are handed back only where those of one that all threads of its role fill are full, in the same steps."""
    fills, reads = ({visit.block for visit in visits} for visits in (ring.fills, ring.reads))
    threads = [other for other in rings if not other.is_bulk]
    return any({v.block for v in other.fills} >= fills and {v.block for v in other.reads} >= reads for other in threads)


def _meet_before_fills(kernel: tile.KernelOp, waits: list[Operation]) -> None:
    """Let all warps of a group see a slot free before one thread fills it: it may be handed back, and its phase end, without the others."""
    roles, teams = [role_of(wait) for wait in waits], Teams(kernel)
    executing = [1 if role is None else role.executing_warps for role in roles]  # a meeting changes who executes a role
    for wait, role, warps in zip(waits, roles, executing, strict=True):
        if role is not None and warps > 1:
            team = Team((kernel, role.first_warp), role.warps, role.groups, role.groups > 1)
            insert_after(wait, teams.barrier(team))


def _meet_peers(roles: pipe.RolesOp) -> None:
    """Peers reach the barriers and the rings from here on; none may end while they still do."""
    insert_before(roles, sync.ClusterBarrierOp())
    insert_after(roles, sync.ClusterBarrierOp())


def _order_turns(roles: pipe.RolesOp, rings: list[HandOver], stretches: dict[int, Block | None], places: RingPlaces) -> None:
    """Let the roles that take turns begin one after another, each in the block of a turn.

    Without it one could take a phase of a ring's barriers for its own that belongs to what another reads. Rings that are read one after
    the other have turns of their own: what an epilogue reads does not keep the next role from its main loop.
    """
    turns = roles.alternating()
    if not turns or None in stretches.values():
        return
    found: list[_Turn] = []
    for ring in rings:
        if all(any(visit.role == role for visit in ring.reads) for role in turns):
            found = _joined(found, _Turn({r: _around(ring, r, block, places) for r, block in stretches.items() if block is not None}))
    for turn in found:
        _order_turn(roles, turn, stretches, places)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What roles do in turn: of each, the first and the last operation of its stretch."""

    ends: dict[int, tuple[Operation, Operation]]


def _around(ring: HandOver, role: int, block: Block, places: RingPlaces) -> tuple[Operation, Operation]:
    """The first and the last operation of a block in which a role reads a ring."""
    inside = [places.current(op) for visit in ring.reads if visit.role == role for op in (visit.first, visit.last)]
    around = {in_block(op, block) for op in inside}
    first, *_, last = [op for op in (*block.ops, *block.ops) if op in around]
    return first, last


def _joined(turns: list[_Turn], new: _Turn) -> list[_Turn]:
    """The turns with one more: those that overlap it, in any role, are one with it."""
    apart: list[_Turn] = []
    for turn in turns:
        if all(_is_apart(turn.ends[role], new.ends[role]) for role in new.ends):
            apart.append(turn)
        else:
            new = _Turn({role: _hull(turn.ends[role], ends) for role, ends in new.ends.items()})
    return [*apart, new]


def _is_apart(one: tuple[Operation, Operation], other: tuple[Operation, Operation]) -> bool:
    return one[1].is_before_in_block(other[0]) or other[1].is_before_in_block(one[0])


def _hull(one: tuple[Operation, Operation], other: tuple[Operation, Operation]) -> tuple[Operation, Operation]:
    first = one[0] if one[0].is_before_in_block(other[0]) else other[0]
    return first, other[1] if one[1].is_before_in_block(other[1]) else one[1]


def _order_turn(roles: pipe.RolesOp, turn: _Turn, stretches: dict[int, Block | None], places: RingPlaces) -> None:
    turns = roles.alternating()
    barriers = sync.MbarrierAllocOp(roles.role_groups()[turns[0]], len(turns))
    insert_before(roles, barriers)
    for number, role in enumerate(turns):
        if (block := stretches[role]) is None:
            continue
        first, last = turn.ends[role]
        while isinstance(first.prev_op, sync.WaitPhaseOp | sync.MbarrierSlotOp):
            first = first.prev_op
        parity = _turn_parity(block, places, first, starts=number == 0)
        mine = _slot_of(barriers, number)
        insert_before(first, *mine, sync.WaitPhaseOp(mine[-1].results[0], parity))
        for hand_on in _behind_waits(last):
            following = _slot_of(barriers, (number + 1) % len(turns))
            hand_on(*following, sync.ArriveOp(following[-1].results[0]))


def _behind_waits(last: Operation) -> list[Callable[..., None]]:
    """What inserts behind the last operation of a turn; where that is a conditional, on each way behind the last wait of it: what its
    instructions compute may still be in flight.
    """
    if isinstance(last, scf.IfOp) and all(region.blocks for region in last.regions):
        return [insert for region in last.regions for insert in _behind_waits_in(region.block)]
    while isinstance(last.next_op, sync.MbarrierSlotOp):
        last = last.next_op
    return [partial(insert_after, last)]


def _behind_waits_in(block: Block) -> list[Callable[..., None]]:
    waits = [op for op in block.ops if any(isinstance(inner, sync.WaitPhaseOp) for inner in op.walk())]
    if waits:
        return _behind_waits(waits[-1])
    return [partial(insert_before, block.last_op)] if block.last_op is not None else []


def _slot_of(barriers: sync.MbarrierAllocOp, number: int) -> tuple[Operation, Operation]:
    index = arith.ConstantOp(builtin.IntegerAttr(number, builtin.IndexType()))
    return index, sync.MbarrierSlotOp(barriers.result, index.result)


def _turn_parity(block: Block, places: RingPlaces, first: Operation, *, starts: bool) -> SSAValue:
    """The parity that a role's turn waits for: a fresh barrier has completed parity 1, so that the first role begins at once."""
    initial = arith.ConstantOp(builtin.IntegerAttr(1 if starts else 0, builtin.i32))
    loop = block.parent_op()
    if not isinstance(loop, scf.ForOp):
        insert_before(first, initial)
        return initial.result
    insert_before(loop, initial)
    places.widened(loop, initial.result)
    end = block.last_op
    if isinstance(end, scf.YieldOp):
        end.operands = (*end.operands, flipped(IndexBuilder(Builder(InsertPoint.before(end)), {}), block.args[-1]))
    return block.args[-1]


def _stretch(blocks: list[Block]) -> Block | None:
    """The block that is one turn of a role that reads in `blocks`: an iteration of the outermost loop around all of them."""
    chains = [list(blocks_around(block)) for block in blocks]
    common = [block for block in chains[0] if all(block in chain for chain in chains)] if chains else []
    loops = [block for block in common if isinstance(block.parent_op(), scf.ForOp)]
    return (loops or common or [None])[-1]
