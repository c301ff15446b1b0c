"""Tiling of reductions that are no contraction.

Separable reductions (each result joined with an element by one associative operation) accumulate whole tiles elementwise and reduce the
tile once at the end; so does all that is folded in parts (`coupled.py`). Others walk the reduced axes one element at a time with the user's
own body.
"""

from collections.abc import Sequence

from treadle.analysis.folds import Separate, parts_of
from treadle.analysis.indexing import Reduction, StructuredOp, classify
from treadle.analysis.loop_nest import Linears, LoopNest, compose, identity
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number, element_of
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import builtin
from treadle.plan.expr import Expr
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.combiners import identity_of
from treadle.transforms.kernel.tiling.coupled import build_folded
from treadle.transforms.kernel.tiling.elementwise import frame_of, grid_of, place_tiles
from treadle.transforms.kernel.tiling.index_math import IndexBuilder
from treadle.transforms.kernel.tiling.loops import needs_loop, reduction_loops
from treadle.transforms.kernel.tiling.masks import mask_tail
from treadle.transforms.kernel.tiling.scalars import Constant, Tile, Value, convert, dense, stored_type


def accumulator_type(combiner: str, element: Attribute) -> Attribute:
    """Sums and products of 16-bit floats are formed in f32."""
    if combiner in ("arith.addf", "arith.mulf") and isinstance(element, builtin.Float16Type | builtin.BFloat16Type):
        return builtin.f32
    return element


def _joined(kernel: KernelBuilder, template: Operation, left: SSAValue, right: SSAValue) -> SSAValue:
    op = type(template).create(operands=[left, right], result_types=[left.type], properties=dict(template.properties))
    op.location = template.location
    return kernel.index.insert(op)


def _combiner_region(template: Operation, element: Attribute) -> Region:
    block = Block(arg_types=[element, element])
    op = type(template).create(operands=list(block.args), result_types=[element], properties=dict(template.properties))
    op.location = template.location
    block.add_op(op)
    block.add_op(tile.YieldOp([op.results[0]]))
    return Region(block)


def _direct_input(root: StructuredOp, element: SSAValue) -> int | None:
    """The input number where a reduced element is an input as it stands."""
    for i, argument in enumerate(root.body.args[: len(root.inputs)]):
        if argument is element:
            return i
    return None


def _separable(
    kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, loops: Sequence[tuple[int, int]], kind: Reduction
) -> list[Value]:
    nest, index, rank = kernel.nest, kernel.index, kernel.nest.root.rank
    combiners, elements = kind.combiners, [element for element in kind.elements if element is not None]
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    templates: list[Operation] = []
    for scalar in root.yielded():
        if not isinstance(scalar.owner, Operation):
            raise InternalError("a separable reduction yields an argument")
        templates.append(scalar.owner)
    outputs = [element_of(v.type) for v in root.op.results]
    types = [accumulator_type(c, stored_type(t, index)) for c, t in zip(combiners, outputs, strict=True)]
    neutral = [identity_of(c, t) for c, t in zip(combiners, types, strict=True)]
    initial = [index.insert(dense(n, t, frame.extents)) for n, t in zip(neutral, types, strict=True)]
    is_alone = not any(needs_loop(kernel, *loop) for loop in loops)  # one tile has all elements
    direct = [_direct_input(root, e) for e in elements]
    # A plain load can deliver the neutral element itself where it is outside, which spares the select.
    others: dict[int, Attribute] = {}
    for i, combiner, scalar in zip(direct, combiners, elements, strict=True):
        if i is not None and direct.count(i) == 1 and nest.kind != "rows":  # where other members read the same tile
            others[i] = identity_of(combiner, stored_type(scalar.type, index))

    def step(carried: Sequence[SSAValue]) -> list[SSAValue]:
        arguments = kernel.arguments(root, dims, frame, others)
        evaluator = kernel.evaluator(frame, dims)
        following: list[SSAValue] = []
        for accumulator, scalar, template, element, i, fill in zip(carried, elements, templates, types, direct, neutral, strict=True):
            value = convert(evaluator, evaluator.evaluate(scalar, arguments), element)
            tile_value = evaluator.materialize(value, frame.extents)
            loaded = i is not None and i in others and _masked_by_load(kernel, root, dims, i, frame, reduced)
            if not loaded:
                tile_value = mask_tail(kernel, tile_value, frame, reduced, fill)
            following.append(tile_value if is_alone else _joined(kernel, template, accumulator, tile_value))
        return following

    totals = reduction_loops(kernel, loops, initial, step)
    results: list[Value] = []
    for total, template, element, output, combiner, out, map_ in zip(
        totals, templates, types, outputs, combiners, root.outputs, root.output_maps, strict=True
    ):
        value = total
        for j, axis in enumerate(frame.axes):
            if axis in reduced and tile.tile_type(value).get_shape()[j] > 1:
                reduce = tile.ReduceOp([value], j, _combiner_region(template, element))
                index.builder.insert(reduce)
                value = reduce.results[0]
        kept = frame.with_unit(reduced)
        evaluator = kernel.evaluator(kept)
        start = kernel.value(out, compose(map_, dims, rank), kept)
        if not (isinstance(start, Constant) and _is_identity(start, combiner, index)):
            started = evaluator.materialize(convert(evaluator, start, element), kept.extents)
            value = _joined(kernel, template, started, value)
        results.append(convert(evaluator, Tile(value), stored_type(output, index)))
    return results


