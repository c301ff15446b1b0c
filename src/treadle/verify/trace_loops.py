"""Loops of a run: stretches between turning points, each followed until the loop's state comes back, and how long they may be besides.

Within a stretch an iteration is decided by the loop's state: carried values, as far as they matter, and the number of the iteration modulo
what slots and parities are made of it. Once the state comes back, the rest of the stretch repeats, however long it is.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.classes import Form, Symbol, combined, grown, of, scaled, shifted
from treadle.verify.demand import FULL, reduced
from treadle.verify.events import LoopNode, Segment, compress
from treadle.verify.trace_state import State, Step, Undecided
from treadle.verify.turning_points import Choices, LoopFacts, NoTurns, Stretches

MAX_ITERATIONS = 1 << 18
MAX_BEYOND = 2048  # iterations that a loop is followed beyond its end
STEPS_OF_A_TURN = 4
FEW = 16
HandOver = Callable[[], None]
Forms = dict[int, tuple[Form, int, int]]
"""By the places of values their forms, and the numbers that they are, modulo so much (0: just these)."""


class LoopSteps:
    """One loop.

    `hand_overs`: of carried values at the start, after an iteration, the same without an event, and at the end. `asked`: to which modulus
    values matter where nothing depends on some covered comparisons, and others choose known operands.
    """

    def __init__(
        self,
        state: State,
        op: scf.ForOp,
        facts: LoopFacts,
        body: list[Step],
        hand_overs: tuple[HandOver, ...],
        asked: Callable[[frozenset[Operation], Choices], Mapping[SSAValue, int]],
    ) -> None:
        self.state, self.op, self.facts, self.body = state, op, facts, body
        self.index = state.program.index[op]
        self.enter, self.turn, self.quiet_turn, self.leave = hand_overs
        block = op.body.block
        self.number = state.place(block.args[0])
        self.counters = [(state.place(block.args[at + 1]), state.place(op.iter_args[at]), step) for at, step in facts.steps.items()]
        self.bounds = tuple(state.place(v) for v in (op.lb, op.ub, op.step))
        self.turns = NoTurns() if facts.is_even else _turns(state, op, facts)
        self.used = self.turns.open
        self.asked = asked
        matters = asked(frozenset(), frozenset())
        self.has_results = any(result in matters and at not in facts.steps for at, result in enumerate(op.results))
        self._demand(frozenset())
        if block.last_op is None:
            raise InternalError("scf.for without scf.yield")

    def _demand(self, unused: frozenset[Operation], chosen: Choices = frozenset()) -> None:
        """What of its state matters where nothing depends on some comparisons.

        Where operations choose known operands it is less, but only of what each iteration knows from its number alone: other values go on
        into stretches where other operands are chosen.
        """
        asked, arguments = dict(self.asked(unused, frozenset())), self.op.body.block.args
        counters = [arguments[0], *(arguments[at + 1] for at in self.facts.steps)]
        if chosen:
            less = self.asked(unused, chosen)
            asked |= {value: less.get(value, 1) for value in counters}
        growing = [value for at, value in enumerate(counters) if not at or self.facts.steps[value.index - 1]]
        self.demands = {self.state.place(value): asked[value] for value in arguments if asked.get(value, 1) != 1}
        self.never_repeats = any(asked.get(value) == FULL for value in growing)

    def run(self) -> None:
        """Follow the loop."""
        state = self.state
        lower, upper, step = [state.env[at] for at in self.bounds]
        if not isinstance(lower, int) or not isinstance(upper, int) or not isinstance(step, int) or step <= 0:
            raise Undecided(self.op, "its bounds depend on values that are not known before the kernel runs")
        for at in self.bounds:
            state.commit(state.reasons[at])
        if state.symbols[self.bounds[2]] is not None:
            state.fix(self.bounds[2], self.op)
        span = combined(of(state.symbols[self.bounds[1]], upper), of(state.symbols[self.bounds[0]], lower), -1)
        count = max(0, -((lower - upper) // step))
        state.trips[self.index] = max(count, state.trips.get(self.index, 0))
        self.enter()
        starts = [(at, state.env[source], state.symbols[source], each) for at, source, each in self.counters]
        length = Form((), 0)
        if not count:
            state.not_negative(scaled(span, -1), self.op)
        else:
            length = state.atoms.ceiling(span, step)
            self._iterate(count, length, starts, step)
        for at, value, symbol, each in starts:
            is_known = symbol is not None or (length.terms and isinstance(value, int))
            end = combined(of(symbol, value), scaled(length, each)) if is_known else None  # type: ignore[arg-type]
            state.put(at, value + each * count if isinstance(value, int) else None, end)
        self.leave()

    def _iterate(self, count: int, length: Form, starts: list[tuple[int, object, Symbol, int]], step: int) -> None:
        """Follow all iterations: again, where it shows that something depends on more comparisons than was thought, or on fewer.

        In the end each iteration that was followed went as it did for reasons that turning points and the state decide; so what was left
        out repeats it, and depends on the same.
        """
        state, outer, before = self.state, self.state.out, self.state.turned
        state.turned = {}
        try:
            made, segments, lengths = self._settle(count, length, starts, step)
        finally:
            state.turned = before | state.turned
        state.out = outer
        for reason in made.needs:
            state.commit(reason)
        for constraint in made.shared:
            state.share(constraint)
        self._add_node(segments, lengths)

    def _settle(
        self, count: int, length: Form, starts: list[tuple[int, object, Symbol, int]], step: int
    ) -> tuple[Stretches, list[Segment], list[Form]]:
        state, turns, until = self.state, self.turns, count + MAX_BEYOND
        used, is_final = turns.known(self.used), False
        go_back = state.mark() if turns.open else None
        while True:
            made = turns.stretches(used, count, length, until)
            segments, lengths = self._follow(made, starts, step, used)
            found = turns.open.intersection(state.turned)
            if go_back is None or found == used or (found < used and is_final):
                break
            if found < used and (less := turns.stretches(found, count, length, until)).cut == made.cut:
                made = less
                break
            used, is_final = found if found < used else used | found, True
            go_back()
        self.used = found
        return made, segments, lengths

    def _follow(
        self, made: Stretches, starts: list[tuple[int, object, Symbol, int]], step: int, used: frozenset[Operation]
    ) -> tuple[list[Segment], list[Form]]:
        """The iterations of all stretches, and the forms of their lengths; something depends on the comparisons `used`."""
        state, positions, unused = self.state, made.positions, self.turns.open - used
        is_open = any(form.terms for _, form in positions)
        lower, lower_symbol = state.env[self.bounds[0]], state.symbols[self.bounds[0]]
        varies = [(at, value, symbol, each) for at, value, symbol, each in starts]
        varies.append((self.number, lower, lower_symbol, step))
        (origin, position), is_fixed, is_known = positions[0], False, True

        def begin(at: int) -> None:
            for place, value, symbol, each in varies:
                if not isinstance(value, int):
                    state.put(place, None)
                    continue
                form = None
                if is_open or symbol is not None:
                    base, offset = of(symbol, value), each * (at - origin)
                    form = shifted(combined(base, position, each), offset)
                    if is_open and each and not origin and not is_fixed:
                        form = Form(form.terms, form.constant, grown(form.iterations, ((self.index, each),)))
                state.put(place, value + each * at, form)

        segments: list[Segment] = []
        lengths: list[Form] = []
        for (first, low), (last, high) in pairwise(positions):
            length = shifted(combined(high, low, -1), first - last)
            state.depends(length, self.op)
            is_short = last == positions[-1][0] and not self.has_results
            until = made.until if is_short else last
            self._demand(unused)
            if self.never_repeats:
                self._demand(unused, self.turns.choices(used, first))
            if self.never_repeats and length.terms and is_known and last < positions[-1][0]:
                state.zero(length, self.op)  # else the whole loop had to be as long as here
                length = Form((), last - first)
            is_known = is_known and not length.terms
            # Each of a number of iterations that are the same in all of the class is followed for itself.
            is_fixed = self.never_repeats and is_known
            # In a few iterations after a turning point a number is known by how far that is, however long the loop was before.
            is_tail = bool(low.terms) and (not length.terms or (self.never_repeats and last - first <= FEW))
            origin, position = (first, low) if is_tail else positions[0]
            segments += self._stretch(first, last, until, begin, len(lengths) if length.terms else -1, is_short=is_short)
            lengths.append(length)
        return segments, lengths

    def _add_node(self, segments: list[Segment], lengths: list[Form]) -> None:
        state = self.state
        state.covered.shared += any(form.terms for form in lengths)
        if not any(ids for segment in segments for ids in segment.iterations):
            self._note_silent(segments, lengths)
            return
        kept = tuple(segments)
        node = state.node((self.index, kept), lambda: LoopNode(kept))
        for stretch, form in enumerate(lengths):
            if form.terms:
                state.facts.setdefault((node, stretch), {})[form.key] = None
        state.out.append(node)
        state.loop_of[node] = self.index

    def _note_silent(self, segments: list[Segment], lengths: list[Form]) -> None:
        """Iterations that nobody sees: a stretch that repeats may be longer by any number of its rounds."""
        for stretch, form in enumerate(lengths):
            period = next((len(s.iterations) for s in segments if s.stretch == stretch), 0)
            if form.terms and period:
                self.state.silent.append((self.index, form, period))
            elif form.terms:
                self.state.zero(form, self.op)

    # --- one stretch

    def _stretch(self, first: int, last: int, until: int, begin: Callable[[int], None], stretch: int, *, is_short: bool) -> list[Segment]:
        """Iterations `first` to `last`: once the state has come back, whole rounds of it, and the rest.

        `stretch`: its number where its length is variable, else -1. `is_short`: nobody sees the state that it ends with. A variable one
        is followed beyond its end then, as if it were longer, to see in which rounds it would go on: to `until`, before which no
        comparison turns in the longer loops of the class either.
        """
        state, ids = self.state, list[tuple[int, ...]]()
        seen: dict[tuple[object, ...], tuple[int, Forms]] = {}
        at, kept = first, None
        before = -1
        while True:
            if at - first > MAX_ITERATIONS:
                raise Undecided(self.op, f"{last - first} iterations without repetition are too many to follow")
            if at == last:
                if stretch < 0 or last == first or self.never_repeats:
                    break
                kept = state.values()
            begin(at)
            key, forms = self._key()
            if key in seen:
                before, known = seen[key]
                self._share_return(known, forms)
                break
            if at >= until and at >= last:
                break
            seen[key] = at, forms
            try:
                ids.append(self._once(self.turn))
            except Undecided:
                if kept is None:
                    raise
                break
            at += 1
        if kept is not None:
            state.restore(kept)
        if before < 0:
            return list(compress(ids[: last - first], first))
        return self._repeated(ids, _Run(first, last, before, at, stretch), begin, is_short=is_short)

    def _once(self, turn: HandOver) -> tuple[int, ...]:
        """One iteration, and what it hands to the next."""
        state = self.state
        state.out = []
        state.cost += len(self.body) + STEPS_OF_A_TURN
        if state.cost > state.limit:
            raise Undecided(self.op, "its iterations repeat too late, and are too many to follow")
        for step in self.body:
            step()
        turn()
        return tuple(state.out)

    def _repeated(self, ids: list[tuple[int, ...]], run: "_Run", begin: Callable[[int], None], *, is_short: bool) -> list[Segment]:
        """Segments of a stretch that repeats. `is_short`: nobody sees the state it ends with: a round is over when the events repeat."""
        first, last, start, period = run.first, run.last, run.before, run.at - run.before
        if run.at <= last:
            for number in range(last - (last - run.at) % period, last):  # the values that the loop ends with
                begin(number)
                self._once(self.quiet_turn)
        if is_short:
            start, period = _shortest(ids, start - first, period)
            start += first
        if last - start < period:
            return list(compress(ids[: last - first], first))
        found = list(compress(ids[: start - first], first))
        found.append(Segment(tuple(ids[start - first : start - first + period]), last - start, start, run.stretch))
        return found

    def _share_return(self, known: Forms, forms: Forms) -> None:
        """The state comes back in all of the class, too."""
        state = self.state
        for place in {**known, **forms}:
            one, other = known.get(place), forms.get(place)
            if one is not None and other is not None and not (one[2] or one[0].iterations or other[0].iterations):
                state.congruent(combined(one[0], other[0], -1), 0, 0)  # the same number, whatever it is
                continue
            for form in (one, other):
                if form is not None:
                    state.congruent(*form)

    def _key(self) -> tuple[tuple[object, ...], Forms]:
        """The state of the loop, and the forms that it is made of, as far as they matter."""
        env, symbols = self.state.env, self.state.symbols
        key = tuple([reduced(env[at], modulus) for at, modulus in self.demands.items()])
        forms: Forms = {}
        for at, modulus in self.demands.items():
            value, symbol = env[at], symbols[at]
            if symbol is not None and symbol.terms and isinstance(value, int):
                forms[at] = symbol, value, modulus if modulus != FULL and value >= 0 else 0
        return key, forms


def _turns(state: State, op: scf.ForOp, facts: LoopFacts) -> NoTurns:
    from treadle.verify.loop_turns import LoopTurns  # most loops decide nothing by comparisons

    return LoopTurns(state, op, facts)


class _Run:
    """A stretch from `first` to `last` whose state at `at` is that at `before`."""

    __slots__ = ("at", "before", "first", "last", "stretch")

    def __init__(self, first: int, last: int, before: int, at: int, stretch: int) -> None:
        self.first, self.last, self.before, self.at, self.stretch = first, last, before, at, stretch


def _shortest(ids: list[tuple[int, ...]], start: int, period: int) -> tuple[int, int]:
    """The shortest period of what repeats from `start` on, and where that begins."""
    block = ids[start : start + period]
    shortest = next(p for p in range(1, period + 1) if period % p == 0 and block == block[:p] * (period // p))
    while start and ids[start - 1] == ids[start - 1 + shortest]:
        start -= 1
    return start, shortest
