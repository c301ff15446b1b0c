"""A kernel as the checker sees it: its agents, its memory, and which of its values decide what happens.

Register tiles are tokens here; scalars matter where a slot, a parity, a loop bound or a branch depends on them, and nowhere else.
"""

from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, TypeVar, cast

from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import roles_of, split_of
from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.global_arrays import pointers_of
from treadle.dialects.tile_attributes import PointerType, is_shared
from treadle.ir.ancestry import operands_of
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.machine import TargetSpec, target_spec
from treadle.records import Record
from treadle.verify.idle import idle_operations
from treadle.verify.regions import Buffer
from treadle.verify.scalars import sources_of
from treadle.verify.structure import check_structure

_DECIDED = (pipe.SlotOp, pipe.PartOp, sync.MbarrierSlotOp, sync.WaitPhaseOp)
_AT_COUNTERS = (tile.CountInOp, tile.AwaitTurnOp, tile.PassTurnOp)
_MAYBE_ELECTED = frozenset(
    op.name for op in (tile.CopyOp, tile.CopyOutOp, *_AT_COUNTERS, sync.MbarrierExpectOp, sync.CommitOp, sync.WaitOp)
)
Op = TypeVar("Op", bound=Operation)
if TYPE_CHECKING:
    from treadle.verify.ring_counters import RingCounters


class Strand(Record):
    """Warps that stand for some of a team: `warps` of them. `trace`: which trace of `pipe.roles` it runs (-1: the kernel's own).

    `roles`: which `pipe.roles`, as the number of the operation in the kernel. `rank`: its workgroup within the cluster. Teams are numbered
    through the cluster.
    """

    number: int
    name: str
    team: int
    group: int
    warps: int
    is_elected: bool
    trace: int = -1
    counts_alone: bool = False
    rank: int = 0
    roles: int = -1


class Mbarriers:
    """The mbarriers of a kernel, numbered; `base[op]` is the number of an allocation's first."""

    def __init__(self, allocs: Iterable[sync.MbarrierAllocOp]) -> None:
        self.base: dict[Operation, int] = {}
        self.arrivals: list[int] = []
        self.names: list[str] = []
        for op in allocs:
            self.base[op] = len(self.arrivals)
            count = op.slot_count()
            name = f"%{op.result.name_hint}" if op.result.name_hint else f"mbarrier {len(self.base) - 1}"
            self.arrivals += [op.arrivals.value.data] * count
            self.names += [f"{name}[{slot}]" if count > 1 else name for slot in range(count)]

    def __len__(self) -> int:
        return len(self.arrivals)


