"""Forms and reasons of index arithmetic: what the class of a run decides about the numbers that operations give.

Only where something is made of sizes, workgroup ids and loops does anything have a form; other kernels do without this module.
What has no form is a number of the whole class, for the reason that its operands are what they are in the run.
"""

from collections.abc import Callable, Iterable, Sequence

from treadle.ir.core import AffineBinaryOpKind, Operation
from treadle.verify.affine_maps import affine_map_of, results_of
from treadle.verify.classes import Form, Symbol, combined, of, scaled, shifted
from treadle.verify.reasons import Constraint, Joined, Reason, all_of, one_of
from treadle.verify.scalars import INDEX_BITS, is_narrow, width_of
from treadle.verify.trace_state import BELOW_ZERO, State, Step, Undecided
from treadle.verify.turning_points import TurningPoints

_EQUALITIES = (0, 1)
_LEAST_OR_LESS = (2, 5, 6, 9)
"""Comparisons that a difference of zero or more decides: slt, sge, ult, uge. For the others it is one or more."""
_SIGNED_LAST = 5
_UNSIGNED_CASTS = ("arith.extui", "arith.index_castui")
_CUTTING = ("arith.trunci", "arith.index_cast", "arith.index_castui")
MAX_CUT_BITS = 8
"""More bits make more classes, or longer rounds of loops, than are worth it."""
_WIDENING = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi")
_Pair = tuple[int, Form]
"""A number and its form."""


