"""Tiling of reductions that are no contraction.

Separable reductions (each result joined with an element by one associative operation) accumulate whole tiles elementwise and reduce the
tile once at the end; so does all that is folded in parts (`coupled.py`). Others walk the reduced axes one element at a time with the user's
own body.
"""

from collections.abc import Sequence

from treadle.analysis.folds import Separate, parts_of
from treadle.analysis.identities import identity_of
from treadle.analysis.indexing import Reduction, StructuredOp, classify
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.root_positions import Linears, identity
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number, element_of
from treadle.ir.core import Attribute, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.plan.expr import Expr
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.coupled import build_folded
from treadle.transforms.kernel.tiling.elementwise import frame_of, grid_of, place_tiles
from treadle.transforms.kernel.tiling.joins import Initial, Join, join_by, joined_along, with_initial
from treadle.transforms.kernel.tiling.loops import needs_loop, reduction_loops
from treadle.transforms.kernel.tiling.masks import mask_tail
from treadle.transforms.kernel.tiling.merging import finish
from treadle.transforms.kernel.tiling.scalars import Tile, Value, convert, dense, stored_type


def accumulator_type(combiner: str, element: Attribute) -> Attribute:
    """Sums and products of 16-bit floats are formed in f32."""
    if combiner in ("arith.addf", "arith.mulf") and isinstance(element, builtin.Float16Type | builtin.BFloat16Type):
        return builtin.f32
    return element


def _direct_input(root: StructuredOp, element: SSAValue) -> int | None:
    """The input number where a reduced element is an input as it stands."""
    if isinstance(element, BlockArgument) and element.block is root.body and element.index < len(root.inputs):
        return element.index
    return None


def _separable(
    kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, loops: Sequence[tuple[int, int]], kind: Reduction
) -> list[Value]:
    nest, index = kernel.nest, kernel.index
    combiners, elements = kind.combiners, [element for element in kind.elements if element is not None]
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    joins: list[Join] = []
    for scalar in root.yielded():
        if not isinstance(scalar.owner, Operation):
            raise InternalError("a separable reduction yields an argument")
        joins.append(join_by(type(scalar.owner), scalar.owner))
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
        for accumulator, scalar, join, element, i, fill in zip(carried, elements, joins, types, direct, neutral, strict=True):
            value = convert(evaluator, evaluator.evaluate(scalar, arguments), element)
            tile_value = evaluator.materialize(value, frame.extents)
            loaded = i is not None and i in others and _masked_by_load(kernel, root, dims, i, frame, reduced)
            if not loaded:
                tile_value = mask_tail(kernel, tile_value, frame, reduced, fill)
            following += [tile_value] if is_alone else join(index.insert, [accumulator], [tile_value])
        return following

    totals = reduction_loops(kernel, loops, initial, step)
    results: list[Value] = []
    for number, (total, join, combiner, output) in enumerate(zip(totals, joins, combiners, outputs, strict=True)):
        (whole,) = joined_along(kernel, root, frame, reduced, [total], join)
        start = Initial(root, number, attr_number(identity_of(combiner, stored_type(output, index))), dims)
        results.append(with_initial(kernel, start, whole, frame.with_unit(reduced), join))
    return results


def _masked_by_load(kernel: KernelBuilder, root: StructuredOp, dims: Linears, number: int, frame: Frame, reduced: Sequence[int]) -> bool:
    """Whether an input is a kernel argument whose own bounds mask every ragged reduced axis of the frame."""
    masked = kernel.masked_axes(root.inputs[number], kernel.reached(root.input_maps[number], dims))
    return kernel.is_argument(root.inputs[number]) and all(a in masked for a in frame.axes if a in reduced)


def _sequential(kernel: KernelBuilder, root: StructuredOp, dims: Linears, frame: Frame, loops: Sequence[tuple[int, int]]) -> list[Value]:
    evaluator = kernel.evaluator(frame)
    starts = [kernel.value(v, kernel.reached(m, dims), frame) for v, m in zip(root.outputs, root.output_maps, strict=True)]
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
    finish(kernel, frame.with_unit(reduced))
    return grid_of(nest, parallel, [extents[i] for i in parallel])