class Program:
    """A kernel with what is fixed about it. Raises TR416 where it has no meaning or no machine to run it (`structure.py`).

    `stores`: stores to arrays that are only written are held against one another too. `quiet`: conditionals in which register tiles are
    computed from others and nothing else is done; which way they go is not looked at, for all that they read must be there. They are none
    where `follows_all`. `sums`: arguments that are sums of sizes, which may be larger than an index. `idle`: loops and branches that are
    not followed (`idle.py`); `loops`, `branches`: those that are. `names`: of all operations.
    """

    def __init__(
        self,
        kernel: tile.KernelOp,
        spec: TargetSpec | None = None,
        *,
        stores: bool = False,
        follows_all: bool = False,
        sums: Set[SSAValue] = frozenset(),
    ) -> None:
        self.kernel, self.sums = kernel, sums
        self.spec = spec or target_spec(kernel.target.data)
        self.ops: list[Operation] = list(kernel.body.walk())
        check_structure(kernel, self.spec, self.ops)
        self.names = {op.name for op in self.ops}
        self.index: dict[Operation, int] = {op: at for at, op in enumerate(self.ops)}
        self._by_type: dict[type[Operation], list[Operation]] = {}
        for op in self.ops:
            self._by_type.setdefault(type(op), []).append(op)
        self._by_kind: dict[type[Operation], list[Operation]] = {}
        accessing = {made for made in self._by_type if HasEffects in made.__mro__}
        self._effects: dict[Operation, tuple[Effect, ...]] = {
            op: op.effects()  # type: ignore[attr-defined]
            for op in self.ops
            if type(op) in accessing
        }
        self.queues = {queue.name: queue for queue in self.spec.queues}
        self.queue_names: dict[str, str] = {queue.role: queue.name for queue in self.spec.queues}
        self.local_queue = self.queue_names.get("local", "")
        self.buffers: dict[SSAValue, Buffer] = {op.result: Buffer.of(op) for op in self.all(tile.AllocOp)}
        self.mbarriers = Mbarriers(self.all(sync.MbarrierAllocOp))
        self.cluster = kernel.cluster_size()
        strands: list[Strand] = []
        for rank in range(self.cluster):
            self._add_strands(strands, rank)
        self.strands = tuple(strands)
        self.tracked_pointers, self.only_written, self.written = self._tracked_pointers(stores)
        self.quiet = frozenset[Operation]() if follows_all else frozenset(op for op in self.all(scf.IfOp) if self._is_quiet(op))
        self.registers = self._registers()
        self.held = self._held()
        self.released = self._released()
        self.places = self._places()
        self.rings = self._rings()
        self.idle, self.deciding = idle_operations(self.ops, self._is_tracked, self._deciding)
        self.loops = [op for op in self.all(scf.ForOp) if op not in self.idle]
        self.branches = [op for op in self.all(scf.IfOp) if op not in self.idle and op not in self.quiet]
        self.unknowns = self._unknowns()
        self.most_pending = self._most_pending()
        self.depth = self._depth()

    def effects(self, op: Operation) -> tuple[Effect, ...]:
        """What an operation accesses."""
        return self._effects.get(op, ())

    def may_access(self, op: Operation) -> bool:
        """Whether an operation is of those that say what they access."""
        return op in self._effects

    def queue_name(self, effect: Effect) -> str:
        """The machine's queue that an effect completes in; "" where it is complete in program order, or by a transaction barrier."""
        return self.queue_names.get(effect.queue, "") if effect.queue else ""

    def is_in_flight(self, effect: Effect) -> bool:
        """Whether an effect is the result of a queued operation in a register tile."""
        is_tile = isinstance(effect.resource.type, builtin.TensorType)
        return is_tile and effect.access == "write" and bool(self.queue_name(effect))

    def is_elected(self, op: Operation) -> bool:
        """Whether one thread of a team executes an operation for all."""
        if op.name not in _MAYBE_ELECTED:  # sooner asked than the class
            return False
        match op:
            case tile.CopyOp():
                return op.is_bulk
            case tile.CopyOutOp() | tile.OrderedCounterOp() | sync.MbarrierExpectOp():
                return True
            case sync.CommitOp() | sync.WaitOp():
                return self.queues[op.queue.data].scope == "elected"
            case _:
                return False

    def all(self, kind: type[Op]) -> list[Op]:
        """The operations of one class, in order."""
        found = self._by_kind.get(kind)
        if found is None:
            # a class of ours may stand for one of upstream; and `issubclass` of operations looks through all that there are
            ops = [ops for made, ops in self._by_type.items() if kind in made.__mro__]
            found = ops[0] if len(ops) == 1 else sorted([op for each in ops for op in each], key=self.index.__getitem__)
            self._by_kind[kind] = found
        return cast("list[Op]", found)

    # --- agents

    def _add_strands(self, found: list[Strand], rank: int) -> None:
        """The strands of a workgroup; teams are numbered on from the last."""
        team = found[-1].team + 1 if found else 0
        roles = self.all(pipe.RolesOp)
        warps = self.kernel.num_warps.value.data
        groups = split_of(self.kernel) if any(op.groups is not None for op in self.all(sync.BarrierOp)) else 1
        for group in range(groups):
            name = "" if groups == 1 else ("leading " if group == 0 else "trailing " if groups == 2 else f"group {group} ")
            strand = Strand(0, name, team, group, warps // groups, group == 0, counts_alone=True, rank=rank)
            self._add_team(found, strand)
        for op in roles:
            self._add_roles(found, op, rank)

    def _add_roles(self, found: list[Strand], op: pipe.RolesOp, rank: int) -> None:
        trace = 0
        for role in roles_of(op):
            warps = role.executing_warps
            for group in range(role.groups):
                label = f"{role.name} {group} " if role.groups > 1 else f"{role.name} "
                team = found[-1].team + 1
                strand = Strand(0, label, team, group, warps, True, trace, rank=rank, roles=self.index[op])
                self._add_team(found, strand)
                trace += 1

    def _add_team(self, found: list[Strand], whole: Strand) -> None:
        """The strands that stand for a team's warps, which `whole` would be as one; its name is the start of theirs.

        Two stand for any two warps. That one of them has the elected thread changes nothing for what both do: nothing that is elected
        learns what another warp has done (copies, announcements, groups of copies of its own), so whatever is ordered before an access of
        the elected warp is ordered before the same access of every other.
        """
        wanted = min(whole.warps, 2)
        for at in range(wanted):
            stands_for = 1 if at + 1 < wanted else whole.warps - wanted + 1
            name = f"{whole.name}warp {'ab'[at]}" if wanted > 1 else whole.name.strip() or "warp a"
            name = f"workgroup {whole.rank} {name}" if self.cluster > 1 else name
            elected = whole.is_elected and at == 0
            w = whole
            found.append(Strand(len(found), name, w.team, w.group, stands_for, elected, w.trace, w.counts_alone, w.rank, w.roles))

    # --- memory

    def _tracked_pointers(self, stores: bool) -> tuple[frozenset[SSAValue], ...]:
        """Global arrays whose accesses are held against one another, those that are only written if `stores`; the latter; all written ones.

        An update reads what it writes.
        """
        effects = [effect for effects in self._effects.values() for effect in effects]
        readers, writers = pointers_of(effects)
        updates = [effect.resource.owner for effect in effects if effect.update]
        readers |= {view.pointer for view in updates if isinstance(view, tile.ViewOp)}
        return writers if stores else readers & writers, writers - readers, writers

    # --- values

    def _is_quiet(self, branch: scf.IfOp) -> bool:
        """Whether nothing is done in a conditional but computing tiles from tiles."""
        if not branch.results or not all(isinstance(result.type, builtin.TensorType) for result in branch.results):
            return False
        inner = [op for op in branch.walk() if op is not branch]
        return not any(self.effects(op) or op.name.startswith(("sync.", "pipe.", "scf.for", "scf.if")) for op in inner)

    def _registers(self) -> dict[SSAValue, int]:
        """Register tiles that a queued operation may still write, numbered: its results and what carries them along."""
        found: dict[SSAValue, int] = {}
        work = [effect.resource for effects in self._effects.values() for effect in effects if self.is_in_flight(effect)]
        while work:
            value = work.pop()
            if value in found:
                continue
            found[value] = len(found)
            for use in value.uses:
                op = use.operation
                if isinstance(op, scf.ForOp):
                    work += [op.body.block.args[use.index - 2], op.results[use.index - 3]]
                elif isinstance(op, scf.YieldOp):
                    parent = op.parent_op()
                    if isinstance(parent, scf.ForOp):
                        work += [parent.body.block.args[use.index + 1], parent.results[use.index]]
                    elif isinstance(parent, scf.IfOp) and parent not in self.quiet:
                        work.append(parent.results[use.index])
        return found

    def _held(self) -> dict[Operation, int]:
        """Operations that read registers until their group is retired, numbered behind the tiles."""
        holding = [op for op in self.all(tile.ContractOp) if op.holds_registers() and "matrix" in self.queue_names]
        return {op: len(self.registers) + at for at, op in enumerate(holding)}

    def _released(self) -> dict[Operation, tuple[int, ...]]:
        """By the end of a block, the operations of the block whose registers are then given to others."""
        found: dict[Operation, tuple[int, ...]] = {}
        for op, number in self.held.items():
            end = cast(Block, op.parent).last_op
            if end is not None:
                found[end] = (*found.get(end, ()), number)
        return found

    def _is_tracked(self, op: Operation) -> bool:
        """Whether an operation uses or leaves queued results, or accesses what has to be ordered."""
        if op in self.held or any(value in self.registers for value in (*operands_of(op), *op.results)):
            return True
        if self.rings is not None and op in self.rings.moving:
            return True
        if op not in self._effects:
            return False
        effects = [effect for effect in self.effects(op) if not isinstance(effect.resource.type, builtin.TensorType)]
        pointers = [pointer_of(e.resource) for e in effects]
        return any(pointer is None or pointer in self.tracked_pointers for pointer in pointers)

    def _rings(self) -> "RingCounters | None":
        if not self.all(pipe.RolesOp):
            return None
        from treadle.verify.ring_counters import ring_counters  # most kernels have no roles

        return ring_counters(self)

    def decided(self) -> list[SSAValue]:
        """Operands that pick slots, parts, barriers and parities, but for those that counters of rings do."""
        return [value for kind in _DECIDED for op in self.all(kind) for value in self.deciding_operands(op)]

    def deciding_operands(self, op: Operation) -> Sequence[SSAValue]:
        """The operands that decide about an operation, but for what counters of rings pick."""
        if self.rings is None:
            return operands_of(op)
        return [value for at, value in enumerate(operands_of(op)) if (op, at) not in self.rings.turned]

    def _roots(self, idle: Set[Operation]) -> list[SSAValue]:
        roots = self.decided()
        for op in self.all(scf.ForOp):
            if op not in idle:
                roots += [op.lb, op.ub, op.step]
        roots += [op.cond for op in self.all(scf.IfOp) if op not in self.quiet and op not in idle]
        sizes = self.rings.sizes() if self.rings is not None else []
        return [*roots, *self.places, *sizes]

    def _places(self) -> tuple[SSAValue, ...]:
        """Operands that are shared buffers or mbarriers, or parts of them."""
        operands = dict.fromkeys(value for op in self.ops for value in operands_of(op))
        return tuple(value for value in operands if is_shared(value.type) or isinstance(value.type, sync.MbarrierType))

    def _deciding(self, idle: Set[Operation]) -> frozenset[SSAValue]:
        """Values that slots, parities, bounds and branches are computed from where these are idle."""
        found: set[SSAValue] = set()
        work = self._roots(idle)
        while work:
            value = work.pop()
            if value in found:
                continue
            found.add(value)
            owner = value.owner
            work += self.deciding_operands(owner) if isinstance(owner, pipe.SlotOp | sync.MbarrierSlotOp) else sources_of(value)
        return frozenset(found)

    def _unknowns(self) -> tuple[SSAValue, ...]:
        """What the compiler does not know and something depends on: index arguments and workgroup ids."""
        arguments = [a for a in self.kernel.body.block.args if not isinstance(a.type, PointerType) and a in self.deciding]
        ids = {op.axis.value.data: op.result for op in self.all(tile.ProgramIdOp) if op.result in self.deciding}
        return (*arguments, *ids.values())

    def same_as(self, unknown: SSAValue) -> tuple[SSAValue, ...]:
        """All values that are this unknown: the workgroup's id along one axis may be asked for in several places."""
        owner = unknown.owner
        if not isinstance(owner, tile.ProgramIdOp):
            return (unknown,)
        return tuple(op.result for op in self.all(tile.ProgramIdOp) if op.axis == owner.axis)

    @staticmethod
    def name_of(value: SSAValue) -> str:
        """What messages call an index value."""
        return f"%{value.name_hint}" if value.name_hint else f"%{value.index}" if isinstance(value, BlockArgument) else "a value"

    def _depth(self) -> int:
        """The largest number of slots or pending groups anywhere: how long a pipeline takes to fill."""
        found = [1, self.most_pending + 1, *(op.slot_count() for op in self.all(sync.MbarrierAllocOp))]
        found += [max(tile.memref_type(op.source).get_shape()[: len(op.indices)], default=1) for op in self.all(pipe.SlotOp)]
        return max(found)

    def _most_pending(self) -> int:
        """The most groups that any wait leaves in flight."""
        return max([op.pending.value.data for op in self.all(sync.WaitOp)], default=0)


def is_first_axis(unknown: SSAValue) -> bool:
    """Whether an unknown value is the workgroup's id along the grid's first axis."""
    return isinstance(unknown.owner, tile.ProgramIdOp) and unknown.owner.axis.value.data == 0


def pointer_of(view: SSAValue) -> SSAValue | None:
    """The array a view shows; None where the view is not made by tile.view."""
    return view.owner.pointer if isinstance(view.owner, tile.ViewOp) else None
