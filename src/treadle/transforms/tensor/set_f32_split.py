"""set-f32-split: which contractions of f32 are computed as contractions of the operands' tf32 or bf16 parts.

Level: tensor, after fold-data-movement. Reads: contractions of two f32 tensors into f32, the machine's rates.
Writes: `treadle.f32_split`, the name of the split, where the model has the parts faster.
Leaves alone: other contractions, those that the model has faster as they are (a remark tells of each), and those that have the attribute:
a user may ask for one split where another or none is asked of the program, or "none" where one is.
Refuses with TR306 attributes that name no split, stand on something else than a contraction of f32, or ask for what the machine has not.
"""

from typing import ClassVar

from treadle import errors
from treadle.analysis.indexing import Contraction, StructuredOp, classify, loop_sizes, total_size, view_of
from treadle.analysis.operation_marks import F32_SPLIT, origin_of
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin, func, linalg
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.f32_split import SPLITS, split_refusal
from treadle.plan.tile_config import ContractionShape
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics

NAME = "set-f32-split"


def _is_f32(view: StructuredOp) -> bool:
    return all(tensor_type(value).element_type == builtin.f32 for value in (*view.inputs, *view.outputs))


def _contraction_shape(view: StructuredOp, kind: Contraction) -> ContractionShape:
    batch, m, n, k = (total_size(loop_sizes(view), dims) for dims in (kind.batch, kind.m, kind.n, kind.k))
    return ContractionShape(batch, m, n, k)


def is_splittable(op: linalg.ops.GenericOp) -> bool:
    """Whether an operation is a contraction of two f32 tensors into f32, none of which is read at windows."""
    kind = classify(op)
    return isinstance(kind, Contraction) and not kind.scales and kind.image < 0 and _is_f32(view_of(op))


def check_asked(op: linalg.ops.GenericOp, spec: TargetSpec) -> None:
    """Raise `TreadleError` TR306 for an attribute of the user's that cannot be followed."""
    mark = op.attributes[F32_SPLIT]
    name = mark.data if isinstance(mark, builtin.StringAttr) else str(mark)
    reason = None
    if name not in (*SPLITS, "none"):
        reason = f"there is no split {name}"
    elif not is_splittable(op):
        reason = "the operation is no contraction of two f32 tensors into f32"
    elif name in SPLITS and not spec.instructions_for(SPLITS[name].element, SPLITS[name].element, "f32"):
        reason = f"{spec.name} has no matrix instruction for {SPLITS[name].element}"
    if reason is not None:
        raise TreadleError(errors.F32_SPLIT, location_of(op), op=origin_of(op), reason=reason, known=", ".join(SPLITS))


def decide(op: linalg.ops.GenericOp, precision: str, spec: TargetSpec) -> None:
    """Mark one contraction of f32 where its parts are modelled to be faster; a remark where they are not."""
    view, kind = view_of(op), classify(op)
    if not isinstance(kind, Contraction):
        return
    reason = split_refusal(SPLITS[precision], _contraction_shape(view, kind), spec)
    if reason is None:
        op.attributes[F32_SPLIT] = builtin.StringAttr(precision)
    else:
        emit("refusal", NAME, origin_of(op), f"f32_precision={precision} not used: {reason}", location_of(op))


@register_pass
@dataclass(frozen=True)
class SetF32SplitPass(FunctionPass):
    """`target`: the machine whose rates decide; `precision`: a name of `SPLITS`, anything else asks for no split."""

    name: ClassVar[str] = NAME
    target: str
    precision: str = "3xtf32"

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        spec = target_spec(self.target)
        for op in generics(function):
            if F32_SPLIT in op.attributes:
                check_asked(op, spec)
            elif self.precision in SPLITS and is_splittable(op):
                decide(op, self.precision, spec)
