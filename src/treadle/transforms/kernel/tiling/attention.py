"""Tiling of attention: a workgroup has rows of queries, and walks the keys with an online softmax between its two contractions.

The tiles of scores and exponentials stay in registers: of each row the greatest score so far, the sum of exponentials and the sums of
values are carried along, rescaled where the maximum grows. The loop is the one that users write in the kernel language
(examples/attention.py), so that what follows (roles, rings, steps that overlap, the proof) is the same.

Source: T. Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022).
"""

from collections.abc import Sequence
from math import e, log2

from treadle.analysis.attention_structure import Attention
from treadle.analysis.identities import identity_of, lowest_finite
from treadle.analysis.indexing import StructuredOp
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number, element_of, number_attr
from treadle.ir.core import Block, Region, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, math, scf
from treadle.plan.expr import Expr
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.elementwise import grid_of, place_tiles
from treadle.transforms.kernel.tiling.joins import Initial, join_by, joined_along, sum_of, with_initial
from treadle.transforms.kernel.tiling.masks import mask_tail
from treadle.transforms.kernel.tiling.scalars import Tile, convert, dense


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Axes along rows, columns, keys and width of a nest (UNIT: extent one), and the extents of tiles along them. `operand`: the type that
    is multiplied, `instruction`: in which way.
    """

    axes: tuple[int, int, int, int]
    extents: tuple[int, int, int, int]
    operand: str
    instruction: str

    def frame(self, first: int, second: int) -> Frame:
        """The tile of two of rows (0), columns (1), keys (2), width (3)."""
        return Frame((self.axes[first], self.axes[second]), (self.extents[first], self.extents[second]))


ROWS, COLUMNS, KEYS, WIDTH = range(4)


def build_attention(kernel: KernelBuilder, asked: AttentionTile) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid."""
    nest = kernel.nest
    parallel = [i for i, axis in enumerate(nest.axes) if not axis.is_reduction]
    along = dict(zip(asked.axes, asked.extents, strict=True))
    extents = [along.get(axis, 1) for axis in parallel]
    place_tiles(kernel, parallel, extents)
    for axis in asked.axes[2:]:
        kernel.offset[axis] = kernel.index.constant(0)
    if nest.attention is None:
        raise InternalError("a kernel of attention is wanted")
    _Body(kernel, nest.attention, asked).emit()
    return grid_of(nest, parallel, extents)


