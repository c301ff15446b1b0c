"""Tiling of reductions that are folded in parts (`analysis/folds.py`): indices of extrema, mean and variance, sums of exponentials under a
running maximum, bodies declared to be associative, and any of them beside separable results.

Every place of a tile folds the elements that the loop brings to it, in the loop's order and with the user's own body; then the places are
merged by one reduction of all outputs together, and what it finds with the initial values. Ties of extrema go to the smaller index, as they
do in the order of the loop, so they come out as in the loop, whatever the order of merging; sums round otherwise.
"""

from collections.abc import Sequence

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.folds import Part, neutral_numbers, outputs_of
from treadle.analysis.indexing import StructuredOp
from treadle.analysis.root_positions import Linears
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.joins import Insert, joined_along
from treadle.transforms.kernel.tiling.loops import reduction_loops
from treadle.transforms.kernel.tiling.masks import select_inside
from treadle.transforms.kernel.tiling.merges import clamped, folded_together, merged_outputs
from treadle.transforms.kernel.tiling.scalars import BodyEvaluator, Tile, Value, convert, dense, stored_type


def build_folded(
    kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, loops: Sequence[tuple[int, int]], parts: Sequence[Part]
) -> list[Value]:
    """Emit the reduction `root`, whose loops are at `dims`; its results in the order of the outputs, reduced axes of extent one."""
    index = kernel.index
    reduced = [i for i, axis in enumerate(kernel.nest.axes) if axis.is_reduction]
    types = [stored_type(tile.tile_type(value).element_type, index) for value in root.op.results]
    neutral = neutral_numbers(parts, types)
    is_online = len(parts) == 1 and isinstance(parts[0], Coupled) and parts[0].kind == "online_softmax"
    initial = [index.insert(dense(number, type_, frame.extents)) for number, type_ in zip(neutral, types, strict=True)]

    def step(carried: Sequence[SSAValue]) -> list[SSAValue]:
        arguments = kernel.arguments(root, dims, frame)
        for argument, held in zip(root.body.args[len(root.inputs) :], carried, strict=True):
            arguments[argument] = Tile(held)
        evaluator = kernel.evaluator(frame, dims)
        found = _next(kernel, root, evaluator, parts, arguments, frame)
        return select_inside(kernel, frame, reduced, found, carried)

    def together(carried: Sequence[SSAValue], axis: int, places: Sequence[SSAValue]) -> list[SSAValue]:
        elements: list[list[SSAValue]] = []
        for place in places:
            with kernel.at(axis, place):
                elements.append(_elements(kernel, root, dims, frame, parts[0], neutral))
        return _folded(kernel, root, parts[0], carried, elements)

    def one(carried: Sequence[SSAValue]) -> list[SSAValue]:
        return _folded(kernel, root, parts[0], carried, [_elements(kernel, root, dims, frame, parts[0], neutral)])

    def join(insert: Insert, left: Sequence[SSAValue], right: Sequence[SSAValue]) -> list[SSAValue]:
        return merged_outputs(insert, parts, root, left, right, ordered=False)

    if is_online:
        found = reduction_loops(kernel, loops, initial, one, together=together)
    else:
        found = reduction_loops(kernel, loops, initial, step)
    totals = joined_along(kernel, root, frame, reduced, found, join)
    kept = frame.with_unit(reduced)
    evaluator = kernel.evaluator(kept)
    starts: list[SSAValue] = []
    for i, (output, map_) in enumerate(zip(root.outputs, root.output_maps, strict=True)):
        start = kernel.value(output, kernel.reached(map_, dims), kept)
        starts.append(evaluator.materialize(convert(evaluator, start, types[i]), kept.extents))
    return [Tile(value) for value in merged_outputs(index.insert, parts, root, starts, totals, ordered=True)]


def _elements(
    kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, part: Part, neutral: Sequence[Attribute]
) -> list[SSAValue]:
    """What a sum of exponentials takes in at the kernel's place (score, weighted values..); past the ends, what changes nothing."""
    index, reduced = kernel.index, [i for i, axis in enumerate(kernel.nest.axes) if axis.is_reduction]
    arguments, evaluator = kernel.arguments(root, dims, frame), kernel.evaluator(frame, dims)
    scalars = part.elements if isinstance(part, Coupled) else ()
    found = [evaluator.materialize(evaluator.evaluate(scalar, arguments), frame.extents) for scalar in scalars]
    outputs = outputs_of(part)
    numbers = [neutral[outputs[0]], *(neutral[number] for number in outputs[2:])]
    outside = [
        index.insert(dense(number, tile.tile_type(value).element_type, frame.extents)) for number, value in zip(numbers, found, strict=True)
    ]
    return select_inside(kernel, frame, reduced, found, outside)


def _folded(
    kernel: KernelBuilder, root: StructuredOp, part: Part, carried: Sequence[SSAValue], elements: Sequence[Sequence[SSAValue]]
) -> list[SSAValue]:
    """The accumulators of sums of exponentials after some elements, in the order of the outputs."""
    if not isinstance(part, Coupled):
        raise InternalError("elements that are folded one by one")
    found = folded_together(kernel.index.insert, part, root, [carried[i] for i in part.outputs], elements)
    return [value for _, value in sorted(zip(part.outputs, found, strict=True), key=lambda pair: pair[0])]


def _next(
    kernel: KernelBuilder,
    root: StructuredOp,
    evaluator: BodyEvaluator,
    parts: Sequence[Part],
    arguments: dict[SSAValue, Value],
    frame: Frame,
) -> list[SSAValue]:
    """The accumulators of every place after its element, by the body: exponentials under a maximum that is never minus infinity."""
    yielded, tops = root.yielded(), dict[SSAValue, SSAValue]()
    for part in parts:
        if isinstance(part, Coupled) and part.kind == "online_softmax":
            scalar = yielded[part.outputs[0]]
            top = evaluator.materialize(evaluator.evaluate(scalar, arguments), frame.extents)
            if isinstance(scalar.owner, Operation):
                tops[scalar] = top
                arguments[scalar] = Tile(clamped(kernel.index.insert, scalar.owner, top))
    return [tops.get(scalar) or evaluator.materialize(evaluator.evaluate(scalar, arguments), frame.extents) for scalar in yielded]
