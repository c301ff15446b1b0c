"""Which runs show everything a kernel can do: one for each class of trip counts and each way of its branches.

Sizes and workgroup ids are not known to the compiler. Values are tried that make every loop run 0, 1, .., more times than any pipeline of
the kernel is deep, by themselves and together, and each distinct trace is kept once. Where a branch on such a value went one way only,
values are sought for which it goes the other way; failing that, its condition is taken to be the other one, all equal conditions with it.
Conditions that no value decides are taken both ways, all agents alike.
"""

from collections.abc import Iterator
from itertools import product

from treadle.dialects import tile
from treadle.ir.core import BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.verify.conditions import add
from treadle.verify.events import Trace
from treadle.verify.program import Program, sources_of
from treadle.verify.scalars import constant_value
from treadle.verify.trace import Tracer

MAX_TRACES = 48
MAX_TRIES = 600
MAX_CONSTANT = 8192
MAX_VALUE = 1 << 16
MAX_BRANCHES = 4


def traces(program: Program) -> Iterator[Trace]:
    """The distinct traces of a kernel, shortest first."""
    tracer = Tracer(program)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for unknowns in dict.fromkeys(_choices(program)):
        trace = tracer.run(unknowns)
        if trace.roots not in seen:
            seen.add(trace.roots)
            yield trace
        for forced in _ways(tracer):
            trace = tracer.run(unknowns, forced)
            if trace.roots not in seen:
                seen.add(trace.roots)
                yield trace
        if len(seen) >= MAX_TRACES:
            return
    for unknowns in _turning_points(program, tracer):
        trace = tracer.run(unknowns)
        if trace.roots not in seen:
            seen.add(trace.roots)
            yield trace
    for key in dict.fromkeys(tracer.conditions.of(op.cond).key for op, _ in _one_sided(program, tracer)):
        for way in (True, False):
            trace = tracer.run(_typical(program), {key: way})
            if trace.roots not in seen:
                seen.add(trace.roots)
                yield trace


def _ways(tracer: Tracer) -> Iterator[dict[object, bool]]:
    branches = list(tracer.open_branches)[:MAX_BRANCHES]
    for ways in product((False, True), repeat=len(branches)):
        if branches:
            yield dict(zip(branches, ways, strict=True))


def _one_sided(program: Program, tracer: Tracer) -> list[tuple[scf.IfOp, bool]]:
    """Branches that depend on unknown values, not on loops they are in, and went one way only; which."""
    found: list[tuple[scf.IfOp, bool]] = []
    for op in program.all(scf.IfOp):
        if program.unknowns:
            index = program.index[op]
            ways = {way for at, way in tracer.branches if at == index}
            if len(ways) == 1 and _depends(program, op):
                found.append((op, ways.pop()))
    return found


def _turning_points(program: Program, tracer: Tracer) -> Iterator[tuple[int, ...]]:
    """Values of one unknown around which a comparison of a one-sided branch turns, the others typical."""
    typical = _typical(program)
    for op, _ in _one_sided(program, tracer):
        for comparison in _comparisons(op.cond):
            form = add(tracer.conditions.linear(comparison.operands[0]), tracer.conditions.linear(comparison.operands[1]), -1)
            for at, unknown in enumerate(program.unknowns):
                atom = tracer.conditions.linear(unknown)[0][0][0]
                factor = dict(form[0]).get(atom, 0)
                if not factor or len(form[0]) > 1:
                    continue
                turn = -form[1] // factor
                yield from ((*typical[:at], value, *typical[at + 1 :]) for value in (turn - 1, turn, turn + 1) if 0 <= value <= MAX_VALUE)


def _comparisons(condition: SSAValue) -> list[Operation]:
    found: list[Operation] = []
    work, seen = [condition], set[SSAValue]()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, Operation) and value.owner.name == "arith.cmpi":
            found.append(value.owner)
        else:
            work += sources_of(value)
    return found


def _in_loop(op: Operation) -> bool:
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, scf.ForOp):
            return True
        parent = parent.parent_op()
    return False


def _depends(program: Program, op: scf.IfOp) -> bool:
    unknown = {value for known in program.unknowns for value in program.same_as(known)}
    work, seen = [op.cond], set[SSAValue]()
    while work:
        value = work.pop()
        if value not in seen:
            seen.add(value)
            work += sources_of(value)
    if _in_loop(op) and any(isinstance(value, BlockArgument) and value not in unknown for value in seen):
        return False
    return not unknown.isdisjoint(seen)


def _typical(program: Program) -> tuple[int, ...]:
    long = _unit(program) * (4 * program.depth + 3)
    return tuple(0 if isinstance(v.owner, tile.ProgramIdOp) else long for v in program.unknowns)


def _unit(program: Program) -> int:
    return max(_constants(program))


def _constants(program: Program) -> list[int]:
    """Constants that the kernel's decisions are made with: steps, tile sizes, depths."""
    found = {1}
    for op in program.all(arith.ConstantOp):
        if op.result in program.deciding:
            value = constant_value(op)
            if value is not None and 0 < value <= MAX_CONSTANT:
                found.add(value)
    return sorted(found)


def _choices(program: Program) -> Iterator[tuple[int, ...]]:
    """Values for the unknowns, in the order in which they are tried."""
    if not program.unknowns:
        yield ()
        return
    depth = program.depth
    counts = [*range(depth + 3), 4 * depth + 3, 4 * depth + 4]
    typical = _typical(program)
    values = sorted({unit * count + extra for unit in _constants(program) for count in counts for extra in (0, 1)})
    values = values[: MAX_TRIES // max(1, len(program.unknowns))]
    yield typical
    for value in values:
        together = tuple(t if isinstance(v.owner, tile.ProgramIdOp) else value for t, v in zip(typical, program.unknowns, strict=True))
        yield together
        for at, unknown in enumerate(program.unknowns):
            if value <= 2 * depth + 2 or not isinstance(unknown.owner, tile.ProgramIdOp):
                yield (*typical[:at], value, *typical[at + 1 :])