class ScalarForms:
    """Makes the steps of operations whose results may have forms; each begins with the step that makes the numbers."""

    def __init__(self, state: State, points: TurningPoints) -> None:
        self.state, self.points = state, points
        self._needed: list[Constraint] = []

    # --- what turning points cover

    def covered(self, op: Operation, numbers: Step, at: int, operands: list[int]) -> Step:
        """A comparison, or a choice of the lesser or larger, that turning points cover, and the residues that the class shares with it."""
        state, symbols = self.state, self.state.symbols
        is_extreme, is_least = op in self.points.extremes, op.name == "arith.minsi"
        covered = self.points.extremes[op] if is_extreme else self.points.exempt[op]
        residues = [(state.place(value), modulus) for value, modulus in covered.residues]
        if op.results[0] not in state.unknowns.varies:
            return self._checked(op, numbers, [place for place, _ in residues])
        turn = Reason((), (Constraint("turn", _NOTHING, op),))
        joined = Joined(lambda reasons: all_of((turn, *reasons)))
        depends = [*operands, *[place for place, _ in residues]]

        def compute() -> None:
            numbers()
            shared: list[Constraint] = []
            for place, modulus in residues:
                value, symbol = state.env[place], symbols[place]
                if isinstance(value, int) and (value < 0 or (symbol is not None and symbol.terms)):
                    shared.append(Constraint("congruent", symbol or _NOTHING, op, value, modulus))
            why = joined(tuple([state.reasons[v] for v in depends]))
            state.reasons[at] = all_of((why,), shared) if shared else why
            if is_extreme:
                one, other = [state.env[v] for v in operands]
                symbols[at] = None
                if isinstance(one, int) and isinstance(other, int):
                    symbols[at] = symbols[operands[int((one > other) == is_least)]]

        return compute

    def _checked(self, op: Operation, numbers: Step, places: list[int]) -> Step:
        """Numbers alone, of residues that have to be zero or more."""
        env = self.state.env
        if not places:
            return numbers

        def compute() -> None:
            numbers()
            for place in places:
                value = env[place]
                if isinstance(value, int) and value < 0:
                    raise Undecided(op, BELOW_ZERO)

        return compute

    def silent(self, op: Operation, numbers: Step, at: int, operands: list[int]) -> Step:
        """Arithmetic of such comparisons: it decides nothing; what residues are taken of has a form."""
        env, symbols, reasons = self.state.env, self.state.symbols, self.state.reasons
        is_measured = op in self.points.measured
        is_select, joined = op.name == "arith.select", Joined(all_of)

        def compute() -> None:
            numbers()
            if is_select:
                chosen = operands[1:] if env[operands[0]] is None else operands[1:2] if env[operands[0]] else operands[2:]
                reasons[at] = all_of([self._fixed(op, operands[:1]), *[reasons[v] for v in chosen]])
            else:
                reasons[at] = joined(tuple([reasons[v] for v in operands]))
            symbols[at] = None
            if is_measured and isinstance(env[at], int) and any(symbols[v] is not None for v in operands):
                symbols[at] = self._measured(op, [env[v] for v in operands], [symbols[v] for v in operands])  # type: ignore[misc]

        return compute

    def _measured(self, op: Operation, v: list[int], f: list[Symbol]) -> Symbol:
        """The form of a result in its stretch, where turning points say which it is."""
        name = op.name.removeprefix("arith.")
        match name:
            case "addi" | "subi":
                return combined(of(f[0], v[0]), of(f[1], v[1]), 1 if name == "addi" else -1)
            case "muli":
                return scaled(of(f[0], v[0]), v[1]) if f[1] is None else scaled(of(f[1], v[1]), v[0])
            case "minsi" | "maxsi":
                return f[0] if (v[0] <= v[1]) == (name == "minsi") else f[1]
            case "select":
                return f[1 if v[0] else 2]
            case "index_cast" | "index_castui":
                return f[0]
            case "remui" | "remsi":
                return self.state.atoms.remainder(of(f[0], v[0]), v[1])
            case "ceildivsi" | "ceildivui":
                return self.state.atoms.ceiling(of(f[0], v[0]), v[1])
            case _:
                return self.state.atoms.quotient(of(f[0], v[0]), 1 << v[1] if "shr" in name else v[1])

    def with_form(self, op: Operation, numbers: Step, at: int, operands: list[int]) -> Step:
        """Numbers, forms and reasons."""
        env, symbols, reasons = self.state.env, self.state.symbols, self.state.reasons
        rule = self._rule(op)
        absorbing = 0 if op.name in ("arith.andi", "arith.muli") else 1 if op.name == "arith.ori" and _is_bit(op) else None
        is_bit, is_select, joined, chosen = _is_bit(op), op.name == "arith.select", Joined(all_of), Joined(one_of)

        def compute() -> None:
            numbers()
            symbols[at] = reasons[at] = None
            if env[at] is None:
                return
            if env[at] == absorbing:  # one side decides; a number that has a form is one of many
                sides = [v for v in operands if env[v] == absorbing and (is_bit or symbols[v] is None)]
                if sides:
                    reasons[at] = chosen(tuple([self._fixed(op, (v,)) for v in sides]))
                    return
            if is_select:
                self._select(op, at, operands)
                return
            forms = [symbols[v] for v in operands]
            if forms.count(None) == len(forms):
                reasons[at] = joined(tuple([reasons[v] for v in operands]))
                return
            values = [env[v] for v in operands]
            self._needed = []
            found = rule(values, forms) if all(isinstance(v, int) for v in values) else None  # type: ignore[arg-type]
            if found is None:
                reasons[at] = self._fixed(op, operands)
                return
            symbols[at] = found if found is not _NOTHING else None
            reasons[at] = all_of([reasons[v] for v in operands], self._needed)

        return compute

    def _fixed(self, op: Operation, places: Iterable[int]) -> Reason | None:
        """The reason of what follows from these values as numbers."""
        state = self.state
        needs: list[Reason | None] = []
        own: list[Constraint] = []
        for at in places:
            value, symbol = state.env[at], state.symbols[at]
            needs.append(state.reasons[at])
            if symbol is not None and isinstance(value, int):
                own.append(Constraint("zero", Form(symbol.terms, symbol.constant - value, symbol.iterations), op))
        return all_of(needs, own)

    def _select(self, op: Operation, at: int, operands: list[int]) -> None:
        state = self.state
        condition = state.env[operands[0]]
        if condition is None:
            state.reasons[at] = self._fixed(op, operands[1:])
            return
        chosen = operands[1 if condition else 2]
        state.symbols[at] = state.symbols[chosen]
        state.reasons[at] = all_of([self._fixed(op, operands[:1]), state.reasons[chosen]])

    # --- what a class shares for a form

    def _sign(self, form: Form, value: int, op: Operation) -> None:
        self._needed.append(Constraint("sign", form, op, value))

    def _not_negative(self, form: Form, op: Operation) -> None:
        self._needed.append(Constraint("not_negative", form, op))

    def _ordered(self, form: Form, value: int, op: Operation, *, least: int = 0) -> None:
        """The form is at least `least`, or it is not."""
        if value >= least:
            self._not_negative(shifted(form, -least), op)
        else:
            self._not_negative(shifted(scaled(form, -1), least - 1), op)

    # --- forms of results; None: there is none

    def _rule(self, op: Operation) -> Callable[[list[int], list[Symbol]], Symbol]:
        name = op.name
        if is_narrow(op) and (bits := width_of(op.results[0].type)) > 1:
            is_cut = name in _CUTTING and bits <= MAX_CUT_BITS
            return lambda v, f: self._cut(op, v[0], f[0], 1 << bits) if is_cut else None
        match name:
            case "arith.addi" | "arith.subi":
                factor = 1 if name == "arith.addi" else -1
                return lambda v, f: combined(of(f[0], v[0]), of(f[1], v[1]), factor)
            case "arith.muli":
                return lambda v, f: scaled(of(f[0], v[0]), v[1]) if f[1] is None else scaled(f[1], v[0]) if f[0] is None else None
            case "arith.shli":
                return lambda v, f: scaled(of(f[0], v[0]), 1 << v[1]) if f[1] is None else None
            case "arith.divui" | "arith.divsi" | "arith.floordivsi" | "arith.ceildivsi" | "arith.ceildivui":
                up = "ceil" in name
                return lambda v, f: self._quotient(op, v, f, v[1], up=up)
            case "arith.shrui" | "arith.shrsi":
                return lambda v, f: self._quotient(op, v, f, 1 << v[1], up=False)
            case "arith.remui" | "arith.remsi":
                return lambda v, f: self._remainder(op, v[0], f[0], v[1]) if f[1] is None else None
            case "arith.andi":
                return lambda v, f: self._masked(op, v, f)
            case "arith.trunci" if width_of(op.results[0].type) == 1:
                return lambda v, f: self._remainder(op, v[0], f[0], 2)
            case "arith.minsi" | "arith.maxsi" | "arith.minui" | "arith.maxui":
                return lambda v, f: self._extreme(op, v, f, least="min" in name)
            case "arith.cmpi":
                return lambda v, f: self._compared(op, v, f)
            case "affine.apply" | "affine.min" | "affine.max":
                return lambda v, f: self._affine(op, v, f)
            case _ if name in _WIDENING or (name == "arith.trunci" and width_of(op.results[0].type) >= INDEX_BITS):
                is_plain = width_of(op.operands[0].type) > 1 or name == "arith.extui"
                is_unsigned = name in _UNSIGNED_CASTS and width_of(op.operands[0].type, op) < width_of(op.results[0].type, op)
                return lambda v, f: self._widened(op, v[0], f[0], is_unsigned=is_unsigned) if is_plain else None
            case _:
                return lambda v, f: None

    def _quotient(self, op: Operation, v: list[int], f: list[Symbol], divisor: int, *, up: bool) -> Symbol:
        form = f[0]
        if form is None or f[1] is not None or divisor <= 0 or v[0] < 0:
            return None
        self._not_negative(Form(form.terms, form.constant), op)
        return self.state.atoms.ceiling(form, divisor) if up else self.state.atoms.quotient(form, divisor)

    def _remainder(self, op: Operation, value: int, form: Symbol, divisor: int) -> Symbol:
        if form is None or divisor <= 0 or value < 0:
            return None
        self._not_negative(Form(form.terms, form.constant), op)
        if form.iterations:  # what is left of a counter of a loop repeats with the loop
            self._needed.append(Constraint("congruent", form, op, value, divisor))
            return _NOTHING
        return self.state.atoms.remainder(form, divisor)

    def _cut(self, op: Operation, value: int, form: Symbol, modulus: int) -> Symbol:
        """The lowest bits: those of every number that is the same modulo what they count."""
        if form is None or value < 0:
            return None
        self._needed.append(Constraint("congruent", form, op, value, modulus))
        return _NOTHING

    def _widened(self, op: Operation, value: int, form: Symbol, *, is_unsigned: bool) -> Symbol:
        """The same number; where its sign becomes a bit like others, only if that is not set."""
        if is_unsigned and form is not None:
            if value < 0 or form.iterations:
                return None
            self._not_negative(form, op)
        return form

    def _masked(self, op: Operation, v: list[int], f: list[Symbol]) -> Symbol:
        for one, other in ((0, 1), (1, 0)):
            if f[other] is None and v[other] >= 0 and v[other] & (v[other] + 1) == 0:
                return self._remainder(op, v[one], f[one], v[other] + 1)
        return None

    def _extreme(self, op: Operation, v: list[int], f: list[Symbol], *, least: bool) -> Symbol:
        if op.name.endswith("ui") and min(v) < 0:
            return None
        difference = combined(of(f[0], v[0]), of(f[1], v[1]), -1)
        self._ordered(difference, v[0] - v[1], op, least=1)
        if op.name.endswith("ui"):
            for value, form in zip(v, f, strict=True):
                self._not_negative(of(form, value), op)
        first = (v[0] <= v[1]) == least
        return (f[0] if first else f[1]) or _NOTHING

    def _compared(self, op: Operation, v: list[int], f: list[Symbol]) -> Symbol:
        predicate: int = op.properties["predicate"].value.data  # type: ignore[attr-defined]
        difference, apart = combined(of(f[0], v[0]), of(f[1], v[1]), -1), v[0] - v[1]
        if predicate in _EQUALITIES:
            self._sign(difference, apart, op)
            return _NOTHING
        if predicate > _SIGNED_LAST:
            for value, form in zip(v, f, strict=True):
                self._ordered(of(form, value), value, op)
        self._ordered(difference, apart, op, least=0 if predicate in _LEAST_OR_LESS else 1)
        return _NOTHING

    # --- affine maps

    def _affine(self, op: Operation, v: Sequence[int], f: Sequence[Symbol]) -> Symbol:
        affine_map = affine_map_of(op)
        if affine_map is None:
            return None
        operands = [(value, of(form, value)) for value, form in zip(v, f, strict=True)]
        results = results_of(affine_map, operands, lambda number: (number, Form((), number)), self._affine_binary)
        best: _Pair | None = None
        for found in results:
            if found is None:
                return None
            if best is None:
                best = found
                continue
            self._ordered(combined(found[1], best[1], -1), found[0] - best[0], op)
            best = found if (found[0] < best[0]) == (op.name == "affine.min") else best
        return best[1] if best else None

    def _affine_binary(self, kind: AffineBinaryOpKind, left: _Pair, right: _Pair) -> _Pair | None:
        atoms = self.state.atoms
        if kind is AffineBinaryOpKind.Add:
            return left[0] + right[0], combined(left[1], right[1])
        if kind is AffineBinaryOpKind.Mul:
            if left[1].terms or left[1].iterations:
                left, right = right, left
            return None if left[1].terms or left[1].iterations else (left[0] * right[0], scaled(right[1], left[0]))
        if right[1].terms or right[1].iterations or right[0] <= 0:
            return None
        match kind:
            case AffineBinaryOpKind.Mod:
                return left[0] % right[0], atoms.remainder(left[1], right[0])
            case AffineBinaryOpKind.FloorDiv:
                return left[0] // right[0], atoms.quotient(left[1], right[0])
            case _:
                return -(-left[0] // right[0]), atoms.ceiling(left[1], right[0])


def _is_bit(op: Operation) -> bool:
    return width_of(op.results[0].type) == 1


_NOTHING = Form((), 0)
"""There is nothing more to say: the number is that of the whole class."""
