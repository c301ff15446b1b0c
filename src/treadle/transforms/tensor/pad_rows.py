"""pad-rows: contractions that are marked read copies of operands whose rows lie further apart.

Level: tensor, after set-row-padding. Reads: `treadle.padded_rows` of contractions. Writes: for each operand that is to be copied a generic
that copies it, an insertion of that into an array of longer rows, and the slice that has the operand's own extents, which the contraction
reads: nothing behind the rows is read or needs a value. Two operands of one type are copied by one generic. Contractions that read one
tensor share its copy.
Leaves alone: what is not marked, and operands whose number is 0. Refuses with TR309 what is no contraction of two tensors, rows that are
shorter than the operand's, and what `analysis/padded_rows.py` refuses.
"""

from collections.abc import Sequence
from typing import ClassVar

from treadle import errors
from treadle.analysis.data_flow import DataFlow
from treadle.analysis.indexing import view_of
from treadle.analysis.operation_marks import ORIGIN, PADDED_ROWS, origin_of
from treadle.analysis.padded_rows import OperandPitch, operand_pitches
from treadle.errors import TreadleError
from treadle.ir.core import DYNAMIC_INDEX, Attribute, Operation, SSAValue
from treadle.ir.dialects import builtin, func
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, clone_body, elementwise, generics, replace, scalar_body

NAME = "pad-rows"
COPY = "padded_rows"
"""The origin of the kernels that copy."""


def with_pitches(copied: Sequence[tuple[SSAValue, int]], anchor: Operation) -> list[SSAValue]:
    """Copies of tensors of one type by one kernel, in front of `anchor`, whose rows are so many elements apart."""
    emit, values = TensorEmitter(anchor), [value for value, _ in copied]
    sizes, type_ = emit.sizes(values[0]), tensor_type(values[0])
    body = scalar_body([type_.element_type] * (2 * len(values)), lambda _, arguments: arguments[: len(values)])
    made = elementwise(values, [emit.empty_like(value) for value in values], body, anchor)
    made.attributes.clear()
    made.attributes[ORIGIN] = builtin.StringAttr(COPY)
    emit.put(made)
    found: list[SSAValue] = []
    for result, (_, pitch) in zip(made.results, copied, strict=True):
        whole = emit.insert_slice(result, emit.empty([*sizes[:-1], pitch], type_.element_type), [0] * len(sizes), sizes)
        found.append(emit.extract_slice(whole, sizes, shape=type_.get_shape()))
    return found


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


def _of_one_type(copied: Sequence[tuple[SSAValue, int]]) -> list[list[tuple[SSAValue, int]]]:
    """What one kernel copies: tensors of one type, of sizes that are known."""
    found: dict[Attribute | SSAValue, list[tuple[SSAValue, int]]] = {}
    for value, pitch in copied:
        is_known = DYNAMIC_INDEX not in tensor_type(value).get_shape()
        found.setdefault(value.type if is_known else value, []).append((value, pitch))
    return list(found.values())


@register_pass
@dataclass(frozen=True)
class PadRowsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Rewrite one function."""
        flow, made = DataFlow(function.body.block), dict[tuple[SSAValue, int], SSAValue]()
        marked = [op for op in generics(function) if PADDED_ROWS in op.attributes]
        for op in marked:
            asked = _asked(op, op.attributes.pop(PADDED_ROWS), is_in_block=bool(flow.blocks_of(op)))
            if not asked:
                continue
            view = view_of(op)
            inputs = list(view.inputs)
            missing = dict.fromkeys((operand.value, pitch) for operand, pitch in asked if (operand.value, pitch) not in made)
            for together in _of_one_type(list(missing)):
                made.update(zip(together, with_pitches(together, op), strict=True))
            for operand, pitch in asked:
                inputs[operand.number] = made[operand.value, pitch]
            maps = (*view.input_maps, *view.output_maps)
            replace(op, build_generic(inputs, view.outputs, maps, view.iterators, clone_body(view), op))
