"""set-turned-operands: which contractions in the vector units read copies of operands that lie along m and n instead of along k.

Level: tensor, after pad-rows. Reads: contractions of known sizes whose operands the threads' copies bring to multiply-adds as they are and
of which one lies along k (`analysis/turned_operands.py`), the machine's rates. Writes: `treadle.turned_operands`, how far the rows of the
copies are apart, where `plan/turned_operands.py` has that clearly faster, or where it is asked for; a remark tells of each other one.
Zeros, which a user may write, ask for none.
Leaves alone: machines whose threads have no copies of single elements, contractions by matrix instructions, convolutions, those of blocks
and of groups that the user has named, those whose parts the user has chosen, and those that have the attribute. Without being asked also
operands whose rows along m or n would be no whole 16 bytes: pieces of single elements bring them either way.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import ClassVar

from treadle.analysis.data_flow import DataFlow
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction
from treadle.analysis.operation_marks import TURNED_OPERANDS, origin_of
from treadle.analysis.turned_operands import OperandTurn, operand_turns, pitch_refusal
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, func
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.padded_copies import whole_pieces
from treadle.plan.row_padding import MOST_COPIED_BYTES, OperandCopy, row_padding
from treadle.plan.split_choices import SplitContraction
from treadle.plan.turned_operands import is_clear
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.strategies.facts import OperationFacts
from treadle.strategies.split_sizes import contraction_problem
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics
from treadle.transforms.tensor.split_requests import facts_of

NAME = "set-turned-operands"

AUTO, OFF = "auto", "off"

Turns = tuple[OperandTurn, OperandTurn]


def _copy(turn: OperandTurn) -> OperandCopy:
    """What a copy moves. One kernel makes those of one type and order."""
    type_ = tensor_type(turn.value)
    moved = prod(type_.get_shape()) * element_bytes(type_.element_type)
    return OperandCopy(moved, moved, f"{type_} {turn.axes}")


def _text(pitches: Sequence[int]) -> str:
    return " and ".join(f"{which}, rows {pitch} elements apart" for which, pitch in zip("AB", pitches, strict=True) if pitch)


def _refuse(op: Operation, reason: str) -> None:
    emit("refusal", NAME, origin_of(op), reason, location_of(op))


@register_pass
@dataclass(frozen=True)
class SetTurnedOperandsPass(FunctionPass):
    """`target`: the machine whose rates decide. `asked`, `f32_precision`: as `CompileOptions.turned_operands` and `f32_precision`.
    `splits`: contractions may be split into parts.
    """

    name: ClassVar[str] = NAME
    target: str
    asked: str = AUTO
    f32_precision: str = "ieee"
    splits: bool = True

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        spec, flow = target_spec(self.target), DataFlow(function.body.block)
        if spec.queue_for("copy_in") is None or self.asked == OFF:
            return
        for op in generics(function):
            turns = operand_turns(op)
            if turns is None or not any(turn.along_k for turn in turns):
                continue
            facts, taken = facts_of(op, self.f32_precision), (TURNED_OPERANDS, SPLIT_REDUCTION, dispatch.GROUP)
            if op.attributes.keys().isdisjoint(taken) and not flow.blocks_of(op) and facts is not None:
                self._decide(op, facts, turns, spec)

    def _decide(self, op: Operation, facts: OperationFacts, turns: Turns, spec: TargetSpec) -> None:
        kind = facts.computation
        if not isinstance(kind, Contraction):
            return
        problem = contraction_problem(facts, kind, [size or 1 for size in facts.sizes], spec)
        if not problem.multiplies_pieces(spec):
            return
        if None in facts.sizes:
            _refuse(op, "operands lie as they are: only the runtime knows all sizes")
            return
        pitches = [self._pitch(op, turn, which, spec) for turn, which in zip(turns, "AB", strict=True)]
        if not any(pitches):
            return
        if self.asked != AUTO:
            self._write(op, pitches, f"{_text(pitches)}, as asked")
        else:
            self._weigh(op, problem, turns, pitches, spec)

    def _weigh(self, op: Operation, problem: SplitContraction, turns: Turns, pitches: Sequence[int], spec: TargetSpec) -> None:
        """Decide by the models."""
        a, b = (turn.along_k for turn in turns)
        choices = list(product(*({0, pitch} for pitch in pitches)))
        problems = {(of_a, of_b): replace(problem, along_k=(a and not of_a, b and not of_b)) for of_a, of_b in choices}
        found = row_padding(problems, [_copy(turn) for turn in turns], spec, splits=self.splits)
        if found is None:
            _refuse(op, f"no turned copies: they take more than {MOST_COPIED_BYTES} bytes")
            return
        with_copies, as_it_is = 1e6 * found.seconds, 1e6 * found.seconds_as_is
        times = f"{with_copies:.1f} us are modelled with {_text(found.pitches)}, {as_it_is:.1f} us without"
        if is_clear(found):
            self._write(op, found.pitches, times)
        else:
            _refuse(op, f"no turned copies: {times}")

    def _write(self, op: Operation, pitches: Sequence[int], why: str) -> None:
        op.attributes[TURNED_OPERANDS] = builtin.DenseArrayBase.from_list(builtin.i64, pitches)
        emit("decision", NAME, origin_of(op), f"turned copies: {why}", location_of(op))

    def _pitch(self, op: Operation, turn: OperandTurn, which: str, spec: TargetSpec) -> int:
        """How far rows of a turned copy of an operand are to be apart: side by side where they are whole pieces of the threads' copies,
        else whole lines of the cache; 0 where it lies across k, or can have no copy.
        """
        if not turn.along_k:
            return 0
        reason = turn.refusal
        if not reason:
            type_ = tensor_type(turn.value)
            size, length = element_bytes(type_.element_type), type_.get_shape()[turn.axes[-1]]
            if turn.row * size % spec.max_vector_bytes == 0:
                return length
            pitch = whole_pieces(length, size, spec.line_bytes)
            if self.asked != AUTO and not (reason := pitch_refusal(turn, pitch)):
                return pitch
            reason = reason or f"its rows of {turn.row} elements are no whole {spec.max_vector_bytes} bytes"
        _refuse(op, f"no turned copy of {which}: {reason}")
        return 0