class _Body:
    """One workgroup's program."""

    def __init__(self, kernel: KernelBuilder, found: Attention, asked: AttentionTile) -> None:
        self.kernel, self.found, self.asked = kernel, found, asked
        self.scores, self.result = asked.frame(ROWS, KEYS), asked.frame(ROWS, COLUMNS)
        self.row = self.result.with_unit([asked.axes[COLUMNS]])
        self.summed = element_of(found.softmax.total.op.results[0].type)

    def emit(self) -> None:
        """The loop along the keys, and what follows."""
        kernel, found, index = self.kernel, self.found, self.kernel.index
        first = number_attr(max(self._start(), float(attr_number(lowest_finite(self.summed)) or 0)), self.summed)
        zero = number_attr(0, self.summed)
        rows = (self.row.extents[0], 1)
        start = [
            index.insert(dense(value, self.summed, shape)) for value, shape in ((first, rows), (zero, rows), (zero, self.result.extents))
        ]
        queries = self._operand(found.scores, found.first.lhs, self.asked.frame(ROWS, WIDTH))
        top, total, sums = self._along_keys(start, queries)
        softmax, values = found.softmax, found.values
        kernel.known[softmax.maximum.op.results[0]] = Tile(top)
        kernel.known[softmax.total.op.results[0]] = Tile(total)
        if found.is_normalised:
            wide = kernel.evaluator(self.result).materialize(Tile(total), self.result.extents)
            sums = index.insert(arith.DivfOp(sums, wide))
        initial = Initial(values, dims=kernel.nest.consumer_dims[values.op])
        kernel.known[values.op.results[0]] = with_initial(kernel, initial, sums, self.result, sum_of(self.summed))
        kernel.finish_members(found.behind, self.result)

    def _start(self) -> float:
        """What the maximum starts from."""
        made = self.found.softmax.maximum.outputs[0].owner
        number = None
        if isinstance(made, linalg.ops.FillOp) and isinstance(constant := made.inputs[0].owner, arith.ConstantOp):
            number = attr_number(constant.value)
        if number is None:
            raise InternalError("a maximum that starts from no constant")
        return float(number)

    def _along_keys(self, start: Sequence[SSAValue], queries: SSAValue) -> Sequence[SSAValue]:
        kernel, index, axis, step = self.kernel, self.kernel.index, self.asked.axes[KEYS], self.asked.extents[KEYS]
        block = Block(arg_types=[builtin.IndexType(), *(value.type for value in start)])
        end = index.expression(kernel.axis_size(axis))
        loop = scf.ForOp(index.constant(0), end, index.constant(step), list(start), block)
        index.builder.insert(loop)
        place = kernel.enter(block)
        kernel.offset[axis] = block.args[0]
        index.builder.insert(scf.YieldOp(*self._step(queries, *block.args[1:])))
        kernel.leave(place)
        return loop.results

    def _step(self, queries: SSAValue, before: SSAValue, total: SSAValue, sums: SSAValue) -> list[SSAValue]:
        """The next maximum, sum of exponentials and sums of values."""
        kernel, found, index, softmax = self.kernel, self.found, self.kernel.index, self.found.softmax
        scores = self._scores(queries)
        axes = [self.asked.axes[KEYS]]
        combine = softmax.maximum.yielded()[0].owner
        largest = arith.MaxnumfOp if isinstance(combine, arith.MaxnumfOp) else arith.MaximumfOp
        (part,) = joined_along(kernel, softmax.maximum, self.scores, axes, [scores], join_by(largest))
        top = index.insert(largest.create(operands=[before, part], result_types=[before.type]))
        p = self._power(scores, top, self.scores.extents)
        kept = self._power(before, top, self.row.extents)
        (added,) = joined_along(kernel, softmax.total, self.scores, axes, [p], sum_of(self.summed))
        total = index.insert(arith.AddfOp(index.insert(arith.MulfOp(total, kept)), added))
        evaluator = kernel.evaluator(self.scores)
        weights = evaluator.materialize(convert(evaluator, Tile(p), kernel.element_type(self.asked.operand)), self.scores.extents)
        rescaled = index.insert(arith.MulfOp(sums, kernel.evaluator(self.result).materialize(Tile(kept), self.result.extents)))
        values = self._operand(found.values, found.second.rhs, self.asked.frame(KEYS, COLUMNS))
        return [top, total, index.insert(tile.ContractOp(weights, values, rescaled, self.asked.instruction))]

    def _power(self, value: SSAValue, top: SSAValue, extents: Sequence[int]) -> SSAValue:
        """The exponential of the difference to the maximum, as a power of two: what the scaled difference is rounded by is less than the
        sum of so many terms is (docs/numerics.md).
        """
        index = self.kernel.index
        wide = self.kernel.evaluator(self.scores).materialize(Tile(top), extents)
        below = index.insert(arith.SubfOp(value, wide))
        if self.found.softmax.exponential is math.ExpOp:
            factor = index.insert(dense(number_attr(log2(e), self.summed), self.summed, extents))
            below = index.insert(arith.MulfOp(below, factor))
        return index.insert(math.Exp2Op(below))

    def _scores(self, queries: SSAValue) -> SSAValue:
        """The tile that the maximum is of, with what is elementwise behind the contraction; minus infinity behind the last key."""
        kernel, found, index = self.kernel, self.found, self.kernel.index
        keys = self._operand(found.scores, found.first.rhs, self.asked.frame(WIDTH, KEYS))
        nothing = index.insert(dense(number_attr(0, self.summed), self.summed, self.scores.extents))
        product = index.insert(tile.ContractOp(queries, keys, nothing, self.asked.instruction))
        dims, maximum = kernel.nest.consumer_dims, found.softmax.maximum
        initial = Initial(found.scores, dims=dims[found.scores.op])
        kernel.known[found.scores.op.results[0]] = with_initial(kernel, initial, product, self.scores, sum_of(self.summed))
        evaluator = kernel.evaluator(self.scores)
        read = kernel.value(maximum.inputs[0], kernel.reached(maximum.input_maps[0], dims[maximum.op]), self.scores)
        scores = evaluator.materialize(convert(evaluator, read, self.summed), self.scores.extents)
        return self._masked(scores)

    def _masked(self, scores: SSAValue) -> SSAValue:
        """Scores of what is no key any more count as nothing; only the last step has such."""
        kernel, index, axis, step = self.kernel, self.kernel.index, self.asked.axes[KEYS], self.asked.extents[KEYS]
        size = kernel.axis_size(axis)
        if size.divisor() % step == 0:
            return scores
        nothing = identity_of("arith.maximumf", self.summed)
        is_last = index.insert(arith.CmpiOp(index.add(kernel.offset[axis], step), index.expression(size), "sgt"))
        inside, outside = Block(), Block()
        index.builder.insert(choice := scf.IfOp(is_last, [scores.type], Region(inside), Region(outside)))
        place = kernel.enter(inside)
        index.builder.insert(scf.YieldOp(mask_tail(kernel, scores, self.scores, [axis], nothing)))
        kernel.leave(place)
        outside.add_op(scf.YieldOp(scores))
        return choice.results[0]

    def _operand(self, view: StructuredOp, number: int, frame: Frame) -> SSAValue:
        """One operand's tile in the type that is multiplied, zero behind the ends of its arrays."""
        kernel = self.kernel
        dims = kernel.reached((*view.input_maps, *view.output_maps)[number], kernel.nest.consumer_dims[view.op])
        evaluator = kernel.evaluator(frame)
        source = kernel.value(view.inputs[number], dims, frame)
        value = evaluator.materialize(convert(evaluator, source, kernel.element_type(self.asked.operand)), frame.extents)
        reduced = [axis for axis in self.asked.axes[2:] if axis in frame.axes and axis not in kernel.masked_axes(view.inputs[number], dims)]
        return mask_tail(kernel, value, frame, reduced, number_attr(0, tile.tile_type(value).element_type))
