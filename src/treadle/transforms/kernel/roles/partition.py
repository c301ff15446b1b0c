"""Roles for a kernel of any loops: its operations dealt out by what they do, each ring's slots stepped where its buffers are filled.

The producer keeps the bulk copies, the loops around them and the arithmetic they need; the consumers keep everything else. Buffers that the
same operations read, filled in the same block, share a ring. Both roles walk the same blocks, so both step a ring's slot once for each
execution of the block that fills it.
"""

from collections.abc import Sequence
from typing import Literal

from treadle.analysis.structured_flow import yielded
from treadle.dialects import pipe, tile
from treadle.dialects.agents import reads_index
from treadle.dialects.role_plan import RolePlan
from treadle.ir.builtin import IndexType, IntegerAttr, i64
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.locations import give_location
from treadle.plan.expr import Expr
from treadle.transforms.kernel.roles.chained_steps import Chain, chain_of
from treadle.transforms.kernel.roles.copy_rings import CopyRing, block_lies_in, copy_rings
from treadle.transforms.kernel.roles.frame import clone, slot_of, stacked, start_of_role, static_steps, step_count
from treadle.transforms.kernel.roles.parts import dealt_out, depends_on_group, is_index_math
from treadle.transforms.kernel.roles.shared_copies import brought_parts
from treadle.transforms.kernel.roles.splitting import splitting
from treadle.transforms.kernel.roles.tile_turns import takers, tile_loop
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end

Role = Literal["producer", "splitter", "consumer"]
Values = dict[SSAValue, SSAValue]
Slots = dict[CopyRing, SSAValue]
Maps = list[tuple[SSAValue, Values]]
"""For each group that a role works for, its number and its values."""


