"""verify-schedule as functions: the verdict on a kernel.

A run at some sizes and workgroup ids stands for a class of them; runs are made until the classes cover all that there are.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from treadle.dialects import tile
from treadle.garbage import uncollected
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.machine import TargetSpec
from treadle.verify.classes import Class, Form, TooHard, UncoveredList
from treadle.verify.engine import Engine
from treadle.verify.events import Trace
from treadle.verify.memory import Geometry
from treadle.verify.program import Program
from treadle.verify.reports import Open, Verdict
from treadle.verify.scalars import is_constant, scalar_function
from treadle.verify.trace import Tracer
from treadle.verify.trace_state import State, Undecided
from treadle.verify.unknowns import Unknown

MAX_FINDINGS = 8
MAX_COST = 240_000
"""Steps and events of all runs together that a proof of up to 100 operations may take: some two seconds. Longer kernels may take longer."""
FEW_OPERATIONS = 100
"""Of fewer operations no effort makes a proof longer: what is right is proven sooner, and who wrote the others wants to know."""
COST_OF_A_PIECE = 13
OPERATIONS = 26
"""Of integer sets, that are in each unit of cost: they take as long when nothing else does."""
MANY = 32
"""After so many classes of sizes it is asked whether the kernel is right whatever way its conditions go."""
MAX_CLASSES = 600
MAX_SINGLE = 24
"""So many classes of one length of a loop are run, of sizes without number: then there is no end of them."""
FAR = 4099
"""What is tried where the classes are too many: larger than what patterns of slots and parities take to come together."""
SHARE_OF_FAR = 4
"""That run may take such a part of the steps of all."""
SHARE_OF_COUNTED = 4
"""Where steps of loops are sizes, a proof for any number of iterations is tried with such a part of the effort."""
TOLD = 3 / 4
"""Where loops carry numbers of iterations, that part is for the proof in which they are told, the rest for one without."""
_MAY_BE_EQUAL = frozenset("arith." + name for name in ("andi", "ori", "xori", "minui", "maxui", "subi"))
"""What `equal_arithmetic.py` may replace."""
_AFTER = {"V5": 1, "V8": 2}  # a race explains more than the stall or the unwritten bytes that come of it
if TYPE_CHECKING:
    from treadle.verify.findings import Finding
    from treadle.verify.uncovered import UncoveredSet

    Uncovered = UncoveredList | UncoveredSet
Executions = dict[int, dict[tuple[tuple[int, int, int], ...], None]]


def prove(
    kernel: tile.KernelOp,
    spec: TargetSpec | None = None,
    *,
    max_findings: int = MAX_FINDINGS,
    effort: int = 1,
    stores: bool = False,
) -> Verdict:
    """The verdict on a schedule-level kernel.

    Stops after the first run that shows a fault, with at most `max_findings` of it. `stores`: those to one array that is only written are
    held against one another as far as their places are known; what is left, or all without it, is an assumption. `effort`: so many times
    the usual number of classes is looked at before a proof is given up.
    """
    with uncollected():
        program = Program(kernel, spec, stores=stores)
        operations = len(program.ops)
        allowed = (min(effort, 1) if operations < FEW_OPERATIONS else effort) * max(1.0, operations / FEW_OPERATIONS) ** 3
        if not stores or not program.only_written or program.all(tile.OrderedCounterOp):
            return _verdict(program, max_findings, allowed, stores=stores)
        plain = Program(kernel, spec)
        if not has_shared_state(plain) or (assumed := _assumed_of_stores(program)) is None:
            return _verdict(program, max_findings, allowed, stores=stores)
        found = _verdict(plain, max_findings, allowed, stores=False)
        taken = assumptions_of(plain)
        assumptions = (*(each for each in found.assumptions if each not in taken), *assumed)
        return Verdict(found.findings, found.undecided, found.classes, tuple(dict.fromkeys(assumptions)))


def _assumed_of_stores(program: Program) -> tuple[str, ...] | None:
    """What is assumed where stores to arrays that are only written never meet, so that runs need not look at them; None where they may."""
    from treadle.verify.stores_apart import stores_apart  # loads the library of integer sets, which most proofs do without

    assumed = stores_apart(program)
    return None if assumed is None else tuple(f"{_named(access.op)}: {what}" for access, what in assumed)


def _verdict(program: Program, max_findings: int, effort: float, *, stores: bool) -> Verdict:
    kernel, spec = program.kernel, program.spec
    if not has_shared_state(program):
        return Verdict(assumptions=assumptions_of(program))

    def again(clone: tile.KernelOp, share: float = 1) -> Verdict:
        return _verdict(Program(clone, spec, stores=stores), max_findings, effort * share, stores=stores)

    if any(name.startswith("affine.") for name in program.names):
        from treadle.verify.plain_arithmetic import in_terms_of, with_plain_arithmetic

        if (found := with_plain_arithmetic(program)) is not None:
            plain, origins = found
            return in_terms_of(kernel, plain, origins, again(plain))
    if not _MAY_BE_EQUAL.isdisjoint(program.names) and any(
        op.name in _MAY_BE_EQUAL and op.results[0] in program.deciding for op in program.ops
    ):
        from treadle.verify.equal_arithmetic import with_equal_arithmetic
        from treadle.verify.plain_arithmetic import in_terms_of

        if (found := with_equal_arithmetic(program)) is not None:
            equal, origins = found
            return in_terms_of(kernel, equal, origins, again(equal))
    if any(value in program.deciding for loop in program.loops for value in loop.body.block.args[1:]):
        from treadle.verify.told_numbers import verdict_on_told

        verdict = verdict_on_told(program, lambda clone: again(clone, TOLD))
        if verdict is not None:
            if verdict.is_proven or verdict.findings:
                return verdict
            effort *= 1 - TOLD
    if any(_has_bounds_of_loop(loop) for loop in program.loops):
        from treadle.verify.flat_nests import with_flat_nests

        if (flat := with_flat_nests(program)) is not None:
            clone, sums = flat
            verdict = Proof(Program(clone, spec, stores=stores, sums=sums), 1, effort / SHARE_OF_COUNTED).verdict()
            if verdict.is_proven:
                return verdict
            effort *= 1 - 1 / SHARE_OF_COUNTED
    if any(not is_constant(loop.step) for loop in program.loops):
        from treadle.verify.counted_loops import with_counted_loops

        if (counted := with_counted_loops(program)) is not None:
            verdict = Proof(Program(counted, spec, stores=stores), 1, effort / SHARE_OF_COUNTED).verdict()
            if verdict.is_proven:
                return verdict
            effort *= 1 - 1 / SHARE_OF_COUNTED
    verdict = Proof(program, max_findings, effort / 2 if program.quiet else effort).verdict()
    if program.quiet and not verdict.is_proven:  # either way of a conditional may need less than both
        return Proof(Program(kernel, spec, stores=stores, follows_all=True), max_findings, effort / 2).verdict()
    return verdict


def _has_bounds_of_loop(loop: scf.ForOp) -> bool:
    """Whether the loop right around a loop decides its bounds."""
    outer = loop.parent_op()
    return isinstance(outer, scf.ForOp) and any(bound.owner.parent_op() is outer for bound in (loop.lb, loop.ub))


class Proof:
    """The proof of one kernel. `effort`: that of a kernel of few operations, times what its length allows. `trip_counts`: those of the
    runs, by the number of the loop.
    """

    def __init__(self, program: Program, max_findings: int, effort: float = 1) -> None:
        self.program, self.max_findings, self.effort = program, max_findings, effort
        self.geometry = Geometry(program)
        self.classes = self.cost = 0
        self.trip_counts: list[dict[int, int]] = []
        self._undecided: dict[Operation, Open] = {}
        self._any_way: bool | None = False  # nothing to ask before there is a tracer
        self._runs: dict[tuple[tuple[tuple[int, ...], ...], frozenset[int]], Executions] = {}

    def verdict(self) -> Verdict:
        """Run classes until none is left."""
        findings: tuple[Finding, ...] = ()
        try:
            self.tracer = Tracer(self.program)
            self.engine = Engine(self.program, self.tracer.state.nodes, self.geometry, self.max_findings)
            self._any_way = None
            findings = self._run_classes()
        except Undecided as stopped:
            self._leave_open(stopped.op, stopped.reason)
        except TooHard:
            blamed = self.tracer.state.narrowing or self.program.kernel
            self._leave_open(blamed, "what it decides makes classes of sizes and workgroups that take too long to tell apart")
        if self._undecided and not findings and self._is_right_any_way():
            self._undecided.clear()
        return Verdict(findings, tuple(self._undecided.values()), self.classes, assumptions_of(self.program, self.geometry))

    def _leave_open(self, op: Operation, reason: str) -> None:
        self._undecided.setdefault(op, Open(op, reason))

    def _run_classes(self) -> "tuple[Finding, ...]":
        unknowns = self.tracer.unknowns
        listed = unknowns.listed()
        single = 0
        limit = int(self.effort * MAX_COST)
        uncovered: Uncovered = UncoveredList(listed or ())
        if listed is None:
            from treadle.verify.domains import domain_of, names_of
            from treadle.verify.uncovered import UncoveredSet  # loading the library takes longer than most proofs

            uncovered = UncoveredSet(names_of(unknowns), domain_of(unknowns), OPERATIONS * limit)
        self.tracer.state.limit = limit
        for values in uncovered:
            self.classes += 1
            trace = self.tracer.run(values)
            self.trip_counts.append(trace.trip_counts)
            executions, findings = self._run(trace)
            if findings:
                return self._refuted(findings, values)
            if self._undecided:
                return ()
            covered = finished(self.tracer.state, executions)
            if not covered.holds(values):
                self._leave_open(self.program.kernel, "the class of a run does not hold the run itself")
                return ()
            uncovered.remove(covered)
            if self.classes == MANY and listed is None and self._is_right_any_way():
                return ()
            single += listed is None and not covered.loops.isdisjoint(self.tracer.state.loop_of.values())
            cost = self.cost + self.tracer.state.cost + COST_OF_A_PIECE * uncovered.cost
            if cost > limit or single > MAX_SINGLE or self.classes > self.effort * MAX_CLASSES:
                return self._give_up(uncovered)
        return ()

    def _is_right_any_way(self) -> bool:
        """Whether the kernel is right whatever way its conditions go; asked once."""
        if self._any_way is None:
            from treadle.verify.reachable import is_right_any_way

            self._any_way = is_right_any_way(self.program, self.tracer, self.geometry)
        return self._any_way

    def _run(self, trace: Trace) -> "tuple[Executions, tuple[Finding, ...]]":
        known = self._runs.get((trace.roots, trace.open_loops))
        if known is not None:
            return known, ()
        engine = self.engine
        findings = engine.run(trace)
        self.cost += engine.cost
        for op, reason in engine.reports.undecided.items():
            self._leave_open(op, reason)
        executions = self._runs[trace.roots, trace.open_loops] = engine.executions
        return executions, tuple(sorted(findings, key=lambda f: _AFTER.get(f.rule, 0)))

    def _refuted(self, findings: "tuple[Finding, ...]", values: tuple[int, ...]) -> "tuple[Finding, ...]":
        """The findings with their sizes; none where those cannot be, because a value was taken to be free that is not."""
        unknowns = self.tracer.unknowns.all
        known = {v: value * u.factor for u, value in zip(unknowns, values, strict=True) for v in u.values}
        for unknown in unknowns:
            is_own = unknown.rank >= 0 or unknown.group >= 0
            if unknown.computes is not None and (is_own or not _agrees(unknown, known)):
                self._leave_open(unknown.computes, "what it computes is taken to be any number, and not all are proven")
                return ()
        where = tuple((unknown.name, value * unknown.factor) for unknown, value in zip(unknowns, values, strict=True))
        return tuple(found.at(where) for found in findings)

    def _give_up(self, uncovered: "Uncovered") -> "tuple[Finding, ...]":
        """The classes are too many. Larger values may still show a fault."""
        if self._is_right_any_way():
            return ()
        state = self.tracer.state
        blame = dict(state.blame)
        state.limit = state.cost + state.limit // SHARE_OF_FAR
        if (values := uncovered.far(FAR)) is not None:
            with suppress(Undecided):  # what is said below says more
                _, findings = self._run(self.tracer.run(values))
                if findings:
                    return self._refuted(findings, values)
        blamed = next(iter(blame.values()), None)
        reason = "what it decides in a loop is another thing for every length of that loop"
        if blamed is None:
            blamed = state.narrowing or self.program.kernel
            reason = f"what it decides is another thing in each of more than {self.classes} classes of sizes and workgroups"
        self._leave_open(blamed, reason)
        return ()


def finished(state: State, executions: Executions) -> Class:
    """The class of a run: what it decided, and the lengths of loops, each as here or longer by rounds that were seen to repeat."""
    found = state.covered
    fixed = {node for node, loop in state.loop_of.items() if loop in found.loops}
    pumps = _usable(state, executions, fixed)
    for (node, stretch), forms in state.facts.items():
        for form in forms:
            for rounds in executions.get(node, ()):  # a node that nobody ran lies beyond the end of a loop
                used = tuple([(pump, each) for pump, at, each in rounds if at == stretch and pump in pumps])
                if not used:
                    state.narrowing = state.program.ops[state.loop_of[node]]
                found.pumped(Form(*form), used)
    first = 1 + max(pumps, default=0)
    for at, (loop, form, period) in enumerate(state.silent):
        found.pumped(form, () if loop in found.loops else ((first + at, period),))
    return found


def _usable(state: State, executions: Executions, fixed: set[int]) -> set[int]:
    """Pumps that lengthen loops of variable length alone, as few as will do."""
    facts = state.facts
    bad = {
        pump
        for node, all_rounds in executions.items()
        for rounds in all_rounds
        for pump, stretch, _ in rounds
        if node in fixed or (node, stretch) not in facts
    }
    found: set[int] = set()
    for all_rounds in executions.values():
        for rounds in all_rounds:
            for stretch in {at for _, at, _ in rounds}:
                usable = [(each, pump) for pump, at, each in rounds if at == stretch and pump not in bad]
                if usable and not any(pump in found for _, pump in usable):
                    found.add(min(usable)[1])
    return found


def _agrees(unknown: Unknown, known: dict[SSAValue, int]) -> bool:
    """Whether a value that was taken to be free is what its operation computes; False where that is not known."""
    op = unknown.computes
    function = None if op is None else scalar_function(op)
    if op is None or function is None:
        return False
    operands = [known.get(v) for v in op.operands]
    try:
        return None not in operands and function(*operands) == known[unknown.values[0]]
    except ArithmeticError:
        return False


def assumptions_of(program: Program, geometry: Geometry | None = None) -> tuple[str, ...]:
    """What a proof takes for granted about global arrays."""
    untracked = program.only_written - program.tracked_pointers
    names = sorted(map(_array, untracked))
    found = [f"stores to {name}, which is only written, go to different elements" for name in names]
    if geometry is not None and (tracked := geometry.tracked) is not None:
        counted = dict.fromkeys(known.access.pointer for known in tracked.arrivals.hand_overs)
        found += [f"{_array(pointer)} is zero before the launch, as it is behind it" for pointer in counted]
        if program.all(tile.AwaitTurnOp):
            found.append("workgroups begin in the order of their numbers in the grid, its first axis fastest")
        found += [f"{_named(op)}: {what}" for op, what in tracked.arrays.assumed.items()]
    return tuple(dict.fromkeys(found))


def _array(pointer: SSAValue) -> str:
    return f"%{pointer.name_hint}" if pointer.name_hint else "an array"


def _named(op: Operation) -> str:
    at = location_of(op)
    return f"{op.name} ({at})" if at else op.name


def has_shared_state(program: Program) -> bool:
    """Whether there is anything to order: shared buffers, barriers, queued results, arrays that are written and read."""
    if program.buffers or program.registers or program.tracked_pointers or len(program.mbarriers):
        return True
    return any(name.startswith("sync.") and name not in ("sync.sched_fence", "sync.set_priority") for name in program.names)


def is_right(kernel: tile.KernelOp, spec: TargetSpec | None = None, *, stores: bool = False) -> bool:
    """Whether a kernel is proven; `stores` as for `prove`."""
    return prove(kernel, spec, max_findings=1, stores=stores).is_proven
