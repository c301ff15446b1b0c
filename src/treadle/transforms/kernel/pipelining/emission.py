"""Emits a loop as the steps of its expansion: prologue, steady loop, epilogue, with buffers in slots.

Between steps the emission keeps a state: the carried values as the next step finds them, values made in earlier steps that later stages
still need, and one counter of slots for each stage and number of slots. In the prologue and epilogue the state is just values; the steady
loop carries it. A counter is constant before the loop and wraps by compare and select in it; in a trip of as many steps as it has slots, or
a multiple, it stays constant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from treadle.analysis.loop_body import LoopBody, used_values
from treadle.dialects import pipe, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Builder, InsertPoint, Operation, OpResult, Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.plan.expansion import Part, Step
from treadle.plan.loop_body import Result
from treadle.plan.stages import Schedule
from treadle.records import dataclass
from treadle.transforms.kernel.carried_values import zero_of
from treadle.transforms.kernel.tiling.index_math import IndexBuilder

CounterKey = tuple[int, int]
"""(stage, number of slots)."""


@dataclass(slots=True)
class State:
    """What one step leaves for the next. `None` stands for values of iterations that do not exist."""

    carried: list[SSAValue]
    older_carried: list[list[SSAValue | None]]
    older_results: dict[Result, list[SSAValue | None]]
    counters: dict[CounterKey, int | SSAValue]
    fixed: frozenset[CounterKey] = frozenset()
    pending: dict[CounterKey, int] = field(default_factory=dict[CounterKey, int])


class StepEmitter:
    """Emits steps of one loop one after the other; `state` is what the next one starts from."""

    def __init__(self, source: LoopBody, schedule: Schedule, slots: Mapping[SSAValue, tile.AllocOp]) -> None:
        self.source = source
        self.schedule = schedule
        self.slots = slots
        loop = source.loop
        self.block = loop.body.block
        self.kept = dict(schedule.result_versions)
        self.counts = {memory: count for memory, count in zip(source.memory, schedule.slots, strict=True) if count > 1}
        keys = {(c.stage, n) for c in schedule.clusters for at in c.units for n in self._slot_counts(at)}
        self.state = State(
            list(loop.iter_args),
            [[None] * n for n in schedule.carried_versions],
            {result: [None] * n for result, n in self.kept.items()},
            {(stage, n): -stage % n for stage, n in sorted(keys)},
        )

    def _slot_counts(self, unit: int) -> list[int]:
        return [
            self.schedule.slots[access.resource]
            for access in self.source.body.units[unit].accesses
            if self.schedule.slots[access.resource] > 1
        ]

    def emit(self, step: Step, base: SSAValue, builder: Builder, upper: SSAValue, width: SSAValue, *, is_last: bool = False) -> None:
        """One step whose parts count from the induction value `base`; `width` is the loop's step, `upper` its bound."""
        _Step(self, base, builder, upper, width).run(step)
        if not is_last:
            for key in self.state.counters:
                self.state.pending[key] = self.state.pending.get(key, 0) + 1

    def counter(self, key: CounterKey, index: IndexBuilder) -> SSAValue:
        """The slot that a stage uses in this step."""
        value = self.state.counters[key]
        for _ in range(self.state.pending.pop(key, 0)):
            if isinstance(value, int):
                value = (value + 1) % key[1]
                continue
            following = index.add(value, index.constant(1))
            wraps = index.insert(arith.CmpiOp(following, index.constant(key[1]), "eq"))
            value = index.insert(arith.SelectOp(wraps, index.constant(0), following))
        self.state.counters[key] = value
        return index.constant(value) if isinstance(value, int) else value

    def skip_to(self, step: int) -> None:
        """Make the counters constants: the next step is number `step`."""
        self.state.counters = {(stage, n): (step - stage) % n for stage, n in self.state.counters}
        self.state.pending = {}

    def flat_state(self, builder: Builder) -> list[SSAValue]:
        """The state as values: carried ones first, in the loop's order."""
        index = IndexBuilder(builder, {})
        values: list[SSAValue] = list(self.state.carried)
        for j, older in enumerate(self.state.older_carried):
            values += [self._known(v, self.block.args[1 + j], builder) for v in older]
        for (unit, result), older in self.state.older_results.items():
            values += [self._known(v, self.source.operations[unit].results[result], builder) for v in older]
        values += [counter for key, counter in [(k, self.counter(k, index)) for k in self.state.counters] if key not in self.state.fixed]
        return values

    @staticmethod
    def _known(value: SSAValue | None, like: SSAValue, builder: Builder) -> SSAValue:
        if value is not None:
            return value
        constant = zero_of(like)
        builder.insert(constant)
        return constant.result

    def set_state(self, values: Sequence[SSAValue]) -> None:
        """The opposite of `flat_state`."""
        left = iter(values)
        state = self.state
        state.carried = [next(left) for _ in state.carried]
        state.older_carried = [[next(left) for _ in older] for older in state.older_carried]
        state.older_results = {result: [next(left) for _ in older] for result, older in state.older_results.items()}
        state.counters = {key: value if key in state.fixed else next(left) for key, value in state.counters.items()}
        state.pending = {}

    def settle(self, index: IndexBuilder) -> None:
        """Bring the counters to the step that comes next."""
        for key in self.state.counters:
            self.counter(key, index)

    def repeat_every(self, steps: int) -> None:
        """From here on a loop makes so many steps a trip: counters that come round in them are constants of it."""
        self.state.fixed = frozenset(key for key, value in self.state.counters.items() if steps % key[1] == 0 and isinstance(value, int))


