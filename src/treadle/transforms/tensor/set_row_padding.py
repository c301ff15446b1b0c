"""set-row-padding: which contractions read copies of operands whose rows lie further apart (`plan/padded_copies.whole_rows`).

Level: tensor, after set-attention. Reads: contractions of known sizes with an operand whose rows are no whole 16 bytes apart
(`analysis/row_pitch.py`), the machine's rates. Writes: `treadle.padded_rows`, how far the rows of the copies are apart, where
`plan/row_padding.py` has that faster, or where it is asked for; a remark tells of each other one. Zeros, which a user may write, ask for
none.
Leaves alone: machines without descriptor copies, for threads load at any pitch, contractions that no copies bring to a matrix instruction,
convolutions (see set-channel-padding), those of blocks and of groups that the user has named, those whose parts the user has chosen, and
those that have the attribute.
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import ClassVar

from treadle.analysis.data_flow import DataFlow
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction
from treadle.analysis.operation_marks import PADDED_ROWS, origin_of
from treadle.analysis.padded_rows import OperandPitch, operand_pitches
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, func
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.padded_copies import whole_rows
from treadle.plan.row_padding import MOST_COPIED_BYTES, OperandCopy, row_padding
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.strategies.facts import OperationFacts
from treadle.strategies.split_sizes import contraction_problem
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics
from treadle.transforms.tensor.split_requests import facts_of

NAME = "set-row-padding"


AUTO, OFF = "auto", "off"


def _copy(operand: OperandPitch, pitch: int) -> OperandCopy:
    """What a copy moves: nothing behind the rows."""
    type_ = tensor_type(operand.value)
    moved = prod(type_.get_shape()) * element_bytes(type_.element_type)
    return OperandCopy(moved, moved if pitch else 0, str(type_))


def _text(pitches: Sequence[int]) -> str:
    return " and ".join(f"{which}, {pitch} elements apart" for which, pitch in zip("AB", pitches, strict=True) if pitch)


@register_pass
@dataclass(frozen=True)
class SetRowPaddingPass(FunctionPass):
    """`target`: the machine whose rates decide. `asked`, `f32_precision`: as `CompileOptions.row_padding` and `f32_precision`. `splits`:
    contractions may be split into parts.
    """

    name: ClassVar[str] = NAME
    target: str
    asked: str = AUTO
    f32_precision: str = "ieee"
    splits: bool = True

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        spec, flow = target_spec(self.target), DataFlow(function.body.block)
        if spec.bulk_tensor is None or self.asked == OFF:
            return
        for op in generics(function):
            facts, operands = facts_of(op, self.f32_precision), operand_pitches(op)
            is_free = op.attributes.keys().isdisjoint((PADDED_ROWS, SPLIT_REDUCTION, dispatch.GROUP))
            if is_free and facts is not None and operands is not None and not flow.blocks_of(op):
                self._decide(op, facts, operands, spec)

    def _decide(self, op: Operation, facts: OperationFacts, operands: tuple[OperandPitch, OperandPitch], spec: TargetSpec) -> None:
        kind, known = facts.computation, [size for size in facts.sizes if size]
        if not isinstance(kind, Contraction):
            return
        pitches = [self._pitch(op, operand, which, spec) for operand, which in zip(operands, "AB", strict=True)]
        if not any(pitches):
            return
        if len(known) < len(facts.sizes):
            emit("refusal", NAME, origin_of(op), "rows stay as they are: only the runtime knows all sizes", location_of(op))
            return
        as_is = contraction_problem(facts, kind, known, spec)
        if not any((*as_is.copied_rows, *as_is.lying_rows)):
            return
        if self.asked != AUTO:
            self._write(op, pitches, f"rows of {_text(pitches)}, as asked")
            return
        choices = product(*({0, pitch} for pitch in pitches))
        problems = {(a, b): contraction_problem(facts, kind, known, spec, (a, b)) if a or b else as_is for a, b in choices}
        copies = [_copy(operand, pitch) for operand, pitch in zip(operands, pitches, strict=True)]
        if (found := row_padding(problems, copies, spec, splits=self.splits)) is None:
            emit(
                "refusal",
                NAME,
                origin_of(op),
                f"no copies with longer rows: they take more than {MOST_COPIED_BYTES} bytes",
                location_of(op),
            )
            return
        times = f"{1e6 * found.seconds:.1f} us are modelled with rows of {_text(found.pitches)}, {1e6 * found.seconds_as_is:.1f} us without"
        if found.is_clear:
            self._write(op, found.pitches, times)
        else:
            emit("refusal", NAME, origin_of(op), f"no copies with longer rows: {times}", location_of(op))

    def _write(self, op: Operation, pitches: Sequence[int], why: str) -> None:
        op.attributes[PADDED_ROWS] = builtin.DenseArrayBase.from_list(builtin.i64, pitches)
        emit("decision", NAME, origin_of(op), f"copies with longer rows: {why}", location_of(op))

    def _pitch(self, op: Operation, operand: OperandPitch, which: str, spec: TargetSpec) -> int:
        """How far rows of a copy of an operand are to be apart; 0 where it needs none, or can have none."""
        type_, rules = tensor_type(operand.value), spec.bulk_tensor
        size = element_bytes(type_.element_type)
        wanted = spec.line_bytes if rules is None or self.asked != AUTO else rules.pitch_align_bytes
        if operand.pitch * size % wanted == 0 and operand.pitch:
            return 0
        if operand.refusal:
            emit("refusal", NAME, origin_of(op), f"rows of {which} stay as they are: {operand.refusal}", location_of(op))
            return 0
        found = whole_rows(type_.get_shape()[-1], size, spec)
        return 0 if found == operand.pitch else found
