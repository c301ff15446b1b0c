"""Which runs show everything a kernel can do: one for each class of trip counts and each way of its branches.

Sizes and workgroup ids are not known to the compiler. Values are tried that make every loop run 0, 1, .., more times than any pipeline of
the kernel is deep, by themselves and together, and each distinct trace is kept once. Branches on conditions that no value decides are taken
both ways, all agents alike.
"""

from collections.abc import Iterator
from itertools import product

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.verify.events import Trace
from treadle.verify.program import Program, sources_of
from treadle.verify.scalars import constant_value
from treadle.verify.trace import Tracer

MAX_TRACES = 48
MAX_TRIES = 600
MAX_CONSTANT = 8192
MAX_BRANCHES = 4


def traces(program: Program) -> Iterator[Trace]:
    """The distinct traces of a kernel, shortest first."""
    tracer = Tracer(program)
    seen: set[tuple[int, ...]] = set()
    for unknowns in dict.fromkeys(_choices(program)):
        trace = tracer.run(unknowns)
        if trace.root not in seen:
            seen.add(trace.root)
            yield trace
        for forced in _ways(tracer):
            trace = tracer.run(unknowns, forced)
            if trace.root not in seen:
                seen.add(trace.root)
                yield trace
        if len(seen) >= MAX_TRACES:
            return
    for index in _one_sided(program, tracer):
        for way in (True, False):
            trace = tracer.run(_typical(program), {index: way})
            if trace.root not in seen:
                seen.add(trace.root)
                yield trace


def _ways(tracer: Tracer) -> Iterator[dict[int, bool]]:
    branches = sorted(tracer.open_branches)[:MAX_BRANCHES]
    for ways in product((False, True), repeat=len(branches)):
        if branches:
            yield dict(zip(branches, ways, strict=True))


def _one_sided(program: Program, tracer: Tracer) -> list[int]:
    """Branches outside loops that depend on unknown values and went one way only."""
    found: list[int] = []
    for op in program.ops:
        if isinstance(op, scf.IfOp) and program.unknowns and not _in_loop(op):
            index = program.index[op]
            if len({way for at, way in tracer.branches if at == index}) == 1 and _depends(program, op):
                found.append(index)
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
    work, seen = [op.cond], set[object]()
    while work:
        value = work.pop()
        if value in unknown:
            return True
        if value not in seen:
            seen.add(value)
            work += sources_of(value)
    return False


def _typical(program: Program) -> tuple[int, ...]:
    long = _unit(program) * (4 * program.depth() + 3)
    return tuple(0 if isinstance(v.owner, tile.ProgramIdOp) else long for v in program.unknowns)


def _unit(program: Program) -> int:
    return max(_constants(program))


def _constants(program: Program) -> list[int]:
    """Constants that the kernel's decisions are made with: steps, tile sizes, depths."""
    found = {1}
    for op in program.ops:
        if op.name == "arith.constant" and op.results[0] in program.deciding:
            value = constant_value(op)
            if value is not None and 0 < value <= MAX_CONSTANT:
                found.add(value)
    return sorted(found)


def _choices(program: Program) -> Iterator[tuple[int, ...]]:
    """Values for the unknowns, in the order in which they are tried."""
    if not program.unknowns:
        yield ()
        return
    depth = program.depth()
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
