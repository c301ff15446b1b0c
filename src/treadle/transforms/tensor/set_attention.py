"""set-attention: two contractions with a softmax between them become one kernel, whose scores are never in memory.

Level: tensor, after fold-data-movement. Reads: generics, the machine's facts. Writes: `dispatch.group` on the two contractions, on the
softmax between them and on what is elementwise of the scores (scales, masks): one group, which form-dispatches makes a kernel of
(`attention`, docs/architecture.md). What may join it besides (masks that are computed, epilogues) is set-dispatch-groups' to decide.
Leaves alone: operations that carry attributes of the user's; scores that something else reads; types and widths that the kernel form has no
matrix instruction or no registers for; what the models say is faster apart. Remarks tell why.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from treadle.analysis.attention_structure import Attention, NoAttention, attention_of
from treadle.analysis.data_flow import DataFlow
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, StructuredOp, classify, map_dims, tensor_of, view_of
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.softmax import Softmax, softmax_of
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, func, linalg, math
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.attention_tiles import (
    HALVES,
    WIDEST,
    AttentionSizes,
    apart_seconds,
    attention_seconds,
    candidate_tiles,
)
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics

NAME: Final = "set-attention"
OFF: Final = "off"
ALWAYS: Final = "always"
VECTOR_UNITS: Final = "fma"


@dataclass(frozen=True, slots=True)
class Match:
    """The operations of one kernel to be, in program order, and how they belong together."""

    operations: tuple[Operation, ...]
    roots: tuple[Operation, ...]
    found: Attention


def _users(value: SSAValue) -> list[Operation]:
    return list(dict.fromkeys(use.operation for use in value.uses))


def _behind(softmax: Softmax) -> tuple[list[Operation], Operation] | None:
    """From the exponentials on: roundings and quotients, and the contraction that reads them; None where anything else does."""
    steps: list[Operation] = []
    value = softmax.total.inputs[0]
    while True:
        users = [op for op in _users(value) if op is not softmax.total.op]
        if len(users) != 1 or not isinstance(op := users[0], linalg.ops.GenericOp):
            return None
        if isinstance(classify(op), Contraction):
            return steps, op
        if not view_of(op).is_parallel or len(op.results) != 1 or len(steps) > 4:
            return None
        steps.append(op)
        value = op.results[0]


def _ahead(value: SSAValue, flow: DataFlow) -> tuple[list[Operation], list[Operation]]:
    """The contractions that a value is elementwise of, and the operations between: those that are computed from one of them."""
    contractions: list[Operation] = []
    around: set[Operation] = set()
    pending = [value]
    while pending:
        op = pending.pop().owner
        if not isinstance(op, linalg.ops.GenericOp) or op in around:
            continue
        around.add(op)
        if (view := view_of(op)).is_parallel:
            pending += view.inputs
        elif isinstance(classify(op), Contraction):
            contractions.append(op)
    behind, between = {result for op in contractions for result in op.results}, list[Operation]()
    for op in sorted(around, key=flow.position):
        if op not in contractions and not behind.isdisjoint(op.operands):
            between.append(op)
            behind.update(op.results)
    return contractions, between


def match(softmax: Softmax, flow: DataFlow) -> Match | NoAttention | None:
    """What one kernel of attention would compute around a softmax; why there is none, None where two contractions are not near it."""
    behind = _behind(softmax)
    contractions, between = _ahead(softmax.maximum.inputs[0], flow)
    if behind is None or not contractions:
        return None
    steps, second = behind
    if len(contractions) > 1:
        return NoAttention(contractions[1], "scores are computed from several contractions")
    (first,) = contractions
    if first is second:
        return None
    exponentials = softmax.total.inputs[0].owner
    roots = [first, softmax.maximum.op, softmax.total.op, second]
    kernel = [*roots, *between, *steps, *([exponentials] if isinstance(exponentials, Operation) else [])]
    kernel += _quotients(softmax, second, kernel)
    kernel.sort(key=flow.position)
    for op in kernel:
        if flow.blocks_of(op):
            return NoAttention(op, "it is computed block by block")
        if any(name in op.attributes for name in (dispatch.GROUP, SPLIT_REDUCTION)):
            return NoAttention(op, "attributes say how it is computed")
        readers = {reader for result in op.results for reader in _users(result)}
        rows = op in (softmax.maximum.op, softmax.total.op)  # a result of the kernel, where others read it
        if op is not second and not rows and not readers <= set(kernel) and second not in flow.sources(op):
            return NoAttention(op, "something else reads its result, so that it has to be in memory")
    found = attention_of([view_of(op) for op in kernel], roots)
    return found if isinstance(found, NoAttention) else Match(tuple(kernel), tuple(sorted(roots, key=flow.position)), found)


def _quotients(softmax: Softmax, second: Operation, kernel: Sequence[Operation]) -> list[Operation]:
    """What divides the second contraction's results by the sum, where the exponentials are multiplied as they stand."""
    readers = [op for op in _users(softmax.total.op.results[0]) if op not in kernel]
    return [op for op in readers if isinstance(op, linalg.ops.GenericOp) and any(value.owner is second for value in op.inputs)]