class Partition:
    """Writes the regions of one kernel's roles.

    `fixed`, `body`: its operations outside of all loops, views and constants apart. `own`: copies whose place is another one for each
    group, which has a buffer of its own then. `shared`: those of which each workgroup of a cluster makes its part, for all of them.
    """

    def __init__(self, kernel: tile.KernelOp, plan: RolePlan, symbols: dict[str, SSAValue]) -> None:
        self.plan, self.groups, self.symbols = plan, kernel.group_count(), symbols
        self.takers = takers(kernel, plan)
        self.rings = copy_rings(kernel)
        self.fixed, self.body, self.allocs = dealt_out(kernel, in_turn=plan.takes_turns)
        self.split = splitting(kernel) if plan.split_slots else None
        copies = [copy for ring in self.rings for copy in ring.copies if isinstance(copy, tile.CopyOp)]
        self.own: set[Operation] = {copy for copy in copies if depends_on_group(copy)}
        contracts = [op for op in kernel.walk() if isinstance(op, tile.ContractOp)]
        sides = ((True, {op.a for op in contracts}, plan.cluster_n), (False, {op.b for op in contracts}, plan.cluster // plan.cluster_n))
        self.shared = {copy: rows for copy in copies for rows, read, count in sides if count > 1 and copy.destination in read}
        self.slots: dict[SSAValue, tile.AllocOp] = {}
        self.scratch: list[dict[SSAValue, tile.AllocOp]] = []

    def depth(self, ring: CopyRing) -> int:
        """How many slots a ring has."""
        return ring.depth(self.plan)

    def allocate(self, block: Block) -> None:
        """The buffers of all rings, and those of all groups beside them, for each set of ping-pong apart."""
        filled = {copy.destination for ring in self.rings for copy in ring.copies}
        others = [alloc.result for alloc in self.allocs if alloc.result not in filled]
        self.scratch = [{old: stacked(block, old, self.groups) for old in others} for _ in range(self.plan.ping_pong)]
        own = {copy.destination for ring in self.rings for copy in ring.copies if copy in self.own}
        ring_of = {copy.destination: ring for ring in self.rings for copy in ring.copies}
        for old in [alloc.result for alloc in self.allocs if alloc.result in filled and alloc.result not in self.slots]:
            ring = ring_of[old]
            counts = (self.depth(ring), self.groups) if old in own else (self.depth(ring),)
            made = stacked(block, old, *counts)
            self.slots |= {copy.destination: made for copy in ring.copies} if ring.in_turn else {old: made}

    def start(self, block: Block, consumer: int | None) -> tuple[IndexBuilder, Values, SSAValue]:
        """The head of a role: scalars, the group's number, and for a consumer (by its set) its scratch buffers. The splitter works for all
        groups, as the producer does.
        """
        index, known = start_of_role(self.fixed, self.symbols, block)
        if consumer is None:
            return index, known, index.constant(0)
        group = index.insert(pipe.GroupIdOp())
        known |= {old: slot_of(index, new, [group]) for old, new in self.scratch[consumer].items()}
        return index, known, group

    def region(self, tiles: Expr, role: Role, consumer: int | None = None) -> Region:
        """One role: its tile, or the loop over its tiles; `consumer`: the set of consumers, None for the others."""
        block = Block()
        index, known, group = self.start(block, consumer)
        first = index.insert(tile.ProgramIdOp(0))
        sets, turn = (self.plan.ping_pong, consumer) if consumer is not None else (1, 0)
        slots = {ring: index.constant(0) for ring in self.rings}
        if self.takers is None:
            for ring in self.rings:  # a number of this block, whatever constants are
                slots[ring] = index.insert(pipe.AdvanceOp(slots[ring], index.constant(0), self.depth(ring)))
            self._tile(index, known, first, group, slots, role=role)
            block.add_op(pipe.EndRoleOp())
            return Region(block)
        steps = {ring: self._steps(index, ring, known) for ring in self.rings} if sets > 1 else {}
        slots = self._skipped_first(index, slots, steps, turn)
        loop = tile_loop(index, first, tiles, self.takers, sets, turn)
        body = Block(arg_types=[IndexType()] * (1 + len(slots)))
        inside, here = builder_at_end(body, self.symbols), Slots(zip(self.rings, body.args[1:], strict=True))
        self._tile(inside, known, loop.tile(inside, body.args[0]), group, here, role=role)
        body.add_op(scf.YieldOp(*(self._skipped(inside, ring, here[ring], steps, sets - 1) for ring in self.rings)))
        index.builder.insert(scf.ForOp(loop.low, loop.high, loop.step, [slots[ring] for ring in self.rings], body))
        block.add_op(pipe.EndRoleOp())
        return Region(block)

    def _steps(self, index: IndexBuilder, ring: CopyRing, known: Values) -> SSAValue:
        """How many slots a tile takes."""
        loop = ring.block.parent_op()
        if not isinstance(loop, scf.ForOp):
            return index.constant(ring.slots_a_block)
        return step_count(index, [known.get(value, value) for value in (loop.lb, loop.ub, loop.step)])

    def _skipped(self, index: IndexBuilder, ring: CopyRing, slot: SSAValue, steps: dict[CopyRing, SSAValue], tiles: int) -> SSAValue:
        """The slot behind so many tiles of others."""
        for _ in range(tiles):
            slot = index.insert(pipe.AdvanceOp(slot, steps[ring], self.depth(ring)))
        return slot

    def _skipped_first(self, index: IndexBuilder, slots: Slots, steps: dict[CopyRing, SSAValue], turn: int) -> Slots:
        """The slots behind the first tiles of other sets. Those that go on by a size do so in a loop: the proof follows a counter from the
        loop on that it begins with, as a constant.
        """
        if not turn or all(index.static(count) is not None for count in steps.values()):
            return {ring: self._skipped(index, ring, slot, steps, turn) for ring, slot in slots.items()}
        body = Block(arg_types=[IndexType()] * (1 + len(slots)))
        inside = builder_at_end(body, self.symbols)
        body.add_op(scf.YieldOp(*(self._skipped(inside, ring, slot, steps, 1) for ring, slot in zip(slots, body.args[1:], strict=True))))
        skip = scf.ForOp(index.constant(0), index.constant(turn), index.constant(1), list(slots.values()), body)
        index.builder.insert(skip)
        return dict(zip(slots, skip.results, strict=True))

    def _tile(self, index: IndexBuilder, known: Values, place: SSAValue, group: SSAValue, slots: Slots, *, role: Role) -> None:
        groups = [group] if role == "consumer" else [index.constant(number) for number in range(self.groups)]
        self._operations(self.body, [(number, dict(known)) for number in groups], index, place, slots, role=role)

    def bind(
        self, copies: Sequence[tile.CopyOp | tile.LocalStoreOp], index: IndexBuilder, slot: SSAValue, group: SSAValue, mapping: Values
    ) -> None:
        """Let the buffers that copies fill stand for those of a slot (of a group where each has its own)."""
        for copy in copies:
            indices = [slot, group] if copy in self.own else [slot]
            mapping[copy.destination] = slot_of(index, self.slots[copy.destination], indices)

    def _operations(
        self,
        ops: Sequence[Operation],
        maps: Maps,
        index: IndexBuilder,
        place: SSAValue,
        slots: Slots,
        *,
        role: Role,
    ) -> None:
        """The operations of a block that the role keeps; its rings are a slot further then."""
        here = [ring for ring in self.rings if any(copy in ops for copy in ring.copies)]
        together = [ring for ring in here if not ring.in_turn]
        for ring in together if role != "producer" else ():
            self.bind(ring.copies, index, slots[ring], *maps[0])
        # Descriptor copies go ahead of those by all threads, which wait for earlier ones of theirs.
        late = [] if role != "producer" else [op for op in ops if isinstance(op, tile.CopyOp) and not op.is_bulk]
        for op in (*(op for op in ops if op not in late), *late):
            if isinstance(op, tile.CopyOp):
                ring = next(ring for ring in here if op in ring.copies)
                if role == "producer":
                    self._copy(op, maps, index, slots[ring])
                if ring.in_turn:
                    self.take_turn(op, ring, index, slots, maps[0] if role == "consumer" else None)
            elif isinstance(op, scf.ForOp) and any(isinstance(inner, tile.CopyOp) for inner in op.walk()):
                self._loop(op, maps, index, place, slots, role=role)
            elif not isinstance(op, scf.YieldOp | tile.ReturnOp) and self._keeps(op, role):
                for group, mapping in maps[:1] if role == "splitter" else maps:
                    clone(op, mapping, index, group, place)
        for ring in together:
            slots[ring] = index.insert(pipe.AdvanceOp(slots[ring], index.constant(1), self.depth(ring)))

    def _keeps(self, op: Operation, role: Role) -> bool:
        """Whether a role executes an operation that is neither a copy nor a loop around one."""
        splits = self.split is not None and op in self.split.ops
        return (
            _is_scalar(op)
            or isinstance(op, tile.ViewOp)
            or reads_index(op)
            or (splits if role == "splitter" else role == "consumer" and not splits)
        )

    def take_turn(
        self, copy: tile.CopyOp, ring: CopyRing, index: IndexBuilder, slots: Slots, consumer: tuple[SSAValue, Values] | None
    ) -> None:
        """One slot of a ring whose buffers come in turn: for a consumer (its group's number and values) the copy's buffer is that slot."""
        if consumer is not None:
            self.bind((copy,), index, slots[ring], *consumer)
        slots[ring] = index.insert(pipe.AdvanceOp(slots[ring], index.constant(1), self.depth(ring)))

    def _copy(self, op: tile.CopyOp, maps: Maps, index: IndexBuilder, slot: SSAValue) -> None:
        for group, mapping in maps if op in self.own else maps[:1]:
            destination = slot_of(index, self.slots[op.destination], [slot, group] if op in self.own else [slot])
            offsets, view = [mapping.get(offset, offset) for offset in op.offsets], mapping.get(op.view, op.view)
            if op not in self.shared:
                self._insert(index, op, view, offsets, destination)
                continue
            for place, moved, ranks in brought_parts(index, op, self.plan, destination, offsets, rows=self.shared[op]):
                self._insert(index, op, view, moved, place, ranks)

    def _insert(
        self,
        index: IndexBuilder,
        op: tile.CopyOp,
        view: SSAValue,
        offsets: Sequence[SSAValue],
        destination: SSAValue,
        ranks: range | None = None,
    ) -> None:
        """A copy as `op` from elsewhere, into the buffers of these workgroups."""
        relative = ranks is not None and len(ranks) < self.plan.cluster
        made = tile.CopyOp(view, offsets, tile.ints(op.dims), destination, path=op.path.data, multicast=ranks, relative=relative)
        give_location(made, op.location)
        index.builder.insert(made)

    def _loop(self, op: scf.ForOp, maps: Maps, index: IndexBuilder, place: SSAValue, slots: Slots, *, role: Role) -> None:
        mapping = maps[0][1]
        may_overlap = role == "consumer" and self.split is None and self.plan.steps_in_flight > 0
        if may_overlap and (chain := chain_of(op)) is not None:
            mapping.update(zip(op.results, self._chained(op, chain, maps, index, place, slots), strict=True))
            return
        may_run = role == "consumer" and self.plan.steps_in_flight > 0 and may_run_ahead(op)
        bounds = [mapping.get(value, value) for value in (op.lb, op.ub, op.step)]
        if may_run and not max(static_steps(index, bounds), _least_steps(op)):
            mapping.update(zip(op.results, self._where_it_runs(op, maps, index, place, slots), strict=True))
            return
        self._steps_of(op, maps, index, place, slots, role=role, runs_ahead=may_run)

    def _where_it_runs(self, op: scf.ForOp, maps: Maps, index: IndexBuilder, place: SSAValue, slots: Slots) -> Sequence[SSAValue]:
        """The results of a loop whose steps run under one another, which may make no step."""
        known = maps[0][1]
        low, high = (known.get(value, value) for value in (op.lb, op.ub))
        rings = [ring for ring in self.rings if block_lies_in(ring.block, op.body.block)]
        yes, no, inner = Block(), Block(), dict(known)
        inside = builder_at_end(yes, self.symbols)
        # A slot's number is one of the block that waits for it.
        here = {**slots, **{r: inside.insert(pipe.AdvanceOp(slots[r], inside.constant(0), self.depth(r))) for r in rings}}
        self._steps_of(op, [(maps[0][0], inner)], inside, place, here, role="consumer", runs_ahead=True)
        yes.add_op(scf.YieldOp(*(inner[result] for result in op.results), *(here[ring] for ring in rings)))
        no.add_op(scf.YieldOp(*(known.get(value, value) for value in op.iter_args), *(slots[ring] for ring in rings)))
        runs = index.insert(arith.CmpiOp(low, high, "slt"))
        branch = scf.IfOp(runs, [value.type for value in (*op.iter_args, *(slots[ring] for ring in rings))], Region(yes), Region(no))
        index.builder.insert(branch)
        slots.update(zip(rings, branch.results[len(op.results) :], strict=True))
        return branch.results[: len(op.results)]

    def _steps_of(
        self, op: scf.ForOp, maps: Maps, index: IndexBuilder, place: SSAValue, slots: Slots, *, role: Role, runs_ahead: bool
    ) -> None:
        """A loop; one that `runs_ahead` makes a step at least, and its first one stands in front of it."""
        old, mapping = op.body.block, maps[0][1]
        rings = [ring for ring in self.rings if block_lies_in(ring.block, old)]
        low, high, step = (mapping.get(value, value) for value in (op.lb, op.ub, op.step))
        initial = [mapping.get(value, value) for value in op.iter_args] if role == "consumer" else []

        def iteration(inside: IndexBuilder, at: SSAValue, carried: Sequence[SSAValue], here: Slots) -> list[SSAValue]:
            inner = [(group, {**known, old.args[0]: at}) for group, known in maps]
            inner[0][1].update(zip(old.args[1:], carried, strict=False))
            self._operations(list(old.ops), inner, inside, place, here, role=role)
            ends = old.last_op.operands if isinstance(old.last_op, scf.YieldOp) and role == "consumer" else ()
            return [inner[0][1].get(value, value) for value in ends]

        if runs_ahead:
            initial, low = iteration(index, low, initial, slots), index.add(low, step)
        body = Block(arg_types=[IndexType(), *(value.type for value in initial), *[IndexType()] * len(rings)])
        here = {**slots, **Slots(zip(rings, body.args[1 + len(initial) :], strict=True))}
        ends = iteration(builder_at_end(body, self.symbols), body.args[0], body.args[1 : 1 + len(initial)], here)
        body.add_op(scf.YieldOp(*ends, *(here[ring] for ring in rings)))
        new = scf.ForOp(low, high, step, [*initial, *(slots[ring] for ring in rings)], body)
        if runs_ahead:
            new.attributes[pipe.STEPS_IN_FLIGHT] = IntegerAttr(1, i64)
        if (
            role == "producer"
            and self.plan.fills_in_flight
            and any(ring.block is old and ring.by_threads and not ring.is_split for ring in rings)
        ):
            new.attributes[pipe.FILLS_IN_FLIGHT] = IntegerAttr(self.plan.fills_in_flight, i64)
        index.builder.insert(new)
        mapping.update(zip(op.results, new.results, strict=False))
        slots.update(zip(rings, new.results[len(initial) :], strict=True))

    def _chained(self, op: scf.ForOp, chain: Chain, maps: Maps, index: IndexBuilder, place: SSAValue, slots: Slots) -> Sequence[SSAValue]:
        """The results of a loop of chained contractions whose steps overlap, which may make no step."""
        known = maps[0][1]
        bounds = [known.get(value, value) for value in (op.lb, op.ub, op.step)]
        if static_steps(index, bounds) > 0:
            return self._overlapping(op, chain, maps, index, place, slots)
        rings = [ring for ring in self.rings if ring.block is op.body.block]
        yes, no = Block(), Block()
        inside = builder_at_end(yes, self.symbols)
        # A slot's number is one of the block that waits for it. Nothing goes on from those that the branch ends with.
        here = {**slots, **{r: inside.insert(pipe.AdvanceOp(slots[r], inside.constant(0), self.depth(r))) for r in rings}}
        yes.add_op(scf.YieldOp(*self._overlapping(op, chain, maps, inside, place, here)))
        no.add_op(scf.YieldOp(*(known.get(value, value) for value in op.iter_args)))
        runs = index.insert(arith.CmpiOp(bounds[0], bounds[1], "slt"))
        branch = scf.IfOp(runs, [value.type for value in op.iter_args], Region(yes), Region(no))
        index.builder.insert(branch)
        return branch.results

    def _overlapping(self, op: scf.ForOp, chain: Chain, maps: Maps, index: IndexBuilder, place: SSAValue, slots: Slots) -> list[SSAValue]:
        """The first part of the first step, the steady loop, the second part of the last step; each part with the rings that it reads."""
        (group, known), old, at = maps[0], op.body.block, chain.position
        low, high, step = (known.get(value, value) for value in (op.lb, op.ub, op.step))
        reads_last = [ring for ring in self.rings if any(use.operation is chain.last for c in ring.copies for use in c.destination.uses)]
        rings = [ring for ring in self.rings if ring.block is old]

        def part(ops: Sequence[Operation], where: IndexBuilder, values: Values, here: Slots, reads: Sequence[CopyRing]) -> None:
            for ring in reads:
                self.bind(ring.copies, where, here[ring], group, values)
            for one in ops:
                clone(one, values, where, group, place)

        def advance(where: IndexBuilder, here: Slots, done: Sequence[CopyRing]) -> None:
            for ring in done:
                here[ring] = where.insert(pipe.AdvanceOp(here[ring], where.constant(1), self.depth(ring)))

        def second(where: IndexBuilder, total: SSAValue, handed: Sequence[SSAValue], here: Slots) -> SSAValue:
            values = {**known, old.args[1 + at]: total, **dict(zip(chain.handed, handed, strict=True))}
            part(chain.behind, where, values, here, reads_last)
            advance(where, here, reads_last)
            return values[chain.last.result]

        def carried_on(values: Values, total: SSAValue) -> list[SSAValue]:
            ends = [total if number == at else values.get(value, value) for number, value in enumerate(yielded(old))]
            return [*ends, *(values[value] for value in chain.handed)]

        before, firsts = len(op.iter_args), [ring for ring in rings if ring not in reads_last]
        values = {**known, old.args[0]: low, **{a: known.get(v, v) for a, v in zip(old.args[1:], op.iter_args, strict=True)}}
        part((*chain.issued, *chain.followed), index, values, slots, firsts)
        advance(index, slots, firsts)
        initial = carried_on(values, values[old.args[1 + at]])
        body = Block(arg_types=[IndexType(), *(value.type for value in initial), *[IndexType()] * len(rings)])
        inside, here = builder_at_end(body, self.symbols), {**slots, **dict(zip(rings, body.args[1 + len(initial) :], strict=True))}
        values = {**known, **dict(zip(old.args, body.args[: 1 + before], strict=True))}
        part(chain.issued, inside, values, here, firsts)
        total = second(inside, body.args[1 + at], body.args[1 + before : 1 + len(initial)], here)
        part(chain.followed, inside, values, here, ())
        advance(inside, here, firsts)
        body.add_op(scf.YieldOp(*carried_on(values, total), *(here[ring] for ring in rings)))
        loop = scf.ForOp(index.add(low, step), high, step, [*initial, *(slots[ring] for ring in rings)], body)
        if self.plan.issue_turns:
            loop.attributes[pipe.ISSUE_TURNS] = IntegerAttr(1, i64)
        index.builder.insert(loop)
        slots.update(zip(rings, loop.results[len(initial) :], strict=True))
        results: list[SSAValue] = [*loop.results[:before]]
        results[at] = second(index, results[at], loop.results[before : len(initial)], slots)
        return results


def _least_steps(loop: scf.ForOp) -> int:
    """How many steps a loop makes at least, as far as who built it knows."""
    found = loop.attributes.get(pipe.LEAST_STEPS)
    return found.value.data if isinstance(found, IntegerAttr) else 0


def may_run_ahead(loop: scf.ForOp) -> bool:
    """Whether nothing in a loop but the next step's contractions reads a step's accumulators."""
    contracts = [op for op in loop.body.block.ops if isinstance(op, tile.ContractOp)]
    uses = [use.operation for contract in contracts for use in contract.result.uses]
    return all(isinstance(user, scf.YieldOp | tile.ContractOp) for user in uses)


def _is_scalar(op: Operation) -> bool:
    return isinstance(op, tile.ProgramIdOp | tile.OpaqueOp | pipe.GroupIdOp) or is_index_math(op)
