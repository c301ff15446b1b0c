"""Index arithmetic of a run: numbers, and beside each number that the class decides its form.

What has no form is made a number of the whole class: its operands are fixed to what they are in the run.
"""

from collections.abc import Callable, Sequence

from treadle.ir.core import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineSymExpr,
    Operation,
)
from treadle.verify.scalars import INDEX_BITS, Function, affine_map_of, constant_value, known_result, scalar_function, width_of
from treadle.verify.symbols import Form, Symbol, combined, of, scaled
from treadle.verify.trace_state import State, Step, Undecided
from treadle.verify.turning_points import TurningPoints

_WIDENING = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi")
_Pair = tuple[int, Form]
"""A number and its form."""


class ScalarSteps:
    """Makes the steps of scalar operations."""

    def __init__(self, state: State, points: TurningPoints) -> None:
        self.state, self.points = state, points
        self._free = {value for unknown in state.unknowns.all for value in unknown.values}

    def of(self, op: Operation) -> list[Step]:
        """The steps of an operation; none where nothing depends on it."""
        state, program = self.state, self.state.program
        if not any(result in program.deciding for result in op.results) or op.results[0] in self._free:
            return []
        at = state.place(op.results[0])
        if op.name == "arith.constant":
            state.put(at, constant_value(op))
            return []
        function = scalar_function(op)
        if function is None:
            return [lambda: state.put(at, None)] if width_of(op.results[0].type) else []
        operands = [state.place(v) for v in op.operands]
        numbers = self._numbers(op, function, at, operands)
        residue = [self._residue(op, operands[0], self.points.residues[op][1])] if op in self.points.residues else []
        if op.results[0] not in state.unknowns.varies or op in self.points.exempt or op in self.points.silent:
            return [*residue, numbers]
        return [*residue, self._with_form(op, numbers, at, operands)]

    def _residue(self, op: Operation, at: int, modulus: int) -> Step:
        """The class shares the residue of a value."""
        state = self.state

        def fix() -> None:
            value, symbol = state.env[at], state.symbols[at]
            if isinstance(value, int) and value < 0:
                raise Undecided(op, "it divides a number below zero")
            if symbol is not None and isinstance(value, int) and modulus > 1:
                state.congruent(symbol, value, modulus)

        return fix

    def _numbers(self, op: Operation, function: Function, at: int, operands: list[int]) -> Step:
        """Numbers alone."""
        env = self.state.env

        def compute() -> None:
            values = [env[v] for v in operands]
            if None in values:
                env[at] = known_result(op, values)  # type: ignore[arg-type]
                return
            try:
                env[at] = function(*values)
            except ZeroDivisionError:
                env[at] = None

        return compute

    def _with_form(self, op: Operation, numbers: Step, at: int, operands: list[int]) -> Step:
        state, env, symbols = self.state, self.state.env, self.state.symbols
        rule = self._rule(op)

        def compute() -> None:
            numbers()
            forms = [symbols[v] for v in operands]
            if forms.count(None) == len(forms) or env[at] is None:
                symbols[at] = None
                return
            values = [env[v] for v in operands]
            symbols[at] = rule(values, forms) if all(isinstance(v, int) for v in values) else None  # type: ignore[arg-type]
            if symbols[at] is None:
                for operand in operands:
                    state.fix(operand, op)
            elif symbols[at] is _NOTHING:
                symbols[at] = None

        return compute

    # --- forms of results; None: there is none

    def _rule(self, op: Operation) -> Callable[[list[int], list[Symbol]], Symbol]:
        name = op.name
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
            case "arith.select":
                return lambda v, f: self._selected(op, v, f)
            case "arith.cmpi":
                return lambda v, f: self._compared(op, v, f)
            case "affine.apply" | "affine.min" | "affine.max":
                return lambda v, f: self._affine(op, v, f)
            case _ if name in _WIDENING or (name == "arith.trunci" and width_of(op.results[0].type) >= INDEX_BITS):
                is_plain = width_of(op.operands[0].type) > 1 or name == "arith.extui"
                return lambda v, f: f[0] if is_plain else None
            case _:
                return lambda v, f: None

    def _quotient(self, op: Operation, v: list[int], f: list[Symbol], divisor: int, *, up: bool) -> Symbol:
        form = f[0]
        if form is None or f[1] is not None or divisor <= 0 or v[0] < 0:
            return None
        self.state.not_negative(Form(form.terms, form.constant), op)
        return self.state.atoms.ceiling(form, divisor) if up else self.state.atoms.quotient(form, divisor)

    def _remainder(self, op: Operation, value: int, form: Symbol, divisor: int) -> Symbol:
        if form is None or divisor <= 0 or value < 0:
            return None
        self.state.not_negative(Form(form.terms, form.constant), op)
        if form.loops:  # what is left of a counter of a loop repeats with the loop
            self.state.congruent(form, value, divisor)
            return _NOTHING
        return self.state.atoms.remainder(form, divisor)

    def _masked(self, op: Operation, v: list[int], f: list[Symbol]) -> Symbol:
        for one, other in ((0, 1), (1, 0)):
            if f[other] is None and v[other] >= 0 and v[other] & (v[other] + 1) == 0:
                return self._remainder(op, v[one], f[one], v[other] + 1)
        return None

    def _extreme(self, op: Operation, v: list[int], f: list[Symbol], *, least: bool) -> Symbol:
        if op.name.endswith("ui") and min(v) < 0:
            return None
        difference = combined(of(f[0], v[0]), of(f[1], v[1]), -1)
        self.state.sign(difference, v[0] - v[1], op)
        if op.name.endswith("ui"):
            for value, form in zip(v, f, strict=True):
                self.state.not_negative(of(form, value), op)
        first = (v[0] <= v[1]) == least
        return (f[0] if first else f[1]) or _NOTHING

    def _selected(self, op: Operation, v: list[int], f: list[Symbol]) -> Symbol:
        self.state.fix(self.state.place(op.operands[0]), op)
        return f[1 if v[0] else 2] or _NOTHING

    def _compared(self, op: Operation, v: list[int], f: list[Symbol]) -> Symbol:
        predicate = op.properties["predicate"]
        if predicate.value.data > 5:  # type: ignore[attr-defined]
            for value, form in zip(v, f, strict=True):
                self.state.sign(of(form, value), min(1, max(-1, value)), op) if value <= 0 else self.state.not_negative(of(form, value), op)
        self.state.sign(combined(of(f[0], v[0]), of(f[1], v[1]), -1), v[0] - v[1], op)
        return _NOTHING

    # --- affine maps

    def _affine(self, op: Operation, v: Sequence[int], f: Sequence[Symbol]) -> Symbol:
        affine_map = affine_map_of(op)
        if affine_map is None:
            return None
        operands = [(value, of(form, value)) for value, form in zip(v, f, strict=True)]
        results = [self._affine_value(op, expr, operands, affine_map.num_dims) for expr in affine_map.results]
        best: _Pair | None = None
        for found in results:
            if found is None:
                return None
            if best is None:
                best = found
                continue
            self.state.sign(combined(found[1], best[1], -1), found[0] - best[0], op)
            best = found if (found[0] < best[0]) == (op.name == "affine.min") else best
        return best[1] if best else None

    def _affine_value(self, op: Operation, expr: AffineExpr, operands: list[_Pair], dims: int) -> _Pair | None:
        match expr:
            case AffineConstantExpr():
                return expr.value, Form((), expr.value)
            case AffineDimExpr():
                return operands[expr.position]
            case AffineSymExpr():
                return operands[dims + expr.position]
            case AffineBinaryOpExpr():
                left = self._affine_value(op, expr.lhs, operands, dims)
                right = self._affine_value(op, expr.rhs, operands, dims)
                return None if left is None or right is None else self._affine_binary(op, expr.kind, left, right)
            case _:
                return None

    def _affine_binary(self, op: Operation, kind: AffineBinaryOpKind, left: _Pair, right: _Pair) -> _Pair | None:
        atoms = self.state.atoms
        if kind is AffineBinaryOpKind.Add:
            return left[0] + right[0], combined(left[1], right[1])
        if kind is AffineBinaryOpKind.Mul:
            if left[1].terms or left[1].loops:
                left, right = right, left
            return None if left[1].terms or left[1].loops else (left[0] * right[0], scaled(right[1], left[0]))
        if right[1].terms or right[1].loops or right[0] <= 0:
            return None
        match kind:
            case AffineBinaryOpKind.Mod:
                return left[0] % right[0], atoms.remainder(left[1], right[0])
            case AffineBinaryOpKind.FloorDiv:
                return left[0] // right[0], atoms.quotient(left[1], right[0])
            case _:
                return -(-left[0] // right[0]), atoms.ceiling(left[1], right[0])


_NOTHING = Form((), 0)
"""There is nothing more to say: the number is that of the whole class."""
