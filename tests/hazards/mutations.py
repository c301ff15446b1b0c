"""Mutations of right schedules, one or two at a time: whatever the simulator objects to must not pass the verifier.

`python tests/hazards/mutations.py --count N --seed S --jobs J` draws N mutants; mutant i depends on the seed and i alone. `--log FILE`
keeps a line for each, and goes on where it ended. The table says, for each kind, how many there were, how many the verifier refused, and to
how many of the others, which are simulated in four ways, the simulator objects. Status 1 where there are any of these.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hazards.campaign import compiled, simulator_objects
from hazards.kernels import kernel_of
from hazards.programs import PROGRAMS

from treadle.dialects import pipe, sync, tile
from treadle.errors import TreadleError
from treadle.ir.core import Block, IsTerminator, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.text import verify_module
from treadle.sim.faults import SimulationFault
from treadle.verify.check import prove
from treadle.verify.faults import erase, is_sync, matters, set_pending, set_warps, weakenings

Change = Callable[[Operation], None]
MAX_NAMED = 40
"""Missed mutants that are named."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mutant: what was done to which schedule, what the verifier said (a rule, a code, or nothing), whether it is missed.

    `is_missed`: the simulator objects to what the verifier accepts.
    """

    number: int
    schedule: str
    kinds: tuple[str, ...]
    verifier: str
    is_missed: bool


# --- what may be changed


def mutations(op: Operation) -> Iterator[tuple[str, Change]]:
    """What can be done to an operation, by kind."""
    if is_sync(op):
        yield "remove", erase
        yield "duplicate", _duplicate
    if matters(op) and not op.regions:
        if _neighbour(op, later=True) is not None:
            yield "swap with the next", partial(_move, later=True)
        if _neighbour(op, later=False) is not None:
            yield "move up", partial(_move, later=False)
    match op:
        case sync.WaitPhaseOp() | tile.OrderedCounterOp():
            yield from weakenings(op)
        case sync.WaitOp():
            yield "one more pending", lambda o: set_pending(o, 1)
            if op.pending.value.data:
                yield "one fewer pending", lambda o: set_pending(o, -1)
        case sync.MbarrierAllocOp():
            yield "one more arrival", lambda o: _add(o, "arrivals", 1)
            if op.arrivals.value.data > 1:
                yield "one arrival fewer", lambda o: _add(o, "arrivals", -1)
        case sync.MbarrierExpectOp():
            yield "16 bytes more", lambda o: _add(o, "byte_count", 16)
            yield "16 bytes fewer", lambda o: _add(o, "byte_count", -16)
        case sync.NamedBarrierOp():
            yield "one warp more", lambda o: _change_warps(o, 1)
            if op.warps.value.data > 1:
                yield "one warp fewer", lambda o: _change_warps(o, -1)
            yield "another barrier", lambda o: _add(o, "id", 1)
        case pipe.SlotOp() | sync.MbarrierSlotOp():
            yield "the next slot", _next_slot
        case sync.ArriveOp() if op.peers is not None:
            for rank in op.peer_ranks() if len(op.peer_ranks()) > 1 else ():
                yield "a peer fewer", partial(_without_rank, name="peers", rank=rank)
        case tile.CopyOp() if op.multicast is not None and len(op.multicast_ranks()) > 1:
            for rank in op.multicast_ranks():
                yield "a receiver fewer", partial(_without_rank, name="multicast", rank=rank)
        case _:
            return


def _neighbour(op: Operation, *, later: bool) -> Operation | None:
    """The operation that matters next to one in its block, where values let them trade places."""
    other = op.next_op if later else op.prev_op
    while other is not None and not matters(other):
        other = other.next_op if later else other.prev_op
    if other is None or other.has_trait(IsTerminator):
        return None
    first, second = (op, other) if later else (other, op)
    results: set[SSAValue] = set(first.results)
    between: Operation | None = first.next_op
    while between is not None:
        if any(value in results for inner in between.walk() for value in inner.operands):
            if between is second:
                return None
            results.update(between.results)
        if between is second:
            break
        between = between.next_op
    return other


def _move(op: Operation, *, later: bool) -> None:
    other, block = _neighbour(op, later=later), op.parent
    if other is None or not isinstance(block, Block):
        return
    first, second = (op, other) if later else (other, op)
    if later:
        needs = _users_between(first, second)
        first.detach()
        block.insert_op_after(first, second)
        for user in reversed(needs):
            user.detach()
            block.insert_op_after(user, first)
        return
    needs = _sources_between(first, second)
    second.detach()
    block.insert_op_before(second, first)
    for source in needs:
        source.detach()
        block.insert_op_before(source, second)


def _users_between(first: Operation, last: Operation) -> list[Operation]:
    found: list[Operation] = []
    results: set[SSAValue] = set(first.results)
    op = first.next_op
    while op is not None and op is not last:
        if any(value in results for inner in op.walk() for value in inner.operands):
            found.append(op)
            results.update(op.results)
        op = op.next_op
    return found


def _sources_between(first: Operation, last: Operation) -> list[Operation]:
    found: list[Operation] = []
    wanted: set[SSAValue] = {value for inner in last.walk() for value in inner.operands}
    op = last.prev_op
    while op is not None and op is not first:
        if any(result in wanted for result in op.results):
            found.insert(0, op)
            wanted.update(value for inner in op.walk() for value in inner.operands)
        op = op.prev_op
    return found


def _duplicate(op: Operation) -> None:
    if isinstance(block := op.parent, Block):
        block.insert_op_after(op.clone(), op)


def _add(op: Operation, name: str, change: int) -> None:
    value = op.properties[name]
    if isinstance(value, builtin.IntegerAttr):
        op.properties[name] = builtin.IntegerAttr(value.value.data + change, builtin.i64)


def _change_warps(op: Operation, change: int) -> None:
    if isinstance(op, sync.NamedBarrierOp):
        set_warps(op, op.warps.value.data + change)


def _without_rank(op: Operation, *, name: str, rank: int) -> None:
    op.properties[name] = tile.i64_array([other for other in tile.ints(op.properties[name]) if other != rank])


def _next_slot(op: Operation) -> None:
    """The slot behind the one that was asked for, around the ring."""
    if isinstance(op, sync.MbarrierSlotOp):
        owner = op.source.owner
        count = owner.slot_count() if isinstance(owner, sync.MbarrierAllocOp) else 1
    else:
        count = tile.memref_type(op.operands[0]).get_shape()[0]
    at = arith.ConstantOp.from_int_and_width(1, builtin.IndexType())
    ring = arith.ConstantOp.from_int_and_width(count, builtin.IndexType())
    moved = arith.AddiOp(op.operands[1], at.result)
    wrapped = arith.RemUIOp(moved.result, ring.result)
    if isinstance(block := op.parent, Block):
        for new in (at, ring, moved, wrapped):
            block.insert_op_before(new, op)
        op.operands[1] = wrapped.result


# --- drawing and judging


@lru_cache(maxsize=1)
def schedules() -> tuple[tuple[str, tile.KernelOp, tuple[int, ...]], ...]:
    """Name, kernel and symbols of the schedules that are mutated."""
    found = [(name, kernel_of(schedule.text, name), schedule.symbols) for name, schedule in PROGRAMS.items()]
    found += [(name, kernel.clone(), ()) for name, kernel in compiled()]
    return tuple(found)


def mutant(number: int, seed: int) -> Outcome | None:
    """Mutant `number`: a schedule, and one or two changes of it; None where the second change has no place left or nothing changes."""
    random = Random(f"{seed}:{number}")
    name, original, symbols = random.choice(schedules())
    kernel = original.clone()
    kinds: list[str] = []
    for _ in range(random.choice((1, 2))):
        choices = [(op, kind, change) for op in kernel.body.walk() for kind, change in mutations(op)]
        every = sorted({kind for _, kind, _ in choices})
        wanted = random.choice(every)
        op, kind, change = random.choice([choice for choice in choices if choice[1] == wanted])
        change(op)
        kinds.append(kind)
    return None if kernel.is_structurally_equivalent(original) else judged(number, name, tuple(kinds), kernel, symbols)


def judged(number: int, name: str, kinds: tuple[str, ...], kernel: tile.KernelOp, symbols: Sequence[int]) -> Outcome:
    """What verifier and simulator say of a kernel."""
    try:
        verify_module(kernel)
        verdict = prove(kernel, max_findings=1)
    except TreadleError as error:
        return Outcome(number, name, kinds, error.code, is_missed=False)
    if not verdict.is_proven:
        return Outcome(number, name, kinds, verdict.findings[0].rule if verdict.findings else "TR415", is_missed=False)
    try:
        return Outcome(number, name, kinds, "", is_missed=simulator_objects(kernel, symbols))
    except SimulationFault:
        return Outcome(number, name, kinds, "", is_missed=True)


def line_of(outcome: Outcome | None, number: int) -> str:
    """A line of the log."""
    if outcome is None:
        return json.dumps({"number": number})
    return json.dumps(asdict(outcome))


def read_log(path: Path | None) -> dict[int, Outcome | None]:
    """The outcomes that a log keeps."""
    found: dict[int, Outcome | None] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
        facts: dict[str, Any] = json.loads(line)
        number = int(facts["number"])
        kinds = tuple(facts.get("kinds", ()))
        found[number] = Outcome(number, facts["schedule"], kinds, facts["verifier"], facts["is_missed"]) if kinds else None
    return found


def table(outcomes: Sequence[Outcome]) -> str:
    """How many of each kind, and what was said of them; a double mutant counts as one kind."""
    rows: dict[str, list[int]] = {}
    for outcome in outcomes:
        kind = outcome.kinds[0] if len(outcome.kinds) == 1 else "two changes"
        row = rows.setdefault(kind, [0] * 3)
        for at, is_so in enumerate((True, bool(outcome.verifier), outcome.is_missed)):
            row[at] += is_so
    rows = dict(sorted(rows.items()))
    rows["all"] = [sum(row[at] for row in rows.values()) for at in range(3)]
    lines = [f"{'kind':24} {'mutants':>8} {'refused':>8} {'simulated':>10} {'missed':>7}"]
    return "\n".join([*lines, *(f"{kind:24} {a:8} {b:8} {a - b:10} {c:7}" for kind, (a, b, c) in rows.items())])


def main() -> int:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    done = read_log(given.log)
    left = [number for number in range(given.count) if number not in done]
    with ProcessPoolExecutor(given.jobs) as pool:
        for number, outcome in zip(left, pool.map(partial(mutant, seed=given.seed), left, chunksize=4), strict=True):
            done[number] = outcome
            if given.log is not None:
                with given.log.open("a", encoding="utf-8") as log:
                    log.write(line_of(outcome, number) + "\n")
    outcomes = [outcome for number, outcome in sorted(done.items()) if outcome is not None and number < given.count]
    print(table(outcomes))
    missed = [outcome for outcome in outcomes if outcome.is_missed]
    for outcome in missed[:MAX_NAMED]:
        print(f"missed: mutant {outcome.number} of {outcome.schedule}: {', '.join(outcome.kinds)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
