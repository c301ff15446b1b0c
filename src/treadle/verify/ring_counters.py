"""Counters of rings: what roles carry through their loops to pick slots and parities, so that the count itself need not be known.

Where all that touches a ring names its slot as `count + constant` modulo the slots, and each wait its parity as that count's, the ring's
slots may be renamed: slot s becomes s + 1, the last one the first, whose phases then count as one more. What happens is the same, and what
is right stays right. So a run need not tell states apart that such a renaming makes the same (`ring_frames.py`), and what a role does in an
iteration does not depend on how far the count is: nodes name counters, and each agent has its own counts (`Agent.counts`).

A counter begins with a constant, once, before its role's first loop around it. It is carried as a number (a loop's own number, too), or as
a slot that wraps, with parities that change where it does. Its values are tables over the count (`ring_values.py`); `steps` says where it
goes on: at the end of an iteration, of a branch, or before a loop that begins some uses later. It goes on by constants, or by a size from
outside of all loops (the steps of a tile that others read): walks for all that the size may be modulo the counts have to agree, and the
class of a run shares which it is.
"""

from collections.abc import Iterator, Sequence
from math import lcm
from typing import TYPE_CHECKING, Protocol, TypeVar

from treadle.dialects import pipe, sync, tile
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.records import Record
from treadle.verify.regions import Buffer
from treadle.verify.ring_values import EXACT, RingSlice, RingValues, Table, Use
from treadle.verify.ring_walks import Cell, RingWalk
from treadle.verify.scalars import INDEX_BITS, constant_value, width_of

if TYPE_CHECKING:
    Op = TypeVar("Op", bound=Operation)

    class Operations(Protocol):
        """The operations of a kernel. `index`: their numbers, in order; `buffers`: what they allocate."""

        index: dict[Operation, int]
        buffers: dict[SSAValue, Buffer]

        def all(self, kind: type[Op], /) -> list[Op]:
            """Those of one class, in order."""
            ...


MAX_COUNTS = 64
"""So many counts are told apart: twice what the slots of all rings come round in."""


class Counter:
    """One counter. `start`: its first count; `region`: which role of which `pipe.roles` (the number of the operation) carries it; `group`:
    that of the rings that are renamed together.
    """

    __slots__ = ("group", "number", "region", "roles", "start")

    def __init__(self, number: int, start: int, roles: int, region: int) -> None:
        self.number, self.start, self.roles, self.region, self.group = number, start, roles, region, number


class Ring:
    """A buffer's slots along one of its leading dimensions, or an allocation of mbarriers (`dimension` -1), or one of these by itself, the
    ring of one slot that its `waits` come back to (`at`: its number, else 0).
    """

    __slots__ = ("alloc", "at", "dimension", "group", "slots", "waits")

    def __init__(self, alloc: Operation, dimension: int, slots: int, at: int = 0, waits: Sequence[Operation] = ()) -> None:
        self.alloc, self.dimension, self.slots, self.group = alloc, dimension, slots, -1
        self.at, self.waits = at, waits


class Going(Record):
    """By how much a counter goes on: `by`, and so many `times` a `size` besides."""

    counter: int
    by: int
    times: int = 0
    size: SSAValue | None = None


