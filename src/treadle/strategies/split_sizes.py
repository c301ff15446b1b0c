"""The built-in choice of how many parts a reduction is split into: they must be modelled to be clearly faster (`plan/split_parts.py`)."""

from collections.abc import Sequence
from math import prod

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, Reduction
from treadle.analysis.operation_marks import F32_PARTS
from treadle.dialects.split_attribute import SPLIT_REDUCTION, SplitAttr, SplitLoop, SplitPlan
from treadle.ir.builtin import StringAttr
from treadle.ir.core import Attribute
from treadle.machine import TargetSpec
from treadle.plan.split_parts import Parts, SplitContraction, SplitReduction, split_contraction, split_reduction
from treadle.plan.tile_config import AxisShape, ContractionShape, ContractionTypes, contraction_types
from treadle.strategies.facts import OperationFacts, element_of_operand, plain_dims, shape_of


def _types(facts: OperationFacts, kind: Contraction, spec: TargetSpec) -> ContractionTypes:
    view = facts.view
    names = [str(element_of_operand(value)) for value in (view.inputs[kind.lhs], view.inputs[kind.rhs])]
    parts = view.op.attributes.get(F32_PARTS)
    rounded = "tf32" in (facts.f32_precision, parts.data if isinstance(parts, StringAttr) else "")
    return contraction_types(spec, names[0], names[1], str(element_of_operand(view.outputs[0])), (kind.lhs_cast, kind.rhs_cast), rounded)


def contraction_problem(facts: OperationFacts, kind: Contraction, spec: TargetSpec) -> SplitContraction | None:
    """A contraction as the model sees it; None where its sizes are not known."""
    sizes, view = facts.sizes, facts.view
    if any(size is None for size in sizes):
        return None
    batch, m, n, k = (prod(sizes[d] or 0 for d in dims) for dims in (kind.batch, kind.m, kind.n, kind.k))
    types = _types(facts, kind, spec)
    operands = [(view.inputs[number], view.input_maps[number]) for number in (kind.lhs, kind.rhs)]
    widths = [element_bytes(element_of_operand(value)) for value, _ in operands]
    row = None if types.instruction == "fma" else spec.instruction(types.instruction)
    as_they_are = all(width == types.operand_bytes for width in widths)
    aligned = all(_rows_are_aligned(shape_of(value), width, spec) for (value, _), width in zip(operands, widths, strict=True))
    copied = spec.bulk_tensor is not None and row is not None and row.reads_shared and as_they_are and aligned
    along = [plain_dims(map_)[-1] in kind.k for _, map_ in operands]
    partial = element_bytes(facts.partial_types[0])
    return SplitContraction(ContractionShape(batch, m, n, k), types, widths[0], widths[1], partial, copied, (along[0], along[1]))


def _rows_are_aligned(shape: Sequence[int], width: int, spec: TargetSpec) -> bool:
    return spec.bulk_tensor is not None and len(shape) > 0 and shape[-1] * width % spec.bulk_tensor.pitch_align_bytes == 0


def reduction_problem(facts: OperationFacts, loop: int) -> SplitReduction | None:
    """A reduction as the model sees it, split along one loop; None where sizes are not known."""
    view, sizes = facts.view, facts.sizes
    if any(size is None for size in sizes):
        return None
    reads, writes = [0] * view.rank, [0] * view.rank
    total = 0.0
    for operands, maps, found in ((view.inputs, view.input_maps, reads), (view.outputs, view.output_maps, writes)):
        for value, map_ in zip(operands, maps, strict=True):
            size = facts.bytes_of(value) or 0
            total += size if found is reads else 0
            last = next((dim for dim in reversed(plain_dims(map_)) if dim is not None), None)
            if last is not None:
                found[last] += size
    axes = tuple(AxisShape(sizes[d], d in view.reduction_dims, reads[d], writes[d]) for d in range(view.rank))
    partial = sum(element_bytes(kind) for kind in facts.partial_types)
    return SplitReduction(axes, view.reduction_dims[loop], total, partial)


class SplitSizes:
    """Splits contractions and reductions of known sizes whose results are too few to fill the machine."""

    @property
    def name(self) -> str:
        """For remarks."""
        return "split-sizes"

    @property
    def attribute(self) -> str:
        """What it decides about."""
        return SPLIT_REDUCTION

    def decide(self, facts: OperationFacts, spec: TargetSpec) -> Attribute | None:
        """See `Strategy`."""
        if not facts.is_separable or not facts.splittable:
            return None
        found: list[tuple[int, Parts]] = []
        if isinstance(facts.computation, Contraction):
            problem = contraction_problem(facts, facts.computation, spec)
            longest = max(facts.splittable, key=lambda loop: facts.sizes[facts.view.reduction_dims[loop]] or 0)
            found = [(longest, parts)] if problem is not None and (parts := split_contraction(problem, spec)) is not None else []
        elif isinstance(facts.computation, Reduction):
            for loop in facts.splittable:
                reduction = reduction_problem(facts, loop)
                if reduction is not None and (parts := split_reduction(reduction, spec)) is not None:
                    found.append((loop, parts))
        if not found:
            return None
        loop, parts = min(found, key=lambda each: each[1].seconds)
        return SplitAttr(SplitPlan((SplitLoop(loop, str(parts.count), parts.step),)))
