"""Where a loop's covered comparisons turn in one execution of it: the stretches between, in each of which they all stay as they are.

Only comparisons that something depends on count; which these are shows when the loop is followed.
"""

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from treadle.ir.core import BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.verify.classes import Form, combined, of, scaled, shifted
from treadle.verify.scalars import constant_of, scalar_function
from treadle.verify.trace_state import State, Undecided
from treadle.verify.turning_points import EXTREMES, Choices, LoopFacts, NoTurns, Position, Stretches

if TYPE_CHECKING:
    from treadle.verify.loop_comparisons import Turn
    from treadle.verify.reasons import Constraint, Reason

_LESS, _GREATER = (2, 3), (4, 5)
_FROM_ZERO = (2, 5)
"""Of these, the ones that a difference of zero or more decides; else it is one or more."""


class LoopTurns(NoTurns):
    """The turning points of one loop. `open`: the comparisons that may be left out where nothing depends on them."""

    def __init__(self, state: State, op: scf.ForOp, facts: LoopFacts) -> None:
        self.state, self.op, self.facts = state, op, facts
        self.open = frozenset(each for each in facts.covered if each.results[0] in state.unknowns.varies)
        self._always = [each for each in facts.covered if each not in self.open]
        self._places = {turn: [(state.place(v), factor) for v, factor in turn.rest] for turn in (*facts.turns(facts.covered), *facts.signs)}

    def known(self, comparisons: Iterable[Operation]) -> frozenset[Operation]:
        """Those of which it is known where they turn."""
        env = self.state.env
        return frozenset(
            op
            for op in comparisons
            if all(isinstance(env[at], int) for turn in self.facts.covered[op].turns for at, _ in self._places[turn])
        )

    def stretches(self, used: frozenset[Operation], count: int, length: Form, until: int) -> Stretches:
        """The stretches of an execution of `count` iterations in which something depends on `used`; `until` at the latest."""
        found: dict[int, list[Form]] = {0: [Form((), 0)], count: [length]}
        needs: list[Reason] = []
        shared: list[Constraint] = []
        for turn in (*self.facts.signs, *self.facts.turns([*self._always, *(op for op in self.facts.covered if op in used)])):
            value, form = self._at_start(turn, needs)
            each = turn.per_iteration
            for limit in turn.limits:
                if turn in self.facts.placed:
                    at = self._place(limit, value, each)
                    if 0 < at < count:
                        found.setdefault(at, []).append(Form((), at))
                    elif at >= count and length.terms:  # executions of more iterations have to end ahead of it, too
                        until = min(until, at)
                        self._note(shared, shifted(scaled(length, -1), at))
                    continue
                if not each:
                    self._note(shared, shifted(form, -limit) if value >= limit else shifted(scaled(form, -1), limit - 1))
                    continue
                # upwards from `limit` where the form grows, downwards from `-limit` where it falls
                distance, left = (limit - value, shifted(scaled(form, -1), limit)) if each > 0 else (value + limit, shifted(form, limit))
                at, point = -(-distance // abs(each)), self.state.atoms.ceiling(left, abs(each))
                if at <= 0:
                    self._note(shared, scaled(point, -1))
                elif at >= count:
                    until = min(until, at)
                    self._note(shared, combined(point, length, -1))
                else:
                    found.setdefault(at, []).append(point)
        return Stretches([(at, self._same(found[at], shared)) for at in sorted(found)], until, needs, shared)

    def _place(self, limit: int, value: int, each: int) -> int:
        """At which iteration a form turns that has this value in iteration 0."""
        return -(-(limit - value if each > 0 else value + limit) // abs(each)) if each else 0

    def choices(self, used: frozenset[Operation], at: int) -> Choices:
        """Which operand is chosen throughout the stretch that begins with iteration `at`, where one turning point decides it."""
        found: list[tuple[Operation, int]] = []
        for op in (*self._always, *(op for op in self.facts.covered if op in used)):
            covered = self.facts.covered[op]
            if covered.only_limit is not None:
                found += _choices(op, is_above=_is_above(covered.turns[0], self._value(covered.turns[0], at)))
            elif not covered.residues and not covered.conditions:
                found += self._choices_of_several(op, at)
        for op, turn, placed in self.facts.inside:
            first = self._value(placed.turn, at)
            sides = {_is_above(turn, value) for value in (first, first + turn.per_iteration * (placed.count - 1))}
            if len(sides) == 1:
                found += _choices(op, is_above=sides.pop())
        return frozenset(found)

    def _choices_of_several(self, op: Operation, at: int) -> list[tuple[Operation, int]]:
        """The same where several turning points decide: what iteration `at` compares says on which side of all of them the stretch is."""
        known = {value for turn in self.facts.covered[op].turns for value, _ in turn.rest}
        left, right = (self._computed(operand, at, known) for operand in op.operands)
        if left is None or right is None:
            return []
        return _choices(op, is_above=left >= right + (op.name in EXTREMES or _predicate(op) not in _FROM_ZERO))

    def _computed(self, value: SSAValue, at: int, known: Set[SSAValue]) -> int | None:
        """What a value is in iteration `at`, where it is made of the loop's numbers and values that turning points depend on."""
        owner = value.owner
        if value in known:
            number = self.state.env[self.state.place(value)]
            return number if isinstance(number, int) else None
        if isinstance(value, BlockArgument):
            return self._carried(value.index - 1, at, known) if owner is self.op.body.block else None
        if not isinstance(owner, Operation) or owner.regions:
            return None
        if (constant := constant_of(value)) is not None:
            return constant
        function = scalar_function(owner)
        operands = [self._computed(operand, at, known) for operand in owner.operands] if function is not None else []
        return None if function is None or None in operands else function(*operands)

    def _carried(self, place: int, at: int, known: Set[SSAValue]) -> int | None:
        """What the loop carries at a place in iteration `at`, or where that is -1 its number, if it grows evenly."""
        start = self.op.iter_args[place] if place >= 0 else self.op.lb
        step = self.facts.steps.get(place) if place >= 0 else constant_of(self.op.step)
        first = self._computed(start, at, known) if start in known else None
        return None if first is None or step is None else first + step * at

    def _value(self, turn: "Turn", at: int) -> int:
        """The value of a form in iteration `at`."""
        return self._at_start(turn, [])[0] + turn.per_iteration * at

    def _at_start(self, turn: "Turn", needs: "list[Reason]") -> Position:
        """The value and the form of a comparison at iteration 0."""
        state, value, form = self.state, turn.constant, Form((), turn.constant)
        for at, factor in self._places[turn]:
            number, reason = state.env[at], state.reasons[at]
            if not isinstance(number, int):
                raise Undecided(self.op, "a comparison of it depends on values that are not known before the kernel runs")
            if reason is not None:
                needs.append(reason)
            value += factor * number
            form = combined(form, of(state.symbols[at], number), factor)
        return value, form

    def _note(self, shared: "list[Constraint]", form: Form, *, is_zero: bool = False) -> None:
        if form.terms or form.iterations:
            from treadle.verify.reasons import Constraint

            shared.append(Constraint("zero" if is_zero else "not_negative", form, self.op))

    def _same(self, forms: list[Form], shared: "list[Constraint]") -> Form:
        for other in forms[1:]:
            if other.terms or forms[0].terms or other.iterations:
                self._note(shared, combined(other, forms[0], -1), is_zero=True)
        return forms[0]


def _is_above(turn: "Turn", value: int) -> bool:
    """Whether a form of this value has come to its only limit, or not yet fallen below it."""
    (limit,) = turn.limits
    return value >= limit if turn.per_iteration >= 0 else value > -limit


def _choices(op: Operation, *, is_above: bool) -> list[tuple[Operation, int]]:
    """Which operand an extremum is, or the selections by a comparison are."""
    if op.name in EXTREMES:
        return [(op, int(is_above == (op.name == "arith.minsi")))]
    if (predicate := _predicate(op)) not in _LESS + _GREATER:
        return []
    holds = is_above == (predicate in _GREATER)
    users = [use.operation for use in op.results[0].uses if use.index == 0]
    return [(user, 1 if holds else 2) for user in users if user.name == "arith.select"]


def _predicate(op: Operation) -> int:
    found = op.properties.get("predicate")
    return int(found.value.data) if isinstance(found, builtin.IntegerAttr) else -1
