"""set-f32-split: which contractions of f32 are computed as contractions of the operands' tf32 or bf16 parts.

Level: tensor, after fold-data-movement. Reads: contractions of two f32 tensors into f32, the machine's rates.
Writes: `treadle.f32_split`, the name of the split, where the model has the parts faster, and `treadle.f32_split_in`, where operands are
split: in "memory" ahead of the contraction, or in its "kernel".
Leaves alone: other contractions, those that the model has faster as they are (a remark tells of each), and those that have the attributes:
a user may ask for one split where another or none is asked of the program, or "none" where one is, and for the place.
Refuses with TR306 attributes that name no split, stand on something else than a contraction of f32, or ask for what the machine has not.
"""

from typing import ClassVar

from treadle import errors
from treadle.analysis.indexing import Contraction, StructuredOp, classify, loop_sizes, plain_dims, total_size, view_of
from treadle.analysis.operation_marks import F32_SPLIT, F32_SPLIT_IN, IN_KERNEL, IN_MEMORY, origin_of
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin, func, linalg
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.f32_split import SPLITS, Split, may_split_in_kernel, seconds_in_kernel, seconds_in_memory, split_refusal
from treadle.plan.tile_config import ContractionShape
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics

NAME = "set-f32-split"
PLACES = (builtin.StringAttr(IN_MEMORY), builtin.StringAttr(IN_KERNEL))


def _is_f32(view: StructuredOp) -> bool:
    return all(tensor_type(value).element_type == builtin.f32 for value in (*view.inputs, *view.outputs))


def _contraction_shape(view: StructuredOp, kind: Contraction) -> ContractionShape:
    batch, m, n, k = (total_size(loop_sizes(view), dims) for dims in (kind.batch, kind.m, kind.n, kind.k))
    return ContractionShape(batch, m, n, k)


def is_splittable(op: linalg.ops.GenericOp) -> bool:
    """Whether an operation is a contraction of two f32 tensors into f32, none of which is read at windows."""
    kind = classify(op)
    return isinstance(kind, Contraction) and not kind.scales and kind.image < 0 and _is_f32(view_of(op))


def check_asked(op: linalg.ops.GenericOp, precision: str, spec: TargetSpec) -> None:
    """Raise `TreadleError` TR306 for attributes of the user's that cannot be followed. `precision`: the split where they name none."""
    mark, place = op.attributes.get(F32_SPLIT, builtin.StringAttr(precision)), op.attributes.get(F32_SPLIT_IN, PLACES[0])
    name = mark.data if isinstance(mark, builtin.StringAttr) else str(mark)
    reason = None
    if F32_SPLIT in op.attributes and name not in (*SPLITS, "none"):
        reason = f"there is no split {name}"
    elif not is_splittable(op):
        reason = "the operation is no contraction of two f32 tensors into f32"
    elif F32_SPLIT in op.attributes and name in SPLITS and not spec.instructions_for(SPLITS[name].element, SPLITS[name].element, "f32"):
        reason = f"{spec.name} has no matrix instruction for {SPLITS[name].element}"
    elif place not in PLACES:
        reason = f"there is no place {place} to split operands in ({IN_MEMORY}, {IN_KERNEL})"
    elif place == PLACES[1] and name in SPLITS and not may_split_in_kernel(SPLITS[name], spec):
        reason = f"kernels of {spec.name} do not split operands into {SPLITS[name].element} parts themselves"
    if reason is not None:
        raise TreadleError(errors.F32_SPLIT, location_of(op), op=origin_of(op), reason=reason, known=", ".join(SPLITS))


def may_be_in_kernel(op: linalg.ops.GenericOp, split: Split, spec: TargetSpec) -> bool:
    """Whether a contraction's kernel surely can split its operands: they are not computed, and lie along k or their own last loop."""
    view, kind = view_of(op), classify(op)
    if not isinstance(kind, Contraction) or not may_split_in_kernel(split, spec) or not (kind.m and kind.n and len(kind.k) == 1):
        return False
    for number, own in ((kind.lhs, kind.m), (kind.rhs, kind.n)):
        dims, value = plain_dims(view.input_maps[number]), view.inputs[number]
        is_computed = isinstance(value.owner, linalg.ops.GenericOp | linalg.ops.FillOp)
        if is_computed or not dims or None in dims or dims[-1] not in (kind.k[-1], own[-1]):
            return False
    return True


def set_place(op: linalg.ops.GenericOp, spec: TargetSpec) -> None:
    """Say where a contraction's operands are split, if nobody has."""
    name, view, kind = op.attributes.get(F32_SPLIT), view_of(op), classify(op)
    if (
        F32_SPLIT_IN in op.attributes
        or not isinstance(name, builtin.StringAttr)
        or name.data not in SPLITS
        or not isinstance(kind, Contraction)
    ):
        return
    split, shape = SPLITS[name.data], _contraction_shape(view, kind)
    inside = may_be_in_kernel(op, split, spec) and seconds_in_kernel(split, shape, spec) < seconds_in_memory(split, shape, spec)
    op.attributes[F32_SPLIT_IN] = PLACES[inside]


def decide(op: linalg.ops.GenericOp, precision: str, spec: TargetSpec) -> None:
    """Mark one contraction of f32 where its parts are modelled to be faster; a remark where they are not."""
    view, kind = view_of(op), classify(op)
    if not isinstance(kind, Contraction):
        return
    in_kernel = may_be_in_kernel(op, SPLITS[precision], spec)
    reason = split_refusal(SPLITS[precision], _contraction_shape(view, kind), spec, in_kernel=in_kernel)
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
            if not {F32_SPLIT, F32_SPLIT_IN}.isdisjoint(op.attributes):
                check_asked(op, self.precision, spec)
            if F32_SPLIT not in op.attributes and self.precision in SPLITS and is_splittable(op):
                decide(op, self.precision, spec)
            set_place(op, spec)
