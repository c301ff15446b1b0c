"""An abstract machine for loop schedules: values are what they were computed from, so that equal values mean equal programs."""

from dataclasses import dataclass, field
from typing import Any

from treadle.plan.expansion import Expansion, Part, expand
from treadle.plan.loop_body import Body
from treadle.plan.stages import Schedule

Values = dict[tuple[int, int], Any]


@dataclass
class Machine:
    """Executes units on memory of slots; values are what they were computed from."""

    body: Body
    slots: tuple[int, ...]
    memory: dict[tuple[int, int], Any] = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    def carried(self, j: int, iteration: int) -> Any:
        if iteration == 0:
            return ("init", j)
        entry = self.body.yields[j]
        if entry.result is not None:
            return self.result(entry.result[0], iteration - 1)
        return self.carried(entry.carried, iteration - 1) if entry.carried is not None else ("invariant", j)

    def result(self, unit: int, iteration: int) -> Any:
        if self.body.units[unit].is_free:
            return ("free", unit, iteration)
        return self.values[unit, iteration]  # a KeyError here: used before it was made

    def run(self, unit: int, iteration: int) -> None:
        assert (unit, iteration) not in self.values, "run twice"
        record = self.body.units[unit]
        seen: list[Any] = [unit, iteration if record.loads or record.copies else None]
        seen += [self.result(p, iteration) for p, _ in sorted(record.uses)]
        seen += [self.carried(j, iteration) for j in sorted(record.carried)]
        happening = [a for a in record.accesses if a.condition is None or hash((a.condition, iteration)) % 2]
        for access in happening:
            if not access.is_write:
                seen.append(self.memory.get((access.resource, iteration % self.slots[access.resource]), "poison"))
        value = hash(tuple(seen))
        self.values[unit, iteration] = value
        for access in happening:
            if access.is_write:
                self.memory[access.resource, iteration % self.slots[access.resource]] = value


def in_order(body: Body, iterations: int) -> Machine:
    machine = Machine(body, (1,) * len(body.resources))
    for iteration in range(iterations):
        for unit, record in enumerate(body.units):
            if not record.is_free:
                machine.run(unit, iteration)
    return machine


def overlapped(body: Body, schedule: Schedule, expansion: Expansion, iterations: int) -> Machine:
    machine = Machine(body, schedule.slots)
    kept = dict(schedule.result_versions)
    made_in: dict[tuple[int, int], int] = {}
    step = 0

    def part(p: Part, base: int) -> None:
        iteration = base + p.offset
        if p.guarded and iteration >= iterations:
            return
        assert 0 <= iteration < iterations, "an iteration that does not exist"
        assert iteration == step - p.stage
        for unit in schedule.clusters[p.cluster].units:
            for made, result in body.units[unit].uses:
                if not body.units[made].is_free:
                    assert step - made_in[made, iteration] <= kept.get((made, result), 0), "no longer kept"
            machine.run(unit, iteration)
            made_in[unit, iteration] = step

    for parts in expansion.prologue:
        for p in parts:
            part(p, 0)
        step += 1
    if expansion.steady is not None:
        for base in range(max(iterations - expansion.shortened, 0)):
            for p in expansion.steady:
                part(p, base)
            step += 1
    base = step - (schedule.stages - 1)
    if expansion.after is not None and expansion.epilogue:
        assert base == expansion.after
    for parts in expansion.epilogue:
        for p in parts:
            part(p, base)
        step += 1
    return machine


def check(body: Body, schedule: Schedule) -> None:
    for iterations in range(2 * schedule.stages + 2):
        expected = in_order(body, iterations).values
        ways: list[int | None] = [iterations, None]
        if schedule.tail == "versioned" and iterations < schedule.stages - 1:
            ways = [iterations]  # the sequential loop runs instead
        for known in ways:
            machine = overlapped(body, schedule, expand(schedule, known), iterations)
            assert machine.values == expected
        for least in range(iterations + 1 if len(ways) > 1 else 0):
            assert overlapped(body, schedule, expand(schedule, None, least), iterations).values == expected
