"""pad-rows: contractions that are marked read copies of operands whose rows lie further apart.

Level: tensor, after set-row-padding. Reads: `treadle.padded_rows` of contractions. Writes: for each operand that is to be copied a generic
that copies it, an insertion of that into an array of longer rows, and the slice that has the operand's own extents, which the contraction
reads: nothing behind the rows is read or needs a value. Two operands of one type are copied by one generic. Contractions that read one
tensor share its copy.
Leaves alone: what is not marked, and operands whose number is 0. Refuses with TR309 what is no contraction of two tensors, rows that are
shorter than the operand's, and what `analysis/padded_rows.py` refuses.
"""

from typing import ClassVar

from treadle import errors
from treadle.analysis.data_flow import DataFlow
from treadle.analysis.indexing import view_of
from treadle.analysis.operation_marks import PADDED_ROWS, origin_of
from treadle.analysis.padded_rows import OperandPitch, operand_pitches
from treadle.errors import TreadleError
from treadle.ir.core import Attribute, Operation
from treadle.ir.dialects import builtin, func
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, clone_body, generics, replace
from treadle.transforms.tensor.operand_copies import CopiedOperand, OperandCopies

NAME = "pad-rows"
COPY = "padded_rows"
"""The origin of the kernels that copy."""


def _asked(op: Operation, mark: Attribute, *, is_in_block: bool) -> list[tuple[OperandPitch, int]]:
    """The operands that are to be copied, with how far rows are to be apart."""

    def wrong(reason: str) -> TreadleError:
        return TreadleError(errors.PADDED_ROWS, location_of(op), op=origin_of(op), reason=reason)

    pitches = [int(pitch) for pitch in mark.get_values()] if isinstance(mark, builtin.DenseArrayBase) else []
    if len(pitches) != 2:
        raise wrong(f"{mark} is no array of two numbers")
    if (operands := operand_pitches(op)) is None:
        raise wrong("it is no contraction of two tensors without windows and scales")
    found = [(operand, pitch) for operand, pitch in zip(operands, pitches, strict=True) if pitch]
    for operand, pitch in found:
        if is_in_block or operand.refusal:
            raise wrong(operand.refusal or "operands of blocks are not copied")
        if pitch < (length := tensor_type(operand.value).get_shape()[-1]):
            raise wrong(f"rows of {length} elements cannot be {pitch} apart")
    return found


def _copy(operand: OperandPitch, pitch: int) -> CopiedOperand:
    return CopiedOperand(operand.value, tuple(range(tensor_type(operand.value).get_num_dims())), pitch)


@register_pass
@dataclass(frozen=True)
class PadRowsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Rewrite one function."""
        flow, copies = DataFlow(function.body.block), OperandCopies(COPY)
        marked = [op for op in generics(function) if PADDED_ROWS in op.attributes]
        for op in marked:
            asked = _asked(op, op.attributes.pop(PADDED_ROWS), is_in_block=bool(flow.blocks_of(op)))
            if not asked:
                continue
            view = view_of(op)
            inputs = list(view.inputs)
            made = copies.of([_copy(operand, pitch) for operand, pitch in asked], op)
            for (operand, _), copy in zip(asked, made, strict=True):
                inputs[operand.number] = copy
            maps = (*view.input_maps, *view.output_maps)
            replace(op, build_generic(inputs, view.outputs, maps, view.iterators, clone_body(view), op))