class RingCounters:
    """The counters of a program and the rings that they go round.

    `turned`: operands that pick a slot or parity, with their counter and what they are for each of `count` counts. `steps`: by how much
    counters go on at the end of a block, or before a loop. `moving`: loops and branches in which some do.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.counters: list[Counter] = []
        self.rings: list[Ring] = []
        self.turned: dict[Use, tuple[int, tuple[int, ...]]] = {}
        self.steps: dict[Operation, list[Going]] = {}
        self.moving: set[Operation] = set()

    @property
    def most_slots(self) -> int:
        """Those of the longest ring."""
        return max([ring.slots for ring in self.rings])

    def sizes(self) -> list[SSAValue]:
        """Values that counters go on by."""
        return list(dict.fromkeys(step.size for steps in self.steps.values() for step in steps if step.size is not None))

    def starts(self) -> tuple[int, ...]:
        """The first count of each counter."""
        return tuple([counter.start for counter in self.counters])


def ring_counters(program: "Operations") -> RingCounters | None:
    """The counters of a program's roles; None where there are none.

    Not where arrivals hand arrays on: what other workgroups know is no part of states. The rings of a cluster's workgroups are renamed
    together.
    """
    if not program.all(pipe.RolesOp) or program.all(tile.OrderedCounterOp):
        return None
    sizes = _sizes(program)
    count = 2 * lcm(*sizes)
    if not sizes or count > MAX_COUNTS:
        return None
    walks = [walk for roles in program.all(pipe.RolesOp) for walk in _walks(program, roles, sizes, count)]
    found = RingCounters(count)
    used = {use: (at, walk.uses[use]) for at, walk in reversed(list(enumerate(walks))) for use in walk.uses}
    rings = _rings(program, used)
    if not rings:
        return None
    _keep(found, walks, used, rings)
    return found


def _sizes(program: "Operations") -> list[int]:
    """The numbers of slots that rings have."""
    picked = [op for op in program.all(sync.MbarrierSlotOp) if not _is_fixed(op.index)]
    found = {op.source.owner.slot_count() for op in picked if isinstance(op.source.owner, sync.MbarrierAllocOp)}
    for op in program.all(pipe.SlotOp):
        shape = tile.memref_type(op.source).get_shape()
        found |= {size for size, index in zip(shape, op.indices, strict=False) if not _is_fixed(index)}
    return sorted(found - {1})


def _is_fixed(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and value.owner.name in ("arith.constant", "pipe.group_id")


# --- what is carried


def _walks(program: "Operations", roles: pipe.RolesOp, sizes: list[int], count: int) -> Iterator[RingWalk]:
    """The walks along all counters of some roles that are ones."""
    for region, role in enumerate(roles.roles):
        place, found = (program.index[roles], region), RingSlice(role.block)
        size = found.size()
        values = [RingValues(count, size, residue) for residue in range(count if size is not None else 1)]
        for loop in _outermost_loops(role.block):
            known = set[int]()
            for cells, start in _candidates(loop, sizes, found, values[0]):
                if next(iter(cells)) in known:
                    continue
                if (walk := _walked(role.block, values, (found, loop, cells, start, place))) is not None:
                    known |= walk.carried()
                    yield walk


def _walked(
    role: Block, values: list[RingValues], along: tuple[RingSlice, scf.ForOp, dict[int, Cell], int, tuple[int, int]]
) -> RingWalk | None:
    """The walk along a counter, one for all that a size may be; None where it is none."""
    dropped = set[Use]()
    while True:
        before = len(dropped)
        walks = [RingWalk(each, *along, dropped) for each in values]
        if not all(walk.is_counter(role) and walk.uses for walk in walks):
            return None
        if len(walks) == 1 or len(dropped) == before:
            return walks[0] if len(walks) == 1 or walks[0].joins(walks[1:]) else None


def _outermost_loops(block: Block) -> Iterator[scf.ForOp]:
    for op in block.ops:
        if isinstance(op, scf.ForOp):
            yield op
        elif isinstance(op, scf.IfOp):
            for region in op.regions:
                for inner in region.blocks:
                    yield from _outermost_loops(inner)


def _candidates(loop: scf.ForOp, sizes: list[int], found: RingSlice, values: RingValues) -> Iterator[tuple[dict[int, Cell], int]]:
    """What may be a counter: arguments of a loop's block as functions of a count, and the first count."""
    count = values.count
    numbers: Cell = tuple(range(count)), count
    starts = {at: start for at, value in enumerate(loop.iter_args, 1) if (start := _start(value, values)) is not None}
    arguments = loop.body.block.args
    bits = {at: bit for at, bit in starts.items() if bit in (0, 1) and arguments[at] in found.parities}

    def parities(size: int, start: int, but: int) -> dict[int, Cell]:
        return {at: (tuple([(x // size + start // size) % 2 ^ bit for x in range(count)]), EXACT) for at, bit in bits.items() if at != but}

    first, step = values.constant(loop.lb), values.constant(loop.step)
    if first is not None and first >= 0 and step is not None and step > 0:
        starts[0] = first
    for at, start in starts.items():
        of = [size for size in sizes if arguments[at] in found.slots.get(size, ())]
        if not of or (at and width_of(arguments[at].type) < INDEX_BITS):
            continue
        is_number = not at or _is_sum(loop, at)
        for size in of:
            if not is_number and start < size:
                slots: Cell = tuple([x % size for x in range(count)]), EXACT
                yield {at: slots, **parities(size, start, at)}, start
            if is_number and bits.keys() - {at}:
                yield {at: numbers, **parities(size, start, at)}, start % count
        if is_number:
            yield {at: numbers}, start % count
    for at in bits:  # parities of one mbarrier, whose slot nobody carries
        yield {at: parities(1, 0, -1)[at]}, 0


def _is_sum(loop: scf.ForOp, at: int) -> bool:
    """Whether what is handed on is a sum, through loops and branches: a number that grows, not a slot that wraps."""
    end = loop.body.block.last_op
    if end is None:
        return False
    value = end.operands[at - 1]
    while isinstance(owner := value.owner, scf.ForOp | scf.IfOp):
        at = owner.results.index(value)
        end = owner.regions[0].block.last_op
        if end is None:
            return False
        value = end.operands[at]
    return isinstance(owner, Operation) and owner.name == "arith.addi"


def _start(value: SSAValue, values: RingValues) -> int | None:
    if not isinstance(value.type, builtin.IndexType | builtin.IntegerType):
        return None
    found = values.constant(value)
    return found if found is not None and found >= 0 else None


# --- what goes round


def _offset(table: Table, slots: int) -> int | None:
    """By how much a slot is ahead of the count; None where it does not go round with it."""
    values, modulus = table
    first = values[0]
    is_round = modulus == EXACT and all(value == (first + x) % slots for x, value in enumerate(values))
    return first if is_round and len(values) % slots == 0 else None


def _rings(program: "Operations", used: dict[Use, tuple[int, Table]]) -> list[Ring]:
    """What is touched by slots alone that go round with counters."""
    found: list[Ring] = []
    for op in program.all(sync.MbarrierAllocOp):
        slots = op.slot_count()
        users = [use.operation for use in op.result.uses]
        if slots > 1 and users and all(_is_turned_barrier(user, used, slots) for user in users):
            found.append(Ring(op, -1, slots))
        elif slots > 1:
            found += _alone(op, used)
    for op in program.all(tile.AllocOp):
        shape, users = tile.memref_type(op.result).get_shape(), [use.operation for use in op.result.uses]
        if users and all(isinstance(user, pipe.SlotOp) for user in users) and not _shares_bytes(program, op):
            for at in range(min([len(user.operands) - 1 for user in users])):
                if all((given := used.get((user, at + 1))) and _offset(given[1], shape[at]) is not None for user in users):
                    found.append(Ring(op, at, shape[at]))
                    break
    return found


def _alone(op: sync.MbarrierAllocOp, used: dict[Use, tuple[int, Table]]) -> Iterator[Ring]:
    """The mbarriers of an allocation that constants pick, each by itself, whose waits have the parities of counts."""
    picks = [use.operation for use in op.result.uses]
    numbers = {pick: _number(pick.index) for pick in picks if isinstance(pick, sync.MbarrierSlotOp)}
    if len(numbers) < len(picks) or None in numbers.values():
        return
    for at in range(op.slot_count()):
        uses = [use.operation for pick, number in numbers.items() if number == at for use in pick.results[0].uses]
        waits = [wait for wait in uses if isinstance(wait, sync.WaitPhaseOp)]
        if waits and all((given := used.get((wait, 1))) is not None and _alternates(given[1]) for wait in waits):
            yield Ring(op, -1, 1, at, waits)


def _number(value: SSAValue) -> object:
    owner = value.owner
    return constant_value(owner) if isinstance(owner, Operation) and owner.name == "arith.constant" else None


def _alternates(table: Table) -> bool:
    """Whether parities change with each count."""
    return table[1] == EXACT and {value ^ x % 2 for x, value in enumerate(table[0])} in ({0}, {1})


def _is_turned_barrier(op: Operation, used: dict[Use, tuple[int, Table]], slots: int) -> bool:
    """Whether one of several mbarriers is that of a count, and who waits for it does so for the count's phase."""
    given = used.get((op, 1))
    if not isinstance(op, sync.MbarrierSlotOp) or given is None or (offset := _offset(given[1], slots)) is None:
        return False
    for use in op.result.uses:
        if not isinstance(use.operation, sync.WaitPhaseOp):
            continue
        parity = used.get((use.operation, 1))
        if parity is None or parity[0] != given[0] or parity[1][1] != EXACT:
            return False
        if {value ^ (offset + x) // slots % 2 for x, value in enumerate(parity[1][0])} not in ({0}, {1}):
            return False
    return True


def _shares_bytes(program: "Operations", op: tile.AllocOp) -> bool:
    one = program.buffers[op.result]
    return any(
        one is not other
        and one.first is not None
        and other.first is not None
        and one.first < other.first + other.size
        and other.first < one.first + one.size
        for other in program.buffers.values()
    )


def _keep(found: RingCounters, walks: list[RingWalk], used: dict[Use, tuple[int, Table]], rings: list[Ring]) -> None:
    """Keep the counters that go round rings, in groups of rings that are renamed together."""
    numbers: dict[int, Counter] = {}
    group_of: dict[int, int] = {}

    def turn(use: Use) -> Counter:
        at, table = used[use]
        if at not in numbers:
            numbers[at] = Counter(len(numbers), walks[at].start, *walks[at].place)
        found.turned[use] = numbers[at].number, table[0]
        return numbers[at]

    for ring in rings:
        together = [turn((wait, 1)) for wait in ring.waits]
        for use in ring.alloc.results[0].uses if not ring.waits else ():
            op = use.operation
            together.append(turn((op, 1 + max(ring.dimension, 0))))
            for wait in op.results[0].uses:
                if ring.dimension < 0 and isinstance(wait.operation, sync.WaitPhaseOp):
                    turn((wait.operation, 1))
        groups = {group_of.setdefault(counter.number, counter.number) for counter in together}
        ring.group = min(groups)
        for number, group in group_of.items():
            if group in groups:
                group_of[number] = ring.group
        for other in found.rings:
            if other.group in groups:
                other.group = ring.group
        found.rings.append(ring)
    for at, counter in numbers.items():
        counter.group = group_of[counter.number]
        found.counters.append(counter)
        for op, by in walks[at].steps.items():
            times = walks[at].sizes.get(op, 0)
            found.steps.setdefault(op, []).append(Going(counter.number, by, times, walks[at].values.size if times else None))
        found.moving |= walks[at].moving
    found.counters.sort(key=lambda counter: counter.number)
