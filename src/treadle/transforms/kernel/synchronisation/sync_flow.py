"""The data flow of insert-sync: walks a kernel with the state of `in_flight.py` and says, or inserts, what each operation needs.

Joins at branches, fix points at back edges. Where an operation needs something, what the operations right behind it need is waited for at
the same time, so that one wait and one barrier serve them all.
"""

from collections.abc import Callable, Sequence, Set
from functools import reduce

from treadle.analysis.synchronisation.first_steps import first_steps
from treadle.analysis.synchronisation.in_flight import OPEN, Flow, Plan
from treadle.analysis.synchronisation.needs import Needs
from treadle.analysis.synchronisation.operations import (
    committed_queues,
    is_cheap,
    loops_around,
    widens_small_float,
)
from treadle.analysis.synchronisation.steps import Steps
from treadle.dialects import pipe, sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.machine import TargetSpec
from treadle.transforms.kernel.forms import tiles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import erase, insert_before
from treadle.transforms.kernel.synchronisation.releases import Releases
from treadle.transforms.kernel.synchronisation.ring_barriers import Owed
from treadle.transforms.kernel.synchronisation.teams import Team, Teams

NOTHING: Flow = Flow({})


def _released(end: Operation, flow: Flow) -> Needs:
    """What the end of a block waits for: operations of the block that read registers, which are then given to other tiles."""
    wanted = Needs()
    for item, newer in flow.issued.items():
        if item.op.parent is end.parent and isinstance(item.op, tile.ContractOp) and item.op.holds_registers():
            wanted.require(item.queue, newer)
    return wanted


