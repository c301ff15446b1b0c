"""What the steps of a run share: numbers and forms of values, nodes so far, and the class that the run stands for."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.ir.core import Operation, SSAValue
from treadle.verify.classes import Atoms, Class, Form, Key, Symbol
from treadle.verify.decode import References
from treadle.verify.events import Node
from treadle.verify.program import Program
from treadle.verify.unknowns import Unknowns

if TYPE_CHECKING:
    from treadle.verify.reasons import Constraint, Reason

Step = Callable[[], None]
Values = tuple[list[object], list[Symbol], "list[Reason | None]"]
NO_LIMIT = 1 << 62
BELOW_ZERO = "it divides a number below zero"
_LOOP, _TURN, _EQUATION = 1000, 20, 10
"""What it costs a class to share the length of a loop, a turning point, an equation, as so many inequalities."""


class Undecided(Exception):
    """A run cannot go on: what an operation does is not known."""

    def __init__(self, op: Operation, reason: str) -> None:
        super().__init__(reason)
        self.op, self.reason = op, reason


class State:
    """One tracer's state. `env`: numbers (or references) of values, `symbols`: their forms in the class of the run.

    `reasons`: what the class has to share for a value's number and form, as long as nothing depends on the value (`commit`). `turned`:
    comparisons that turning points cover and something depended on.
    `facts`: for each node of a loop and each of its stretches between turning points, the forms of its length less the length it has here;
    `loop_of`: the loop that a node comes of; `silent`: the same for loops without events, with what they may be longer by.
    `cost`: steps taken, of all runs, which may not be more than `limit`. `blame`: an operation for each loop whose length a decision fixed;
    `narrowing`: the last one that fixed a number of the class.
    """

    def __init__(self, program: Program, unknowns: Unknowns) -> None:
        self.program, self.unknowns = program, unknowns
        self.atoms = Atoms([unknown.low for unknown in unknowns.all])
        self.references = References()
        self.env: list[object] = []
        self.symbols: list[Symbol] = []
        self.reasons: list[Reason | None] = []
        self.out: list[int] = []
        self.nodes: list[Node] = []
        self._ids: dict[object, int] = {}
        self._place_of: dict[SSAValue, int] = {}
        self.blame: dict[int, Operation] = {}
        self.narrowing: Operation | None = None
        self.cost, self.limit = 0, NO_LIMIT
        self.group = self.rank = 0
        self.begin()

    def begin(self) -> None:
        """Begin a run."""
        self.trips: dict[int, int] = {}
        self.covered = Class(self.atoms)
        self.facts: dict[tuple[int, int], dict[Key, None]] = {}
        self.silent: list[tuple[int, Form, int]] = []
        self.loop_of: dict[int, int] = {}
        self.turned: dict[Operation, None] = {}
        self._committed: dict[Reason, None] = {}

    def place(self, value: SSAValue) -> int:
        """Where a value stands in `env` and `symbols`."""
        found = self._place_of.get(value)
        if found is None:
            found = self._place_of[value] = len(self.env)
            self.env.append(None)
            self.symbols.append(None)
            self.reasons.append(None)
        return found

    def fixed(self, value: object) -> int:
        """The place of something that stays as it is."""
        self.env.append(value)
        self.symbols.append(None)
        self.reasons.append(None)
        return len(self.env) - 1

    def node(self, key: object, make: Callable[[], Node]) -> int:
        """The number of the node with this key."""
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.nodes)
            self.nodes.append(make())
        return found

    def put(self, at: int, value: object, symbol: Symbol = None, reason: "Reason | None" = None) -> None:
        """Set a value."""
        self.env[at] = value
        self.symbols[at] = symbol
        self.reasons[at] = reason

    def values(self) -> Values:
        """All numbers, forms and reasons as they are, for `restore`."""
        return list(self.env), list(self.symbols), list(self.reasons)

    def restore(self, kept: Values) -> None:
        """Go back to these."""
        self.env[:], self.symbols[:], self.reasons[:] = kept

    def mark(self) -> Callable[[], None]:
        """What goes back to here, to follow a loop anew."""
        kept, covered = self.values(), self.covered.mark()
        turned, committed = dict(self.turned), len(self._committed)
        trips, loop_of, silent = dict(self.trips), dict(self.loop_of), len(self.silent)
        facts = {node: dict(forms) for node, forms in self.facts.items()}

        def go_back() -> None:
            self.restore(kept)
            self.covered.go_back(covered)
            self.turned = dict(turned)
            while len(self._committed) > committed:
                self._committed.popitem()
            self.trips, self.loop_of = dict(trips), dict(loop_of)
            self.facts = {node: dict(forms) for node, forms in facts.items()}
            del self.silent[silent:]

        return go_back

    # --- decisions

    def fix(self, at: int, op: Operation) -> object:
        """The value as a number, which it has in all of the class."""
        self.commit(self.reasons[at])
        value, symbol = self.env[at], self.symbols[at]
        if symbol is not None and isinstance(value, int):
            self.zero(Form(symbol.terms, symbol.constant - value, symbol.iterations), op)
        return value

    def commit(self, reason: "Reason | None") -> None:
        """Something depends on a value with this reason: the class shares it."""
        if reason is None:
            return
        self.covered.shared += 1
        work = [reason]
        weights: dict[Reason, int] = {}
        while work:
            found = work.pop()
            if found in self._committed:
                continue
            if not found.is_lasting:  # which turning points something depends on is asked of each loop anew
                self._committed[found] = None
            if found.either:
                work.append(self._lightest(found.either, weights))
            for constraint in found.constraints:
                self.share(constraint)
            work += found.needs

    def _lightest(self, reasons: "tuple[Reason, ...]", known: "dict[Reason, int]") -> "Reason":
        best = -1
        lightest = reasons[0]
        for each in reasons:
            weight = self._weight(each, known)
            if not weight:
                return each
            if best < 0 or weight < best:
                best, lightest = weight, each
        return lightest

    def share(self, constraint: "Constraint") -> None:
        """The class has this in common."""
        self.covered.shared += 1
        form, op, value = constraint.form, constraint.op, constraint.value
        match constraint.kind:
            case "sign":
                self.sign(form, value, op)
            case "not_negative":
                self.not_negative(form, op)
            case "zero":
                self.zero(form, op)
            case "turn":
                self.turned[op] = None
            case "congruent":
                if value < 0:
                    raise Undecided(op, BELOW_ZERO)
                if constraint.modulus > 1:
                    self.congruent(form, value, constraint.modulus)

    def _weight(self, reason: "Reason", known: "dict[Reason, int]") -> int:
        """About how much narrower the class becomes by a reason."""
        if reason in known:
            return known[reason]
        total, work, seen = 0, [reason], set[object]()
        while work:
            found = work.pop()
            if found in seen or found in self._committed:
                continue
            seen.add(found)
            total += sum(map(self._weight_of, found.constraints)) + min([self._weight(each, known) for each in found.either], default=0)
            work += found.needs
        known[reason] = total
        return total

    def _weight_of(self, constraint: "Constraint") -> int:
        kind, form = constraint.kind, constraint.form
        if kind == "turn":
            return 0 if constraint.op in self.turned else _TURN
        loops = 0 if kind == "congruent" or not form.iterations or form.loops <= self.covered.loops else _LOOP
        if not form.terms:
            return loops
        if kind == "zero" or kind == "congruent" or (kind == "sign" and not constraint.value):
            return loops + _EQUATION
        return loops + 1

    def depends(self, form: Form, op: Operation) -> None:
        """The loops of a form have to be as long as here."""
        self._note(form, op)
        if form.iterations:
            self.covered.loops |= form.loops

    def sign(self, form: Form, value: int, op: Operation) -> None:
        """The class has the sign that a form has here."""
        self._note(form, op)
        self.covered.sign(form, value)

    def not_negative(self, form: Form, op: Operation) -> None:
        """The class has a form zero or more."""
        self._note(form, op)
        self.covered.not_negative(form)

    def zero(self, form: Form, op: Operation) -> None:
        """The class has a form zero."""
        self._note(form, op)
        if form.terms:
            self.narrowing = op
        self.covered.zero(form)

    def congruent(self, form: Form, value: int, modulus: int) -> None:
        """The class has a form that is `value` modulo a number, or `value` (0). Iterations that are left out are the same modulo it."""
        if not modulus:
            self.covered.zero(Form(form.terms, form.constant - value))
            return
        terms = tuple([(atom, count % modulus) for atom, count in form.terms if count % modulus])
        rest = self.atoms.remainder(Form(terms, 0), modulus)
        self.covered.zero(Form(rest.terms, rest.constant - (value - form.constant) % modulus))

    def _note(self, form: Form, op: Operation) -> None:
        self.covered.shared += bool(form.iterations)
        for loop, _ in form.iterations:
            self.blame.setdefault(loop, op)
