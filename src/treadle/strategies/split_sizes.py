"""The built-in choice of how many parts a reduction is split into: they must be modelled to be clearly faster (`plan/split_parts.py`).

Where only the runtime knows how long the split loop is, the model is asked at powers of two: the shortest length that is worth a split, the
parts that it has there, and those of the longest make an expression over the loop's length. Where only it knows how large the
result is, the model is asked about a result of one workgroup, and more of them have the fewer parts each.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, Reduction, plain_dims
from treadle.analysis.operation_marks import F32_PARTS, split_in_kernel
from treadle.analysis.row_pitch import row_pitch
from treadle.dialects.split_attribute import ALL_LOOPS, SPLIT_REDUCTION, SplitAttr, SplitLoop, SplitPlan
from treadle.ir.builtin import StringAttr, type_name
from treadle.ir.core import AffineMap, Attribute, SSAValue
from treadle.machine import TargetSpec
from treadle.plan.f32_split import ROUNDED
from treadle.plan.form_times import Gathered
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.reduction_parts import SplitReduction, split_reduction
from treadle.plan.split_choices import SplitContraction
from treadle.plan.split_parts import Parts, split_contraction
from treadle.plan.tile_config import ContractionShape, ContractionTypes, contraction_types
from treadle.strategies.facts import OperationFacts, element_of_operand, shape_of

LENGTHS: Final = tuple(1 << power for power in range(9, 25))
"""At which the model is asked where the runtime gives the length."""

CONTRACTION_WIDTH: Final = 128
REDUCTION_WIDTH: Final = 32

Sizes = Sequence[int]


def _types(facts: OperationFacts, kind: Contraction, spec: TargetSpec) -> ContractionTypes:
    view = facts.view
    names = [type_name(element_of_operand(value)) for value in (view.inputs[kind.lhs], view.inputs[kind.rhs], view.outputs[0])]
    parts = view.op.attributes.get(F32_PARTS)
    rounded = "tf32" in (facts.f32_precision, parts.data if isinstance(parts, StringAttr) else "")
    return contraction_types(spec, names[0], names[1], names[2], (kind.lhs_cast, kind.rhs_cast), rounded)


def _row_alignment(value: SSAValue, width: int, pitch: int = 0) -> int:
    """The largest power of two that is known to divide the bytes from one row to the next, which are `pitch` elements where it is given."""
    row = (pitch or row_pitch(value) or 1) * width
    return row & -row


def contraction_problem(
    facts: OperationFacts, kind: Contraction, sizes: Sizes, spec: TargetSpec, pitches: tuple[int, int] = (0, 0)
) -> SplitContraction:
    """A contraction of so long loops as the model sees it. `pitches`: how far rows of A and of B are to be apart, in elements; 0 as they
    are.
    """
    view = facts.view
    batch, m, n, k = (prod(sizes[d] for d in dims) for dims in (kind.batch, kind.m, kind.n, kind.k))
    types = _types(facts, kind, spec)
    operands = [(view.inputs[number], view.input_maps[number]) for number in (kind.lhs, kind.rhs)]
    widths = [element_bytes(element_of_operand(value)) for value, _ in operands]
    row = None if types.instruction == "fma" else spec.instruction(types.instruction)
    as_they_are = all(width == types.operand_bytes for width in widths)
    rounds = types.a == ROUNDED and F32_PARTS not in view.op.attributes
    split = split_in_kernel(view.op) or (ROUNDED if rounds else "")
    is_copied = (bool(split) or (row is not None and row.reads_shared and as_they_are)) and spec.bulk_tensor is not None
    lie = [_row_alignment(value, width, pitch) for (value, _), width, pitch in zip(operands, widths, pitches, strict=True)]
    rows = lie if is_copied else [0, 0]
    along, lying = [plain_dims(map_)[-1] in kind.k for _, map_ in operands], rows
    if row is not None and row.k_major_only:  # what lies across is copied element by element, where pieces are as narrow
        queue = spec.queue_for("copy_in")
        turned = [width if is_copied and queue is not None and width in queue.piece_bytes else 0 for width in widths]
        rows = [whole if lies_along else each for whole, lies_along, each in zip(rows, along, turned, strict=True)]
    is_windowed, gathered = kind.image >= 0, None
    if is_windowed and (rules := spec.bulk_tensor) is not None and any(row % rules.pitch_align_bytes for row in rows):
        each = [min(spec.max_vector_bytes, row) for row in lie]
        rows, gathered = [0, 0], Gathered((each[0], each[1]), (kind.lhs, kind.rhs).index(kind.image))
    partial = element_bytes(facts.partial_types[0])
    shape, copied = ContractionShape(batch, m, n, k), (rows[0], rows[1])
    found = SplitContraction(shape, types, widths[0], widths[1], partial, copied, (along[0], along[1]), split, is_windowed, gathered)
    loads = spec.max_vector_bytes // min(spec.max_vector_bytes, *lie)
    return replace(found, lying_rows=(lying[0], lying[1]), loads=loads)


def _bytes(value: SSAValue, map_: AffineMap, sizes: Sizes) -> int:
    shape = shape_of(value)
    extents = [sizes[dim] if dim is not None else max(1, shape[axis]) for axis, dim in enumerate(plain_dims(map_))]
    return prod(extents) * element_bytes(element_of_operand(value))


def reduction_problem(facts: OperationFacts, loop: int, sizes: Sizes) -> SplitReduction:
    """A reduction of so long loops as the model sees it, split along one of them."""
    view = facts.view
    reads, writes = [0] * view.rank, [0] * view.rank
    total = 0.0
    for operands, maps, found in ((view.inputs, view.input_maps, reads), (view.outputs, view.output_maps, writes)):
        for value, map_ in zip(operands, maps, strict=True):
            size = _bytes(value, map_, sizes)
            total += size if found is reads else 0
            last = next((dim for dim in reversed(plain_dims(map_)) if dim is not None), None)
            if last is not None:
                found[last] += size
    axes = tuple(AxisShape(sizes[d], d in view.reduction_dims, reads[d], writes[d]) for d in range(view.rank))
    partial = sum(element_bytes(kind) for kind in facts.partial_types)
    return SplitReduction(axes, view.reduction_dims[loop], total, partial)


def whole_step(facts: OperationFacts, spec: TargetSpec) -> int:
    """What parts of a contraction of known sizes are multiples of where its fastest forms are to take them; 1 of all else."""
    kind, sizes = facts.computation, [size for size in facts.sizes if size is not None]
    if not isinstance(kind, Contraction) or kind.image >= 0 or len(sizes) < len(facts.sizes):
        return 1
    return contraction_problem(facts, kind, sizes, spec).step(spec)


def _parts(facts: OperationFacts, loop: int, sizes: Sizes, spec: TargetSpec, *, whole_stages: bool = False) -> Parts | None:
    """The parts of a reduction of so long loops along one of them, None where it had better stay whole."""
    if isinstance(facts.computation, Contraction):
        return split_contraction(contraction_problem(facts, facts.computation, sizes, spec), spec, whole_stages=whole_stages)
    return split_reduction(reduction_problem(facts, loop, sizes), spec)


def over_lengths(parts: Callable[[int], Parts | None], loop: int, lengths: Sequence[int], blocks: str = "") -> SplitLoop | None:
    """How a loop of one of these lengths, in ascending order, is split, by what is best at some of them; None where none is worth it.
    `blocks`: how many times as many workgroups as the model was told the results have, an expression over sizes.

    The longer a loop, the more its parts save: where the longest is not worth a split, none is, and the shortest that is one is searched by
    halves.
    """
    if (longest := parts(lengths[-1])) is None:
        return None
    found = {lengths[-1]: longest}

    def is_worth(length: int) -> bool:
        if (best := parts(length)) is not None:
            found[length] = best
        return best is not None

    shortest = lengths[bisect_left(lengths, True, hi=len(lengths) - 1, key=is_worth)]
    first = found[shortest]
    most, extent = str(max(first.count, longest.count)), f"r{loop}"
    fewer = f"{most} // max(1, {blocks})" if blocks else most
    if len(lengths) > 1:
        fewer = f"min({fewer}, {extent} // {max(1, shortest // first.count)}) * min(1, {extent} // {shortest})"
    return SplitLoop(loop, fewer, max(first.step, longest.step))


def _width(facts: OperationFacts, dim: int) -> int:
    """How much of a loop that is not reduced a workgroup takes, about."""
    if isinstance(kind := facts.computation, Contraction):
        return CONTRACTION_WIDTH if dim in (*kind.m, *kind.n) else 1
    neighbours = {plain_dims(map_)[-1] for map_ in facts.view.input_maps if map_.results}
    return REDUCTION_WIDTH if dim in neighbours else 1


def _of_convolution(facts: OperationFacts, kind: Contraction, spec: TargetSpec) -> Attribute | None:
    """The window and the channels of a convolution as one loop. Slices of channels would be no images that a folded view shows."""
    sizes = [size for size in facts.sizes if size is not None]
    if facts.shared_operand is None or len(sizes) < len(facts.sizes):
        return None
    parts = split_contraction(contraction_problem(facts, kind, sizes, spec), spec)
    return None if parts is None else SplitAttr(SplitPlan((SplitLoop(ALL_LOOPS, str(parts.count), parts.step),), parts.merge))


class SplitSizes:
    """Splits contractions and reductions whose results are too few to fill the machine along one loop, convolutions along all as one."""

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
        if isinstance(facts.computation, Contraction) and facts.computation.image >= 0:
            return _of_convolution(facts, facts.computation, spec)
        if not facts.is_separable or not facts.splittable or not isinstance(facts.computation, Contraction | Reduction):
            return None
        unknown = [dim for dim, size in enumerate(facts.sizes) if size is None]
        if unknown:
            return self._of_runtime(facts, unknown, spec)
        sizes, dims = [size or 0 for size in facts.sizes], facts.view.reduction_dims
        loops = facts.splittable
        if isinstance(facts.computation, Contraction):
            loops = (max(loops, key=lambda loop: sizes[dims[loop]]),)
        found = [(loop, parts) for loop in loops if (parts := _parts(facts, loop, sizes, spec)) is not None]
        if not found:
            return None
        loop, parts = min(found, key=lambda each: each[1].seconds)
        return SplitAttr(SplitPlan((SplitLoop(loop, str(parts.count), parts.step),), parts.merge))

    def _of_runtime(self, facts: OperationFacts, unknown: Sequence[int], spec: TargetSpec) -> Attribute | None:
        reduced, sizes = facts.view.reduction_dims, facts.sizes
        longest = max((size or 0 for dim, size in enumerate(sizes) if dim in reduced), default=0)
        wanted = [dim for dim in reduced if sizes[dim] is None] or [dim for dim in reduced if sizes[dim] == longest]
        loops = [loop for loop in facts.splittable if [reduced[loop]] == wanted[:1]]
        if not loops or sum(sizes[dim] is None for dim in reduced) > 1:
            return None
        kept = {dim: _width(facts, dim) for dim in unknown if dim not in reduced}

        def parts(length: int) -> Parts | None:
            known = [kept.get(dim, length) if size is None else size for dim, size in enumerate(sizes)]
            return _parts(facts, loops[0], known, spec, whole_stages=True)

        numbers = {dim: number for number, dim in enumerate(facts.view.parallel_dims)}
        blocks = " * ".join(f"((n{numbers[dim]} + {width - 1}) // {width})" for dim, width in kept.items())
        lengths = LENGTHS if sizes[wanted[0]] is None else (longest,)
        found = over_lengths(parts, loops[0], lengths, blocks)
        return None if found is None else SplitAttr(SplitPlan((found,)))
