"""Which operands of a contraction may be copied so that their rows lie further apart."""

from treadle.analysis.indexing import Contraction, StructuredOp, plain_dims, structured
from treadle.analysis.row_pitch import row_pitch
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue
from treadle.ir.tensors import tensor_type
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class OperandPitch:
    """Of an operand: its tensor, the number of the input, and what its rows are apart by multiples of, in elements. `refusal`: why no copy
    may have them further apart, "" where one may.
    """

    value: SSAValue
    number: int
    pitch: int
    refusal: str = ""


def operand_pitches(op: Operation) -> tuple[OperandPitch, OperandPitch] | None:
    """How the rows of both operands lie, A's first; None of all but contractions without windows and scales."""
    view = structured(op)
    kind = None if view is None else view.computation
    if view is None or not isinstance(kind, Contraction) or kind.image >= 0 or kind.scales:
        return None
    return _pitch(view, kind, kind.lhs), _pitch(view, kind, kind.rhs)


def _pitch(view: StructuredOp, kind: Contraction, number: int) -> OperandPitch:
    value, dims = view.inputs[number], plain_dims(view.input_maps[number])
    pitch, shape = row_pitch(value), tensor_type(value).get_shape()
    if pitch is None or shape[-1] == DYNAMIC_INDEX:
        return OperandPitch(value, number, pitch or 0, "only the runtime knows how far its rows are apart")
    last, before = dims[-1], dims[-2] if len(dims) > 1 else None
    if last is None or before is None:
        return OperandPitch(value, number, pitch, "it has no rows along loops")
    # Loops of one role that follow one another in memory are walked as one, which rows further apart would end.
    if any({last, before} <= set(group) for group in (kind.batch, kind.m, kind.n, kind.k)):
        return OperandPitch(value, number, pitch, "its rows are walked as one")
    return OperandPitch(value, number, pitch)