def _masked_by_load(kernel: KernelBuilder, root: StructuredOp, dims: Linears, number: int, frame: Frame, reduced: Sequence[int]) -> bool:
    """Whether an input is a kernel argument whose own bounds mask every ragged reduced axis of the frame."""
    masked = kernel.masked_axes(root.inputs[number], compose(root.input_maps[number], dims, kernel.nest.root.rank))
    return kernel.is_argument(root.inputs[number]) and all(a in masked for a in frame.axes if a in reduced)


def _is_identity(start: Constant, combiner: str, index: IndexBuilder) -> bool:
    wanted = identity_of(combiner, stored_type(start.element, index))
    return attr_number(start.value) == attr_number(wanted)


def _sequential(kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, loops: Sequence[tuple[int, int]]) -> list[Value]:
    rank = kernel.nest.root.rank
    evaluator = kernel.evaluator(frame)
    starts = [kernel.value(v, compose(m, dims, rank), frame) for v, m in zip(root.outputs, root.output_maps, strict=True)]
    initial = [evaluator.materialize(s, frame.extents) for s in starts]

    def step(carried: Sequence[SSAValue]) -> list[SSAValue]:
        arguments = kernel.arguments(root, dims, frame)
        for argument, value in zip(root.body.args[len(root.inputs) :], carried, strict=True):
            arguments[argument] = Tile(value)
        inner = kernel.evaluator(frame, dims)
        return [inner.materialize(inner.evaluate(s, arguments), frame.extents) for s in root.yielded()]

    return [Tile(v) for v in reduction_loops(kernel, loops, initial, step)]


def reduced_values(kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, loops: Sequence[tuple[int, int]]) -> list[Value]:
    """Emit one reduction whose loops are at `dims`, over tiles of `frame` that `loops` move along (axis, step); its results."""
    kind = classify(root.op)
    if not isinstance(kind, Reduction):
        raise InternalError("a contraction is tiled as one")
    if (parts := parts_of(root, kind)) is None:
        return _sequential(kernel, root, dims, frame, loops)
    if all(isinstance(part, Separate) for part in parts):
        return _separable(kernel, root, dims, frame, loops, kind)
    return build_folded(kernel, root, dims, frame, loops, parts)


def build_reduction(kernel: KernelBuilder, extents: Sequence[int]) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid."""
    nest: LoopNest = kernel.nest
    root = nest.root
    parallel = [i for i, axis in enumerate(nest.axes) if not axis.is_reduction]
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    place_tiles(kernel, parallel, [extents[i] for i in parallel])
    frame = frame_of(range(len(nest.axes)), extents)
    loops = [(i, extents[i]) for i in sorted(reduced, key=lambda i: extents[i])]
    values = reduced_values(kernel, root, identity(root.rank), frame, loops)
    for result, value in zip(root.op.results, values, strict=True):
        kernel.known[result] = value
    kernel.finish_consumers(frame.with_unit(reduced))
    return grid_of(nest, parallel, [extents[i] for i in parallel])