class _Step:
    """One step: emits its parts, then moves the state on."""

    def __init__(self, emitter: StepEmitter, base: SSAValue, builder: Builder, upper: SSAValue, width: SSAValue) -> None:
        self.emitter, self.base, self.upper, self.width = emitter, base, upper, width
        self.builder = builder
        self.index = IndexBuilder(builder, {})
        self.state = emitter.state
        self.made: dict[Result, SSAValue] = {}
        self.next_carried = list(self.state.carried)
        self.ivs: dict[int, SSAValue] = {}
        self.guards: dict[int, SSAValue] = {}
        self.slots: dict[tuple[SSAValue, int], SSAValue] = {}
        self.repeated: dict[int, dict[SSAValue, SSAValue]] = {}

    def run(self, step: Step) -> None:
        schedule = self.emitter.schedule
        for part in step:
            later = [c for at, c in enumerate(schedule.clusters) if at > part.cluster and c.stage == part.stage]
            updates = () if later else tuple(j for j, stage in enumerate(schedule.carried_stage) if stage == part.stage)
            self._part(part, updates)
        state = self.state
        for j, older in enumerate(state.older_carried):
            if older:
                older[:] = [state.carried[j], *older[:-1]]
        state.carried = self.next_carried
        for result, older in state.older_results.items():
            older[:] = [self.made.get(result), *older[:-1]]

    def _part(self, part: Part, updates: Sequence[int]) -> None:
        units = self.emitter.schedule.clusters[part.cluster].units
        self._prepare(part, units)
        if not part.guarded:
            mapping = self.repeated.setdefault(part.stage, {})
            self._units(units, part, self.builder, mapping)
            for j, value in self._updates(updates, part, self.builder, mapping):
                self.next_carried[j] = value
            return
        results = self._needed_outside(part.cluster)
        guard = self._guard(part)
        taken, skipped = Block(), Block()
        inside = Builder(InsertPoint.at_end(taken))
        mapping: dict[SSAValue, SSAValue] = {}
        known = dict(self.made)
        self._units(units, part, inside, mapping)
        changed = [(j, v) for j, v in self._updates(updates, part, inside, mapping) if v is not self.state.carried[j]]
        yields = [*(self.made[result] for result in results), *(value for _, value in changed)]
        inside.insert(scf.YieldOp(*yields))
        outside = Builder(InsertPoint.at_end(skipped))
        otherwise: list[SSAValue] = []
        for value in yields[: len(results)]:
            constant = zero_of(value)
            outside.insert(constant)
            otherwise.append(constant.result)
        otherwise += [self.state.carried[j] for j, _ in changed]
        outside.insert(scf.YieldOp(*otherwise))
        conditional = scf.IfOp(guard, [v.type for v in yields], Region(taken), Region(skipped) if yields else None)
        self.builder.insert(conditional)
        self.made = known
        self.made.update(zip(results, conditional.results[: len(results)], strict=True))
        for (j, _), value in zip(changed, conditional.results[len(results) :], strict=True):
            self.next_carried[j] = value

    def _needed_outside(self, cluster: int) -> list[Result]:
        """Results of a cluster that other clusters, later steps, or carried values read."""
        schedule, body = self.emitter.schedule, self.emitter.source.body
        own = set(schedule.clusters[cluster].units)
        readers = {
            result for at, c in enumerate(schedule.clusters) if at != cluster for unit in c.units for result in body.units[unit].uses
        }
        stage = schedule.clusters[cluster].stage
        last = max(at for at, c in enumerate(schedule.clusters) if c.stage == stage)
        if last != cluster:
            readers |= {entry.result for entry in body.yields if entry.result is not None}
        return sorted(result for result in readers if result[0] in own)

    def _prepare(self, part: Part, units: Sequence[int]) -> None:
        """Slots of the part, outside of its condition."""
        emitter = self.emitter
        for unit in units:
            for value in used_values(emitter.source.operations[unit]):
                count = emitter.counts.get(value)
                if count is not None and (value, part.stage) not in self.slots:
                    layout = tile.shared_layout_of(value)
                    slot = pipe.SlotOp(emitter.slots[value].result, [emitter.counter((part.stage, count), self.index)], layout)
                    self.slots[value, part.stage] = self.index.insert(slot)

    def _iv(self, part: Part) -> SSAValue:
        if part.offset not in self.ivs:
            width = self.index.static(self.width)
            distance = self.index.constant(width * part.offset) if width is not None else self.index.multiply(self.width, part.offset)
            self.ivs[part.offset] = self.index.add(self.base, distance) if part.offset else self.base
        return self.ivs[part.offset]

    def _guard(self, part: Part) -> SSAValue:
        if part.offset not in self.guards:
            self.guards[part.offset] = self.index.insert(arith.CmpiOp(self._iv(part), self.upper, "slt"))
        return self.guards[part.offset]

    def _units(self, units: Sequence[int], part: Part, builder: Builder, mapping: dict[SSAValue, SSAValue]) -> None:
        for unit in units:
            op = self.emitter.source.operations[unit]
            for value in used_values(op):
                self._bind(value, part, builder, mapping)
            clone = self._clone(op, builder, mapping)
            for number, result in enumerate(clone.results):
                self.made[unit, number] = result

    @staticmethod
    def _clone(op: Operation, builder: Builder, mapping: dict[SSAValue, SSAValue]) -> Operation:
        clone = op.clone(mapping)
        builder.insert(clone)
        return clone

    def _updates(
        self, updates: Sequence[int], part: Part, builder: Builder, mapping: dict[SSAValue, SSAValue]
    ) -> list[tuple[int, SSAValue]]:
        terminator = self.emitter.block.last_op
        if terminator is None:
            raise InternalError("a loop without a terminator")
        return [(j, self._bind(terminator.operands[j], part, builder, mapping)) for j in updates]

    def _bind(self, value: SSAValue, part: Part, builder: Builder, mapping: dict[SSAValue, SSAValue]) -> SSAValue:
        """What stands for `value` of the body in the iteration of `part`."""
        if value in mapping:
            return mapping[value]
        found = self._find(value, part, builder, mapping)
        mapping[value] = found
        return found

    def _find(self, value: SSAValue, part: Part, builder: Builder, mapping: dict[SSAValue, SSAValue]) -> SSAValue:
        emitter, schedule = self.emitter, self.emitter.schedule
        if (value, part.stage) in self.slots:
            return self.slots[value, part.stage]
        if value is emitter.block.args[0]:
            return self._iv(part)
        if value in emitter.block.args:
            j = emitter.block.args.index(value) - 1
            return self._version(self.state.carried[j], self.state.older_carried[j], part.stage - schedule.carried_stage[j])
        if not isinstance(value, OpResult) or value.op.parent is not emitter.block:
            return value
        unit = emitter.source.operations.index(value.op)
        if emitter.source.body.units[unit].is_free:
            for needed in used_values(value.op):
                self._bind(needed, part, builder, mapping)
            return self._clone(value.op, builder, mapping).results[value.index]
        result = (unit, value.index)
        stage = schedule.stage_of(unit)
        if stage is None:
            raise InternalError(f"{value.op.name} is in no stage")
        return self._version(self.made.get(result), self.state.older_results.get(result, []), part.stage - stage)

    @staticmethod
    def _version(now: SSAValue | None, older: Sequence[SSAValue | None], steps: int) -> SSAValue:
        found = older[steps - 1] if steps else now
        if found is None:
            raise InternalError("a step reads a value that no step has made")
        return found
