"""Which operands of a contraction may be copied so that the copy's rows lie along m or n, where the operand's own lie along k."""

from treadle.analysis.indexing import Contraction, classify, plain_dims, view_of
from treadle.analysis.row_pitch import unit_axis
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue
from treadle.ir.tensors import tensor_type
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class OperandTurn:
    """Of an operand: its tensor, the number of the input, and whether it lies along k in memory. `axes`: its axes in the order of a turned
    copy: those of the batch, then of k, then of m or n. `row`: elements of that copy side by side, along all loops of m or n together.
    `refusal`: why there can be no turned copy, "" where there can.
    """

    value: SSAValue
    number: int
    along_k: bool
    axes: tuple[int, ...] = ()
    row: int = 0
    refusal: str = ""


def operand_turns(op: Operation) -> tuple[OperandTurn, OperandTurn] | None:
    """How both operands lie, A first; None of all but contractions without windows and scales."""
    kind = classify(op)
    if not isinstance(kind, Contraction) or kind.image >= 0 or kind.scales:
        return None
    return _turn(op, kind, kind.lhs, kind.m), _turn(op, kind, kind.rhs, kind.n)


def _turn(op: Operation, kind: Contraction, number: int, across: tuple[int, ...]) -> OperandTurn:
    view = view_of(op)
    value, dims = view.inputs[number], plain_dims(view.input_maps[number])
    unit, shape = unit_axis(value), tensor_type(value).get_shape()
    if unit is None:
        return OperandTurn(value, number, along_k=False, refusal="only the runtime knows how it lies")
    if dims[unit] not in kind.k:
        return OperandTurn(value, number, along_k=False, refusal="it does not lie along k")
    if DYNAMIC_INDEX in shape:
        return OperandTurn(value, number, along_k=True, refusal="only the runtime knows its sizes")
    axes = tuple(dims.index(dim) for dim in (*kind.batch, *kind.k, *across))
    row = 1
    for dim in across:
        row *= shape[dims.index(dim)]
    return OperandTurn(value, number, True, axes, row)


def pitch_refusal(turn: OperandTurn, pitch: int) -> str:
    """Why the rows of a turned copy, along its last axis, cannot be `pitch` elements apart; "" where they can."""
    length = tensor_type(turn.value).get_shape()[turn.axes[-1]]
    if pitch < length:
        return f"rows of {length} elements cannot be {pitch} apart"
    if pitch > length != turn.row:
        return f"its rows of {length} elements are walked as one with those around them, and cannot be {pitch} apart"
    return ""
