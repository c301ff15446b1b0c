"""Which contractions become roots of one kernel: those over the same loops that read one operand together (horizontal fusion).

Their kernel stages the shared operand once, and an elementwise operation that combines their results (`silu(x Wg) * (x Wu)`) works on all
of them while they are in registers. It costs width: the tiles of all results together must fit the registers that one would have.
"""

from math import prod

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, StructuredOp, classify, loop_sizes, tensor_of, view_of
from treadle.analysis.kernel_structure import shared_operands, siblings_refusal
from treadle.analysis.operation_marks import F32_PARTS, split_in_kernel
from treadle.ir.builtin import StringAttr
from treadle.ir.core import SSAValue
from treadle.ir.dialects import linalg
from treadle.machine import TargetSpec
from treadle.plan.machine_balance import operations_per_byte
from treadle.transforms.tensor.groups import Group, Grouping, closes_cycle, line_of

MOST_SIBLINGS = 4
"""More tiles of sums than this leave each too narrow to be worth it."""
SAVED_PART = 4
"""Contractions whose results do not meet are fused where that saves at least one part in so many of their memory traffic ..."""
"""... and they do fewer operations for each byte than the machine can (`plan/machine_balance.py`): traffic is what they wait for."""


def join_siblings(grouping: Grouping, spec: TargetSpec | None, *, tf32: bool) -> None:
    """Merge the groups of contractions that should share a kernel. Remarks tell of what is merged, and why what shares is not.

    `spec`: the machine, None where nobody knows it: then only contractions whose results meet are merged. `tf32`: f32 operands are rounded
    for matrix instructions. A group that the user has named takes roots in and joins no other.
    """
    kept: list[Group] = []
    for group in [g for g in grouping.groups if isinstance(kind := classify(g.root), Contraction) and not kind.scales]:
        for earlier in kept if group.name is None else ():
            if not shared_operands([view_of(op) for op in (*earlier.roots, group.root)]):
                continue
            reason = _refusal(grouping, earlier, group.root, spec, tf32=tf32)
            if reason is None:
                grouping.join(earlier, group.root, "they share an operand")
                break
            text = f"{line_of(group.root)} shares an operand with {line_of(earlier.root)} but not its kernel: {reason}"
            grouping.say("refusal", earlier, group.root, text)
        else:
            kept.append(group)


def _refusal(grouping: Grouping, group: Group, root: linalg.ops.GenericOp, spec: TargetSpec | None, *, tf32: bool) -> str | None:
    """Why a contraction does not become a root of a group it shares an operand with; None where it does."""
    if (reason := siblings_refusal(view_of(group.root), view_of(root))) is not None:
        return reason
    if grouping.flow.blocks_of(group.root) != grouping.flow.blocks_of(root):
        return "they are not computed in the same blocks"
    if any(split_in_kernel(op) for op in (*group.roots, root)):
        return "a kernel that splits f32 operands computes one contraction"
    if len(group.roots) >= MOST_SIBLINGS:
        return f"it has {MOST_SIBLINGS} contractions already, and more accumulators would not fit the registers"
    if not set(grouping.flow.sources(root)).isdisjoint(group.members) or closes_cycle(grouping, group, root, consumer=True):
        return "it needs the other's result"
    if any(grouping.flow.meet(op, root) for op in group.roots):
        return None  # so their sizes agree too
    if not grouping.flow.equal_sizes(group.root, root):
        return "their results are not known to be of one size"
    return _traffic_refusal([view_of(op) for op in (*group.roots, root)], spec, tf32=tf32)


def _traffic_refusal(views: list[StructuredOp], spec: TargetSpec | None, *, tf32: bool) -> str | None:
    """Whether reading the shared operand once is worth narrower tiles, for contractions whose results do not meet."""
    shared = shared_operands(views)[0]
    one = [_bytes(value) for view in views for value in (view.inputs[1 - shared], view.op.results[0])]
    operand = _bytes(views[0].inputs[shared])
    if operand is None or any(size is None for size in one):
        return "their results do not meet, and how much memory traffic it would save is known at run time only"
    if spec is None:
        return "their results do not meet, and no machine is named that might wait for their memory traffic"
    apart = sum(size for size in one if size is not None) + operand * len(views)
    saved = operand * (len(views) - 1)
    operations = 2 * sum(prod(size or 0 for size in loop_sizes(view)) for view in views)
    if saved * SAVED_PART < apart:
        return f"their results do not meet, and it would save {saved} of {apart} bytes of memory traffic only"
    if operations > operations_per_byte(spec, *_operand_types(views[0], tf32=tf32)) * (apart - saved):
        return "their results do not meet, and they wait for arithmetic, not for memory"
    return None


def _operand_types(view: StructuredOp, *, tf32: bool) -> tuple[str, str]:
    """The types that a contraction multiplies, as machines name them."""
    parts = view.op.attributes.get(F32_PARTS)
    rounded = tf32 or (isinstance(parts, StringAttr) and parts.data == "tf32")
    left, right = (str(type_.element_type) for value in view.inputs[:2] if (type_ := tensor_of(value)) is not None)
    return ("tf32", "tf32") if rounded and (left, right) == ("f32", "f32") else (left, right)


def _bytes(value: SSAValue) -> int | None:
    type_ = tensor_of(value)
    if type_ is None or not type_.has_static_shape():
        return None
    return prod(type_.get_shape()) * element_bytes(type_.element_type)
