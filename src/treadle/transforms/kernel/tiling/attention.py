"""Tiling of attention: a workgroup has rows of queries, and walks the keys with an online softmax between its two contractions.

The tiles of scores and exponentials stay in registers: of each row the greatest score so far, the sum of exponentials and the sums of
values are carried along, rescaled where the maximum grows. The loop is the one that users write in the kernel language
(examples/attention.py), so that what follows (roles, rings, steps that overlap, the proof) is the same.

Source: T. Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022).
"""

from collections.abc import Sequence
from math import e, inf, log2, nan

from treadle.analysis.attention_structure import Attention
from treadle.analysis.hidden_keys import Hidden, hidden_keys
from treadle.analysis.identities import identity_of, lowest_finite
from treadle.analysis.indexing import StructuredOp
from treadle.analysis.score_scale import LOWEST, score_scale
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number, element_of, number_attr
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, math, scf
from treadle.plan.expr import Expr, ceil_div, constant, product
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.builder import UNIT, Frame, KernelBuilder
from treadle.transforms.kernel.tiling.index_math import delinearize
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
SHORT_AXIS = 65535
"""The second axis of every machine's grids is at least as long."""


def build_attention(kernel: KernelBuilder, asked: AttentionTile) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid."""
    if kernel.nest.attention is None:
        raise InternalError("a kernel of attention is wanted")
    hidden = _hidden(kernel, kernel.nest.attention, asked)
    grid = _place(kernel, asked, last_first=hidden is not None and hidden.first is None)
    _Body(kernel, kernel.nest.attention, asked, hidden).emit()
    return grid


def _hidden(kernel: KernelBuilder, found: Attention, asked: AttentionTile) -> Hidden | None:
    """What rows do not see of the keys, where tiles of rows are walked as the text counts them."""
    axis = kernel.nest.axes[asked.axes[ROWS]] if asked.axes[ROWS] != UNIT else None
    if axis is None or axis.factor != 1 or len(axis.dims) != 1:
        return None
    (row,) = axis.dims
    hidden = hidden_keys(found, row)
    sees_itself = hidden is not None and (hidden.beyond is None or hidden.beyond >= 0) and (hidden.first is None or hidden.first <= 0)
    return hidden if sees_itself else None


def _place(kernel: KernelBuilder, asked: AttentionTile, *, last_first: bool) -> tuple[Expr, Expr, Expr]:
    """Set the offsets of all axes; the grid. Workgroups that read the same keys follow each other, where no number of tiles that only the
    runtime knows has to divide a workgroup's number for that; and no other axis of the grid than the first is longer than machines take.
    `last_first`: of a matrix, tiles of the last rows come first, where their number is known (the end of a loop that another size's
    quotient decides is hard to prove). They have the most keys: what is left for the end is short.
    """
    index, nest, rows = kernel.index, kernel.nest, asked.axes[ROWS]
    for axis in asked.axes:
        kernel.offset[axis] = index.constant(0)
    others = [number for number, axis in enumerate(nest.axes) if not axis.is_reduction and number not in asked.axes]
    counts = [nest.axes[number].size for number in others]
    tiles, batch = ceil_div(kernel.axis_size(rows), asked.extents[ROWS]), product(counts)
    first, second = (index.insert(tile.ProgramIdOp(axis)) for axis in (0, 1))
    if (known := batch.as_int()) is not None and known <= SHORT_AXIS:
        grid, row, rest = (tiles, batch, constant(1)), first, second
    elif tiles.is_constant:
        grid = (tiles * batch, constant(1), constant(1))
        rest, row = delinearize(index, first, [index.expression(count) for count in (batch, tiles)])
    else:
        grid, row, rest = (batch, tiles, constant(1)), second, first
    if rows != UNIT:
        row = index.subtract(index.expression(tiles - 1), row) if last_first and tiles.is_constant else row
        kernel.offset[rows] = index.multiply(row, asked.extents[ROWS])
    if others:
        kernel.offset.update(zip(others, delinearize(index, rest, [index.expression(count) for count in counts]), strict=True))
    return grid


class _Body:
    """One workgroup's program."""

    def __init__(self, kernel: KernelBuilder, found: Attention, asked: AttentionTile, hidden: Hidden | None) -> None:
        self.kernel, self.found, self.asked = kernel, found, asked
        self.scores, self.result = asked.frame(ROWS, KEYS), asked.frame(ROWS, COLUMNS)
        self.row = self.result.with_unit([asked.axes[COLUMNS]])
        self.summed = element_of(found.softmax.total.op.results[0].type)
        self.hidden = hidden
        self.scale = score_scale(found)

    def emit(self) -> None:
        """The loop along the keys, and what follows."""
        kernel, found, index = self.kernel, self.found, self.kernel.index
        lowest = attr_number(lowest_finite(self.summed)) or 0
        if self.scale is not None and self.scale.exponent > 1:
            lowest = LOWEST
        first = number_attr(max(found.start, lowest), self.summed)
        zero = number_attr(0, self.summed)
        rows = [self.row.extents[0], 1]
        start = [
            index.insert(dense(value, self.summed, shape)) for value, shape in ((first, rows), (zero, rows), (zero, self.result.extents))
        ]
        queries = self._operand(found.scores, found.first.lhs, self.asked.frame(ROWS, WIDTH))
        top, total, sums = self._along_keys(start, queries)
        softmax, values = found.softmax, found.values
        if found.start == -inf and any(value.owner in self._of_rows() for value in kernel.yielded()):
            top, total = self._unseen(top, total, zero)
        kernel.known[softmax.maximum.op.results[0]] = Tile(top if self.scale is None else self._times(top, self.scale.factor))
        kernel.known[softmax.total.op.results[0]] = Tile(total)
        if found.is_normalised:
            wide = kernel.evaluator(self.result).materialize(Tile(total), self.result.extents)
            sums = index.insert(arith.DivfOp(sums, wide))
        initial = Initial(values, dims=kernel.nest.consumer_dims[values.op])
        kernel.known[values.op.results[0]] = with_initial(kernel, initial, sums, self.result, sum_of(self.summed))
        self._finish()

    @property
    def _sums(self) -> tuple[Operation, Operation]:
        return self.found.softmax.maximum.op, self.found.softmax.total.op

    def _of_rows(self) -> set[Operation]:
        """The members that compute one number of each row."""
        found = self.found
        whole = {found.columns, found.keys, found.width}
        return {*self._sums, *(op for op, loops in found.members.items() if not whole.intersection(loops))}

    def _unseen(self, top: SSAValue, total: SSAValue, zero: Attribute) -> tuple[SSAValue, SSAValue]:
        """The maximum and the sum as the text has them, minus infinity and NaN, of rows that see no key: nothing has been added there."""
        index, rows = self.kernel.index, [self.row.extents[0], 1]

        def tile_of(number: float) -> SSAValue:
            return index.insert(dense(number_attr(number, self.summed), self.summed, rows))

        is_none = index.insert(arith.CmpfOp(total, index.insert(dense(zero, self.summed, rows)), "oeq"))
        seen_top, seen_total = arith.SelectOp(is_none, tile_of(-inf), top), arith.SelectOp(is_none, tile_of(nan), total)
        return index.insert(seen_top), index.insert(seen_total)

    def _finish(self) -> None:
        """What is computed behind the loop, of rows and of results, and the kernel's results."""
        kernel, found = self.kernel, self.found
        results = kernel.yielded()
        of_rows = self._of_rows()
        wanted, pending = set[Operation](), [value.owner for value in results] + [*found.behind]
        while pending:
            op = pending.pop()
            if isinstance(op, Operation) and op not in wanted:
                wanted.add(op)
                pending += [value.owner for value in op.operands] if op in of_rows or op in found.behind else []
        for op in [op for op in found.members if op in wanted and op not in self._sums and (op in found.behind or op in of_rows)]:
            kernel.finish_members([op], self.row if op in of_rows else self.result, first=len(results))
        for number, value in enumerate(results):
            kernel.store_result(number, self.row if value.owner in of_rows else self.result)

    def _along_keys(self, start: Sequence[SSAValue], queries: SSAValue) -> Sequence[SSAValue]:
        kernel, index, axis, step = self.kernel, self.kernel.index, self.asked.axes[KEYS], self.asked.extents[KEYS]
        block = Block(arg_types=[builtin.IndexType(), *(value.type for value in start)])
        begin, end, rows = index.constant(0), index.expression(kernel.axis_size(axis)), self.asked.extents[ROWS]
        if self.hidden is not None and self.hidden.beyond is not None:
            end = index.minimum(end, index.add(kernel.offset[self.asked.axes[ROWS]], rows + self.hidden.beyond))
        if self.hidden is not None and self.hidden.first is not None:
            # Places are not negative, nor is anything on the way to them.
            window = index.constant(-self.hidden.first)
            first = index.subtract(index.insert(arith.MaxSIOp(kernel.offset[self.asked.axes[ROWS]], window)), window)
            begin = index.multiply(index.divide(first, index.constant(step)), step)
        loop = scf.ForOp(begin, end, index.constant(step), list(start), block)
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
        p = self._power(scores, top)
        kept = self._kept(before, top)
        (added,) = joined_along(kernel, softmax.total, self.scores, axes, [p], sum_of(self.summed))
        total = index.insert(arith.AddfOp(index.insert(arith.MulfOp(total, kept)), added))
        evaluator = kernel.evaluator(self.scores)
        weights = evaluator.materialize(convert(evaluator, Tile(p), kernel.element_type(self.asked.operand)), self.scores.extents)
        rescaled = index.insert(arith.MulfOp(sums, kernel.evaluator(self.result).materialize(Tile(kept), self.result.extents)))
        values = self._operand(found.values, found.second.rhs, self.asked.frame(KEYS, COLUMNS))
        return [top, total, index.insert(tile.ContractOp(weights, values, rescaled, self.asked.instruction))]

    def _power(self, value: SSAValue, top: SSAValue) -> SSAValue:
        """The exponential of the difference to the maximum, as a power of two: what the scaled difference is rounded by is less than the
        sum of so many terms is (docs/numerics.md).
        """
        index = self.kernel.index
        evaluator = self.kernel.evaluator(self.scores)
        if self.scale is not None:
            limit = self._times(top, self.scale.exponent)
            scaled = self._times(value, self.scale.exponent)
            return index.insert(math.Exp2Op(index.insert(arith.SubfOp(scaled, evaluator.materialize(Tile(limit), self.scores.extents)))))
        below = index.insert(arith.SubfOp(value, evaluator.materialize(Tile(top), self.scores.extents)))
        if self.found.softmax.exponential is math.ExpOp:
            below = self._times(below, log2(e))
        return index.insert(math.Exp2Op(below))

    def _kept(self, before: SSAValue, top: SSAValue) -> SSAValue:
        """What is left of a row's sums below its next maximum. It is scaled behind the difference, which is 0 where a row has seen no key
        yet: a fused multiplication and difference of the lowest numbers is what their product is rounded by, and its power infinite.
        """
        index = self.kernel.index
        exponent = self.scale.exponent if self.scale is not None else log2(e) if self.found.softmax.exponential is math.ExpOp else 1.0
        below = index.insert(arith.SubfOp(before, top))
        return index.insert(math.Exp2Op(self._times(below, exponent) if exponent != 1 else below))

    def _times(self, value: SSAValue, factor: float) -> SSAValue:
        """A tile times a number."""
        index = self.kernel.index
        return index.insert(arith.MulfOp(value, index.insert(dense(number_attr(factor, self.summed), self.summed, _shape(value)))))

    def _scores(self, queries: SSAValue) -> SSAValue:
        """The tile that the maximum is of, with what is elementwise behind the contraction; minus infinity behind the last key."""
        kernel, found, index = self.kernel, self.found, self.kernel.index
        keys = self._operand(found.scores, found.first.rhs, self.asked.frame(WIDTH, KEYS))
        nothing = index.insert(dense(number_attr(0, self.summed), self.summed, self.scores.extents))
        product = index.insert(tile.ContractOp(queries, keys, nothing, self.asked.instruction))
        initial = Initial(found.scores, dims=kernel.nest.consumer_dims[found.scores.op])
        kernel.known[found.scores.op.results[0]] = with_initial(kernel, initial, product, self.scores, sum_of(self.summed))
        return self._masked()

    def _read(self) -> SSAValue:
        """The tile that the maximum is of, as the operations behind the contraction make it."""
        kernel, maximum = self.kernel, self.found.softmax.maximum
        dims = kernel.reached(maximum.input_maps[0], kernel.nest.consumer_dims[maximum.op])
        evaluator = kernel.evaluator(self.scores)
        read = kernel.value(maximum.inputs[0], dims, self.scores)
        return evaluator.materialize(convert(evaluator, read, self.summed), self.scores.extents)

    def _masked(self) -> SSAValue:
        """The tile of scores, minus infinity where there is no key any more; only the last step has such. What a selection by places hides
        is computed only where tiles lie across the last places that rows see.
        """
        kernel, index, axis, step = self.kernel, self.kernel.index, self.asked.axes[KEYS], self.asked.extents[KEYS]
        size, hidden = kernel.axis_size(axis), self.hidden
        kernel.stands_for = products = {} if self.scale is None else self.scale.products
        known = None if hidden is not None and hidden.selections else self._read()
        if known is not None and size.divisor() % step == 0:
            kernel.stands_for = {}
            return known
        whole, row = index.expression(size), kernel.offset.get(self.asked.axes[ROWS])
        if known is None and hidden is not None and hidden.beyond is not None and row is not None:
            whole = index.minimum(whole, index.add(row, hidden.beyond + 1))
        is_last = index.insert(arith.CmpiOp(index.add(kernel.offset[axis], step), whole, "sgt"))
        if known is None and hidden is not None and hidden.first is not None and row is not None:
            last_row = index.add(row, self.asked.extents[ROWS] - 1)
            is_front = arith.CmpiOp(index.add(kernel.offset[axis], -hidden.first), last_row, "slt")
            is_last = index.insert(arith.OrIOp(is_last, index.insert(is_front)))
        inside, outside, kind = Block(), Block(), builtin.TensorType(self.summed, list(self.scores.extents))
        index.builder.insert(choice := scf.IfOp(is_last, [kind], Region(inside), Region(outside)))
        nothing = identity_of("arith.maximumf", self.summed)
        place = kernel.enter(inside)
        index.builder.insert(scf.YieldOp(mask_tail(kernel, self._read() if known is None else known, self.scores, [axis], nothing)))
        kernel.leave(place)
        place = kernel.enter(outside)
        kernel.stands_for = products if hidden is None else {**products, **hidden.selections}
        index.builder.insert(scf.YieldOp(self._read() if known is None else known))
        kernel.stands_for = {}
        kernel.leave(place)
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


def _shape(value: SSAValue) -> Sequence[int]:
    return tile.tile_type(value).get_shape()
