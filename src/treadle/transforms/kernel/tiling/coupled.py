"""Tiling of reductions whose outputs are combined together and that may be folded in parts: the index of an extremum.

Every place of a tile folds the elements that the loop brings to it, in the loop's order and with the user's own body; then the places are
merged by one reduction of all outputs together, and what it finds with the initial values. Ties go to the smaller index, as they do in the
order of the loop, so the result is that of the loop, whatever the order of merging.
"""

from collections.abc import Callable, Sequence

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.identities import identity_of
from treadle.analysis.loop_nest import compose, identity
from treadle.dialects import tile
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.loops import reduction_loops
from treadle.transforms.kernel.tiling.masks import select_inside
from treadle.transforms.kernel.tiling.scalars import Tile, Value, convert, dense, stored_type

Insert = Callable[[Operation], SSAValue]


def merged(insert: Insert, coupled: Coupled, left: Sequence[SSAValue], right: Sequence[SSAValue], *, ordered: bool) -> list[SSAValue]:
    """(value, index) of two parts, tiles or scalars. `ordered`: all of `left` comes before all of `right`, whatever the indices say."""
    (best, place), (other, its_place) = left, right
    largest = coupled.kind == "argmax"
    if coupled.nan == "":
        relation = {(True, False): "sgt", (True, True): "ugt", (False, False): "slt", (False, True): "ult"}[largest, coupled.unsigned]
        better, equal = (insert(arith.CmpiOp(other, best, predicate)) for predicate in (relation, "eq"))
    else:
        better, equal = (insert(arith.CmpfOp(other, best, predicate)) for predicate in ("ogt" if largest else "olt", "oeq"))
        if coupled.nan == "first":
            tests = ((best, "ord"), (other, "uno"), (best, "uno"))
            number, none, both = (insert(arith.CmpfOp(x, x, predicate)) for x, predicate in tests)
            better = insert(arith.OrIOp(better, insert(arith.AndIOp(none, number))))
            equal = insert(arith.OrIOp(equal, insert(arith.AndIOp(none, both))))
    if not ordered:
        earlier = insert(arith.CmpiOp(its_place, place, "ult"))
        better = insert(arith.OrIOp(better, insert(arith.AndIOp(equal, earlier))))
    return [insert(arith.SelectOp(better, its, own)) for own, its in zip(left, right, strict=True)]


def _combiner(coupled: Coupled, elements: Sequence[Attribute], like: Operation) -> Region:
    block = Block(arg_types=[*elements, *elements])

    def insert(op: Operation) -> SSAValue:
        op.location = like.location
        block.add_op(op)
        return op.results[0]

    count = len(elements)
    block.add_op(tile.YieldOp(merged(insert, coupled, block.args[:count], block.args[count:], ordered=False)))
    return Region(block)


def build_coupled(kernel: KernelBuilder, frame: Frame, loops: Sequence[tuple[int, int]], coupled: Coupled) -> list[Value]:
    """Emit the reduction; its results in the order of the outputs, reduced axes of extent one."""
    nest, root, index = kernel.nest, kernel.nest.root, kernel.index
    dims = identity(root.rank)
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    types = [stored_type(tensor.element_type, index) for tensor in (tile.tile_type(v) for v in root.op.results)]
    extremum = "arith.max" if coupled.kind == "argmax" else "arith.min"
    combiner = extremum + ("imumf" if coupled.nan else "ui" if coupled.unsigned else "si")
    value, place = coupled.outputs
    neutral = {value: identity_of(combiner, types[value]), place: identity_of("arith.minui", types[place])}
    initial = [index.insert(dense(neutral[i], types[i], frame.extents)) for i in range(len(types))]

    def step(carried: Sequence[SSAValue]) -> list[SSAValue]:
        arguments = kernel.arguments(root, dims, frame)
        for argument, held in zip(root.body.args[len(root.inputs) :], carried, strict=True):
            arguments[argument] = Tile(held)
        evaluator = kernel.evaluator(frame, dims)
        found = [evaluator.materialize(evaluator.evaluate(scalar, arguments), frame.extents) for scalar in root.yielded()]
        return select_inside(kernel, frame, reduced, found, carried)

    totals = reduction_loops(kernel, loops, initial, step)
    totals = [totals[i] for i in coupled.outputs]
    for j, axis in enumerate(frame.axes):
        if axis in reduced and frame.extents[j] > 1:
            reduce = tile.ReduceOp(totals, j, _combiner(coupled, [types[i] for i in coupled.outputs], root.op))
            index.builder.insert(reduce)
            totals = list(reduce.results)
    kept = frame.with_unit(reduced)
    evaluator = kernel.evaluator(kept)
    starts: list[SSAValue] = []
    for i in coupled.outputs:
        start = kernel.value(root.outputs[i], compose(root.output_maps[i], dims, root.rank), kept)
        starts.append(evaluator.materialize(convert(evaluator, start, types[i]), kept.extents))
    results = dict(zip(coupled.outputs, merged(index.insert, coupled, starts, totals, ordered=True), strict=True))
    return [Tile(results[i]) for i in range(len(types))]
