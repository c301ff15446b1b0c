"""turn-operands: contractions that are marked read copies of operands that lie along m and n, where the operands lie along k.

Level: tensor, after set-turned-operands. Reads: `treadle.turned_operands` of contractions. Writes: for each operand that is to be copied a
generic that copies it with its axes in another order, those of the batch, of k, and of m or n; an insertion of that into an array of rows
as far apart as the mark says, and the slice of the operand's own extents, which the contraction reads through a map of the new order.
Two operands of one type and order are copied by one generic. Contractions that read one tensor share its copy.
Leaves alone: what is not marked, and operands whose number is 0. Refuses with TR311 what is no contraction of two tensors, rows that are
shorter than the operand's, and what `analysis/turned_operands.py` refuses.
"""

from typing import ClassVar

from treadle import errors
from treadle.analysis.data_flow import DataFlow
from treadle.analysis.indexing import AffineMap, dim_map, map_dims, view_of
from treadle.analysis.operation_marks import TURNED_OPERANDS, origin_of
from treadle.analysis.turned_operands import OperandTurn, operand_turns, pitch_refusal
from treadle.errors import InternalError, TreadleError
from treadle.ir.core import Attribute, Operation
from treadle.ir.dialects import builtin, func
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, clone_body, generics, replace
from treadle.transforms.tensor.operand_copies import CopiedOperand, OperandCopies

NAME = "turn-operands"
COPY = "turned_operands"
"""The origin of the kernels that copy."""


def _asked(op: Operation, mark: Attribute, *, is_in_block: bool) -> list[tuple[OperandTurn, int]]:
    """The operands that are to be copied, with how far rows of the copies are to be apart."""

    def wrong(reason: str) -> TreadleError:
        return TreadleError(errors.TURNED_OPERANDS, location_of(op), op=origin_of(op), reason=reason)

    pitches = [int(pitch) for pitch in mark.get_values()] if isinstance(mark, builtin.DenseArrayBase) else []
    if len(pitches) != 2:
        raise wrong(f"{mark} is no array of two numbers")
    if (turns := operand_turns(op)) is None:
        raise wrong("it is no contraction of two tensors without windows and scales")
    found = [(turn, pitch) for turn, pitch in zip(turns, pitches, strict=True) if pitch]
    for turn, pitch in found:
        if is_in_block:
            raise wrong("operands of blocks are not copied")
        if reason := turn.refusal or pitch_refusal(turn, pitch):
            raise wrong(reason)
    return found


def _turned(map_: AffineMap, axes: tuple[int, ...]) -> AffineMap:
    """The map to a copy with these axes of what the map goes to."""
    if (dims := map_dims(map_)) is None:
        raise InternalError("an operand that is turned is read at something else than loops")
    return dim_map(map_.num_dims, [dims[axis] for axis in axes])


@register_pass
@dataclass(frozen=True)
class TurnOperandsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Rewrite one function."""
        flow, copies = DataFlow(function.body.block), OperandCopies(COPY)
        marked = [op for op in generics(function) if TURNED_OPERANDS in op.attributes]
        for op in marked:
            asked = _asked(op, op.attributes.pop(TURNED_OPERANDS), is_in_block=bool(flow.blocks_of(op)))
            if not asked:
                continue
            view = view_of(op)
            inputs, maps = list(view.inputs), list(view.input_maps)
            made = copies.of([CopiedOperand(turn.value, turn.axes, pitch) for turn, pitch in asked], op)
            for (turn, _), copy in zip(asked, made, strict=True):
                inputs[turn.number], maps[turn.number] = copy, _turned(maps[turn.number], turn.axes)
            replace(op, build_generic(inputs, view.outputs, [*maps, *view.output_maps], view.iterators, clone_body(view), op))
