"""Index arithmetic of a run: numbers, and what the class decides about them (`scalar_forms.py`)."""

from typing import TYPE_CHECKING

from treadle.ir.core import Operation
from treadle.ir.operands import operands_of
from treadle.verify.scalars import Function, constant_value, known_result, scalar_function, width_of
from treadle.verify.trace_state import State, Step
from treadle.verify.turning_points import TurningPoints

if TYPE_CHECKING:
    from treadle.verify.scalar_forms import ScalarForms


class ScalarSteps:
    """Makes the steps of scalar operations."""

    def __init__(self, state: State, points: TurningPoints) -> None:
        self.state, self.points = state, points
        self._free = {value for unknown in state.unknowns.all for value in unknown.values}
        self._made_forms: ScalarForms | None = None

    def of(self, op: Operation) -> list[Step]:
        """The steps of an operation; none where nothing depends on it."""
        state, program = self.state, self.state.program
        if program.deciding.isdisjoint(op.results) or op.results[0] in self._free:
            return []
        at = state.place(op.results[0])
        if op.name == "arith.constant":
            state.put(at, constant_value(op))
            return []
        function = scalar_function(op)
        if function is None:
            return [lambda: state.put(at, None)] if width_of(op.results[0].type) else []
        operands = [state.place(v) for v in operands_of(op)]
        numbers = self._numbers(op, function, at, operands)
        if op in self.points.exempt or op in self.points.extremes:
            return [self._forms().covered(op, numbers, at, operands)]
        if op.results[0] not in state.unknowns.varies:
            return [numbers]
        if op in self.points.silent:
            return [self._forms().silent(op, numbers, at, operands)]
        return [self._forms().with_form(op, numbers, at, operands)]

    def _forms(self) -> "ScalarForms":
        if self._made_forms is None:
            from treadle.verify.scalar_forms import ScalarForms  # nothing has a form in many kernels

            self._made_forms = ScalarForms(self.state, self.points)
        return self._made_forms

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
            except ArithmeticError:
                env[at] = None

        return compute