def _extents(view: StructuredOp) -> list[int | None]:
    """The sizes of an operation's loops, as far as types tell them."""
    found: list[int | None] = [None] * view.rank
    for value, map_ in view.operands():
        type_, dims = tensor_of(value), map_dims(map_)
        if type_ is not None and dims is not None:
            for size, d in zip(type_.get_shape(), dims, strict=True):
                found[d] = size if size >= 0 else found[d]
    return found


def sizes_of(found: Attention) -> AttentionSizes | str:
    """What a kernel of attention is modelled by; why it is none."""
    sizes = [*_extents(found.values), _extents(found.scores)[found.first.k[0]]]
    width, columns = sizes[found.width], sizes[found.columns]
    if width is None or columns is None:
        return "the width of its rows is the runtime's"
    if max(width, columns) > WIDEST:
        return f"rows are {max(width, columns)} wide, and registers hold {WIDEST} columns"
    if sizes[found.keys] == 1:
        return "there is one key"
    batch: int | None = 1
    for d in (*found.batch, *found.rows[:-1]):
        size = sizes[d]
        batch = None if batch is None or size is None else batch * size
    return AttentionSizes(batch, sizes[found.rows[-1]], sizes[found.keys], width, columns)


def operand_refusal(found: Attention, spec: TargetSpec) -> str | None:
    """Why the machine multiplies the operands by no matrix instruction without rounding more than the text says; None where it does."""
    read = (*found.scores.inputs[:2], *found.values.inputs[:2])
    types = list(dict.fromkeys(str(tensor_type(value).element_type) for value in read))
    if len(types) > 1 or types[0] not in HALVES:
        return f"its operands are of {' and '.join(types)}, and are not all f16 or all bf16"
    if tensor_type(found.softmax.total.op.results[0]).element_type != builtin.f32:
        return "its exponentials are not summed in f32"
    if not spec.instructions_for(types[0], types[0], "f32"):
        return f"{spec.name} has no matrix instruction for {types[0]}"
    return None


@register_pass
@dataclass(frozen=True)
class SetAttentionPass(FunctionPass):
    """`target`: the machine the kernels are for. `attention`: as in `CompileOptions`."""

    name: ClassVar[str] = NAME
    target: str
    attention: str = "auto"

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        nodes = [] if self.attention == OFF else generics(function)
        if not any(isinstance(op, math.ExpOp | math.Exp2Op) for node in nodes for op in node.body.block.ops):
            return
        if sum(len(node.inputs) > 1 and not view_of(node).is_parallel for node in nodes) < 2:
            return
        flow, number = DataFlow(function.body.block), 0
        taken = {name for op in nodes if isinstance(attr := op.attributes.get(dispatch.GROUP), dispatch.GroupAttr) for name, _ in attr.data}
        for node in flow.nodes:
            softmax = None if view_of(node).is_parallel else softmax_of(view_of(node))
            found = None if softmax is None else match(softmax, flow)
            if isinstance(found, NoAttention):
                emit("refusal", NAME, origin_of(node), f"no kernel of attention: {found.reason}", location_of(found.op))
            elif found is not None:
                while (name := f"attention{number}") in taken:
                    number += 1
                number += self._decide(found, name)

    def _decide(self, found: Match, name: str) -> bool:
        """Put the operations into a group where that is worth it."""
        spec, first = target_spec(self.target), found.found.scores.op
        sizes = sizes_of(found.found)
        reason = operand_refusal(found.found, spec) or (sizes if isinstance(sizes, str) else None)
        text = ""
        if reason is None and not isinstance(sizes, str):
            element = tensor_type(found.found.scores.inputs[0]).element_type
            tiles, size = next(candidate_tiles(sizes, str(element), spec)), sizes.memory_bytes(element_bytes(element))
            together, apart = (model(sizes, tiles, size, spec) for model in (attention_seconds, apart_seconds))
            text = f"{together * 1e6:.1f} us modelled, {apart * 1e6:.1f} us apart"
            if tiles.instruction == VECTOR_UNITS:
                reason = f"no tile of rows {max(sizes.width, sizes.columns)} wide fits shared memory"
            elif self.attention != ALWAYS and together > apart:
                reason = text
        if reason is not None:
            emit("refusal", NAME, origin_of(first), f"no kernel of attention: {reason}", location_of(first))
            return False
        for op in found.operations:
            role: dispatch.GroupRole = "root" if op in found.roots else "consumer"
            op.attributes[dispatch.GROUP] = dispatch.GroupAttr(((name, role),))
        emit("decision", NAME, origin_of(first), f"one kernel of attention, whose scores stay in registers: {text}", location_of(first))
        return True