class SyncFlow(Steps):
    """One walk over a kernel.

    Planning (`plan` given), every queued operation is a group of its own and nothing is inserted; else commits stand in the kernel, and
    waits, fences and barriers are inserted where `emit` is set. Synchronisation that is there does what it does, and is completed where
    that is not enough. `owed`: the slots of rings that are. `dispensable`: commits that may go where they close nothing.
    """

    def __init__(
        self,
        kernel: tile.KernelOp,
        spec: TargetSpec,
        plan: Plan | None = None,
        owed: Owed | None = None,
        dispensable: Set[Operation] = frozenset(),
    ) -> None:
        self.releases = Releases(owed or Owed())
        super().__init__(kernel, spec, {*self.releases.behind, *self.releases.regained})
        self.plan = plan
        self.dispensable = dispensable
        self.committed = committed_queues(kernel) if plan is not None else frozenset[str]()
        self.team: Team | None = None
        self.teams = Teams(kernel)
        self.drained: dict[scf.ForOp, bool] = {}
        config = config_of(kernel)
        self.drains_all = isinstance(config, tiles.Config) and config.is_drained
        self.fixed: dict[scf.ForOp, tuple[Flow, Flow, Flow]] = {}
        self.taken: dict[Operation, bool] = {}
        self.arrivals: dict[Operation, Flow] = {}
        self.handlers: dict[type[Operation], Callable[..., Flow]] = {
            sync.CommitOp: self._commit,
            sync.ClusterBarrierOp: self._barrier,
            sync.BarrierOp: self._barrier,
            sync.NamedBarrierOp: self._named_barrier,
            sync.WaitOp: self._wait,
            sync.FenceOp: self._fence,
            sync.WaitPhaseOp: self._wait_phase,
            pipe.EndRoleOp: self._end_role,
        }
        self.queues = {queue.name: queue for queue in spec.queues}
        self.copies_in = {queue.name for queue in spec.queues if queue.role == "copy_in"}
        local = spec.queue_for("local")
        self.local_queue = "" if local is None else local.name

    def inserting(self, commits: Set[Operation]) -> "SyncFlow":
        """The same walk once more, behind planning: with the commits that were planned."""
        self.plan, self.committed, self.dispensable = None, frozenset[str](), commits
        self.block_changed()
        for known in (self.drained, self.fixed, self.arrivals):
            known.clear()
        return self

    # --- control flow

    def block(self, block: Block, state: Flow, *, emit: bool) -> Flow:
        """The state after a block; scalars and views neither change it nor need anything."""
        for step in self.steps(block):
            state = self.operation(step.op, state, emit=emit)
        return state

    def operation(self, op: Operation, state: Flow, *, emit: bool) -> Flow:
        """The state after an operation; slots that it read last are owed from here on."""
        after = super().operation(op, state, emit=emit)
        return after._replace(owed=after.owed | {op}) if op in self.releases.behind else after

    def roles(self, op: pipe.RolesOp, state: Flow, *, emit: bool) -> Flow:
        """Each role starts from nothing and ends with nothing in flight: what is around it is ordered by start and end."""
        for number in range(len(op.roles)):
            if not self.leaves_nothing(op.roles[number].block):
                self.team = self.teams.of(op, number)
                self.role(op, number, NOTHING, emit=emit)
        self.team = None
        return NOTHING

    def before(self, op: Operation, state: Flow, *, emit: bool) -> Flow:
        """What a loop or a conditional needs is waited for ahead of it; who waits for others within it owes nothing then."""
        if WARP_PIPELINED in op.attributes:
            return state
        if state.owed and self.waits_for_others(op):
            state = self._hand_back(op, state, emit=emit, forced=True)
        return self._ready(op, state, emit=emit)

    def join_branches(self, op: scf.IfOp, ends: Sequence[Flow]) -> Flow:
        """A group that ends behind the branches is one on both paths; planning counts as if all did."""
        return ends[0].join(ends[-1], min if self.plan is None else max)

    def terminator(self, op: scf.YieldOp, state: Flow, *, emit: bool) -> Flow:
        """An iteration whose next one would begin with draining a queue that ends at branches ends with that; what a branch gives is
        complete.
        """
        loop = op.parent_op()
        state = self._hand_back(op, state, emit=emit, forced=True) if state.owed else state
        if not isinstance(loop, scf.ForOp):
            return self._ready(op, state, emit=emit)
        wanted = _released(op, state)
        for item, newer in state.issued.items():
            if self.drained.get(loop) and self.queues[item.queue].ends_at_branches:
                wanted.require(item.queue, newer)
        return self._apply(op, state, wanted, emit=emit)

    def loop(self, loop: scf.ForOp, before: Flow, *, emit: bool) -> Flow:
        """The state behind a loop. A warp pipeline has its order already, from the barriers around it on."""
        if WARP_PIPELINED in loop.attributes:
            return NOTHING
        if loop not in self.drained:
            # In a role the slots that are owed end each step.
            self.drained[loop] = self.drains_all
            if self.team is None and not self.drains_all:
                self.drained[loop] = self._drains_first(loop.body.block, self.fix_point(loop, self.enter(loop, before))[0])
        if loop not in self.fixed or self.fixed[loop][0] != before:
            self.fixed[loop] = before, *self._entries(loop, before)
        _, joined, behind = self.fixed[loop]
        if emit:
            self.body(loop, joined, emit=True)
        return self.leave(loop, behind)

    def _entries(self, loop: scf.ForOp, before: Flow) -> tuple[Flow, Flow]:
        """The states before all iterations, joined, and before one that is not made any more.

        First steps that have branches of their own are walked one after another, then all others.
        """
        state, entries, steps = self.enter(loop, before), list[Flow](), first_steps(loop, self.values)
        if len(steps) < 2:
            entry, back = self.fix_point(loop, state)
            return entry, back if self.surely_runs(loop) else entry
        if self.plan is not None:
            self.plan.once |= steps.keys()
        for number in range(len(steps)):
            entries.append(state)
            self.taken = {op: at == number for op, at in steps.items()}
            state = self.around(loop, self.body(loop, state, emit=False))
        self.taken = dict.fromkeys(steps, False)
        entry, _ = self.fix_point(loop, state)
        self.taken = {}
        return reduce(self.join, entries, entry), entry

    def branch(self, op: scf.IfOp, state: Flow, *, emit: bool) -> Flow:
        """The state behind a conditional; one of a first step alone is entered from that step's state."""
        if self.taken.get(op) is False:
            return state
        if op in self.taken:
            self.arrivals[op] = state
            return self.block(op.true_region.block, state, emit=False)
        if not emit or op not in self.arrivals:
            return super().branch(op, state, emit=emit)
        self.block(op.true_region.block, self.arrivals[op], emit=True)
        return self.join_branches(op, [self.block(op.true_region.block, state, emit=False), state])

    def plain(self, op: Operation, state: Flow, *, emit: bool) -> Flow:
        """The state after an operation, synchronisation before it included."""
        return self.handlers.get(type(op), self._plain)(op, state, emit=emit)

    def _commit(self, op: sync.CommitOp, state: Flow, *, emit: bool) -> Flow:
        if state.is_open(op.queue.data) or op not in self.dispensable:
            return state.newer_group(op.queue.data)
        if emit:
            erase(op)
        return state

    def _barrier(self, op: Operation, state: Flow, *, emit: bool) -> Flow:
        if isinstance(op, sync.BarrierOp) and op.groups is not None:
            return self._ready(op, state, emit=emit)
        return self._met(op, state, emit=emit)

    def _named_barrier(self, op: sync.NamedBarrierOp, state: Flow, *, emit: bool) -> Flow:
        if self.team is None or op.arrive is not None or op.warps.value.data < self.team.warps:
            return self._ready(op, state, emit=emit)
        return self._met(op, state, emit=emit)

    def _wait(self, op: sync.WaitOp, state: Flow, *, emit: bool) -> Flow:
        state = self._ready(op, state, emit=emit)
        if op.read is None or self._waits_for_reads(op.queue.data):
            state = state.retire(op.queue.data, op.pending.value.data)
        is_local = op.queue.data == self.local_queue and not op.pending.value.data
        return state._replace(has_local=state.has_local and not is_local)

    def _fence(self, op: sync.FenceOp, state: Flow, *, emit: bool) -> Flow:
        state = self._ready(op, state, emit=emit)
        return state._replace(unordered=frozenset(map(self.table.fenced, state.unordered)))

    def _wait_phase(self, op: sync.WaitPhaseOp, state: Flow, *, emit: bool) -> Flow:
        """All warps that wait for a slot know what they did to it before they handed it over."""
        state, regained = self._plain(op, state, emit=emit), self.releases.regained.get(op)
        if regained is None:
            return state
        slot = self.releases.slot(regained, self.values, self.table)
        return state._replace(unordered=frozenset(number for number in state.unordered if not slot.holds(number)))

    def _end_role(self, op: pipe.EndRoleOp, state: Flow, *, emit: bool) -> Flow:
        state = self._hand_back(op, state, emit=emit, forced=True) if state.owed else state
        return self._ready(op, state, emit=emit)

    def _drains_first(self, block: Block, entry: Flow) -> bool:
        """Whether an iteration first of all waits for all of a queue that ends at branches: the wait belongs to the end of the last one.

        Loads of the threads in front of it could overlap them, but loads under conditions are branches, at which some assemblers give up
        on what is in flight and serialise the whole loop. The same goes for the long code of 8-bit floats that are widened on the way in.
        """
        for op in block.ops:
            wanted = self._wanted(op, entry)
            if any(newer in (0, OPEN) and self.queues[queue].ends_at_branches for queue, newer in wanted.newer.items()):
                return True
            if wanted or not (is_cheap(op) or isinstance(op, tile.LoadOp) or widens_small_float(op)):
                return False
        return False

    # --- operations

    def _plain(self, op: Operation, flow: Flow, *, emit: bool) -> Flow:
        if op.regions and not isinstance(op, tile.ReduceOp):
            raise InternalError(f"insert-sync does not know the control flow of {op.name}")
        flow, step = self._ready(op, flow, emit=emit), self.step(op)
        if step.queue:
            names = frozenset(op.results) if isinstance(op, tile.ContractOp) else frozenset[SSAValue]()
            return flow.issue(self.table.issued(op, step.queue, step.leaves, names), closed=self._counts_alone(step.queue))
        return flow.access(step.leaves, is_local=not isinstance(op, sync.WaitPhaseOp)) if step.leaves else flow

    def _counts_alone(self, queue: str) -> bool:
        """Whether every operation of a queue is a group of its own: always, or while it is planned where groups end."""
        return not self.queues[queue].is_committed or (self.plan is not None and queue not in self.committed)

    def _met(self, op: Operation, state: Flow, *, emit: bool) -> Flow:
        """After a barrier that is there, with what it needs to publish all that was done before it."""
        state = self._ready(op, state, emit=emit)
        if emit and self.plan is None:
            if self._crosses_proxies(op, state):
                insert_before(op, sync.FenceOp("async_shared"))
            is_bare = isinstance(op, sync.BarrierOp) and op.bare is not None
            if is_bare and self.local_queue and state.has_local:
                insert_before(op, sync.WaitOp(self.local_queue, 0))
        return state.meet()

    def _wanted(self, op: Operation, flow: Flow) -> Needs:
        """What an operation has to wait for; all that is in flight where the kernel or a role ends."""
        if isinstance(op, tile.ReturnOp | pipe.EndRoleOp):
            wanted = Needs()
            for item, newer in flow.issued.items():
                wanted.require(item.queue, newer)
            return wanted
        wanted = self.start(op).needs(flow) if flow.issued or flow.unordered else Needs()
        if isinstance(op, scf.YieldOp) and isinstance(op.parent_op(), scf.IfOp):
            wanted.add(_released(op, flow))
        return wanted

    def _ready(self, op: Operation, flow: Flow, *, emit: bool) -> Flow:
        """Insert what `op` needs, and hand back the slots whose reads are over then."""
        wanted = self._wanted(op, flow)
        if wanted:
            self._add_following(op, flow, wanted)
            flow = self._apply(op, flow, wanted, emit=emit)
        return self._hand_back(op, flow, emit=emit) if flow.owed else flow

    def _hand_back(self, op: Operation, flow: Flow, *, emit: bool, forced: bool = False) -> Flow:
        """Arrive before `op` for the slots owed in its block whose reads are over; `forced`: they are waited for."""
        for after in sorted(flow.owed, key=self.position.__getitem__):
            if after.parent is not op.parent:
                continue
            for release in self.releases.behind[after]:
                pending = Needs(self.releases.slot(release, self.values, self.table).needs(flow).newer)
                if op is release.barrier or (pending and not forced):
                    break
                flow = self._apply(op, flow, pending, emit=emit)
                if emit and self.plan is None:
                    fence = [sync.FenceOp("async_shared")] if release.crosses_proxies else []
                    insert_before(op, *fence, sync.ArriveOp(release.barrier.result, release.peers or None, relative=release.relative))
            else:
                flow = flow._replace(owed=flow.owed - {after})
        return flow

    def _add_following(self, op: Operation, flow: Flow, wanted: Needs) -> None:
        """Add what operations behind `op` need anyway.

        Right behind it, anything that is in flight already. Further on, copies whose readers would need a barrier of their own: the one
        before `op` does for both. Behind a contraction only for others of the same step, which do not go on from its result.
        """
        between = [self.start(op)]
        done: set[SSAValue] = set(op.results) if isinstance(op, tile.ContractOp) else set()
        is_adjacent = True
        for step in self.following(op):
            following, starting = step.op, self.start(step.op)
            more = starting.needs(flow)
            is_contract = isinstance(following, tile.ContractOp)
            is_later = bool(done) and not (is_contract and following.accumulator not in done)
            if more:
                if OPEN in more.newer.values() or any(map(starting.conflicts, between)):
                    return
                if self.team is not None and more.newer:
                    return  # beside other agents an earlier wait costs more than one more meeting of a few warps
                joins = wanted.barrier and more.barrier and more.newer.keys() <= self.copies_in and not is_later
                if joins or (is_adjacent and starting.accesses and step.is_cheap):
                    wanted.add(more)
                elif more.barrier:
                    return
            is_adjacent = is_adjacent and step.is_cheap
            if is_contract:
                done.update(following.results)
            between.append(starting)

    def _apply(self, op: Operation, flow: Flow, wanted: Needs, *, emit: bool) -> Flow:
        for queue in sorted(wanted.newer):
            newer = wanted.newer[queue]
            if self.plan is not None and emit and self.queues[queue].is_committed and queue not in self.committed:
                self.plan.ends += [(item.op, queue, op) for item, n in flow.issued.items() if item.queue == queue and n == newer]
            if newer == OPEN:
                flow = flow.newer_group(queue)
                newer = 0
                if emit and self.plan is None:
                    insert_before(op, sync.CommitOp(queue))
            pending = min(newer, self.queues[queue].max_pending)
            if emit and self.plan is None:
                insert_before(op, sync.WaitOp(queue, pending, read=self._waits_for_reads(queue)))
            flow = flow.retire(queue, pending)
        if wanted.barrier:
            if emit and self.plan is None:
                self._insert_barrier(op, flow)
            flow = flow.meet()
        return flow

    def _waits_for_reads(self, queue: str) -> bool:
        """Whether waits of a queue are for the reads alone: not where other workgroups are to see what it writes."""
        return self.queues[queue].tells_reads and not self.handed_on.arrivals

    def _insert_barrier(self, op: Operation, flow: Flow) -> None:
        if self._crosses_proxies(op, flow):
            insert_before(op, sync.FenceOp("async_shared"))
        if self.team is not None:
            insert_before(op, self.teams.barrier(self.team))
            return
        if self.local_queue and any(item.queue in self.copies_in for item in flow.issued):
            # A flushing barrier would wait for the copies too; these may stay in flight.
            if flow.has_local:
                insert_before(op, sync.WaitOp(self.local_queue, 0))
            insert_before(op, sync.BarrierOp(bare=True))
            return
        insert_before(op, sync.BarrierOp())

    def _crosses_proxies(self, op: Operation, flow: Flow) -> bool:
        """Whether a barrier before `op` publishes generic writes to bytes that are accessed asynchronously from there on."""
        unordered = [self.table[number] for number in flow.unordered]
        written = [access for access in unordered if access.is_write and not access.is_async]
        if not written:
            return False
        around, at = loops_around(op), self.position[op]
        later = [found for later, loops, found in self.asynchronous if self.position[later] >= at or loops & around]
        return any(w.may_meet_in_time(access) for found in later for access in found for w in written)
