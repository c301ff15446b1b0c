"""Tiling of contractions as streaming reductions: the large operand goes straight from memory into registers, several steps ahead of
its use.

Accumulators stay spread over the threads that share the work along k, and are joined once at the end. The loads of a step are issued right
after the arithmetic that frees their registers, so as many bytes are in flight all the time. Contractions that share the small operand run
in one loop, each with a large operand and accumulators of its own.
"""

from collections.abc import Sequence

from treadle.analysis.indexing import Contraction, StructuredOp
from treadle.dialects import tile
from treadle.ir.builtin import is_integer, number_attr
from treadle.ir.core import Attribute, Block, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.builder import UNIT, Frame, KernelBuilder
from treadle.transforms.kernel.tiling.elementwise import grid_of, place_tiles
from treadle.transforms.kernel.tiling.joins import Initial, joined_along, sum_of, with_initial
from treadle.transforms.kernel.tiling.loops import reduction_loops
from treadle.transforms.kernel.tiling.masks import mask_tail
from treadle.transforms.kernel.tiling.merging import finish
from treadle.transforms.kernel.tiling.scalars import Tile, convert, dense


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Main axes (UNIT: extent one) and tile extents along m, n and k, steps of k in flight, the accumulators' type.

    `large`: input number of the operand that is loaded ahead; `small`: the other one.
    """

    axes: tuple[int, ...]
    extents: tuple[int, ...]
    ahead: int
    accumulator_type: Attribute
    large: int
    small: int


class _Stream:
    """The loop along k of one kernel. Lists of tiles have one entry a root."""

    def __init__(self, kernel: KernelBuilder, kind: Contraction, plan: StreamPlan, frame: Frame) -> None:
        self.kernel = kernel
        self.kind = kind
        self.plan = plan
        self.frame = frame
        self.k_axis, self.k_extent = plan.axes[2], plan.extents[2]
        self.multiply = arith.MuliOp if is_integer(plan.accumulator_type) else arith.MulfOp
        self.add = sum_of(plan.accumulator_type)

    def operand(self, root: StructuredOp, number: int) -> SSAValue:
        """An operand's tile at the current place, extent 1 along axes it does not depend on, zero past the end of k."""
        kernel, axes = self.kernel, self.frame.axes
        dims = kernel.reached(root.input_maps[number])
        evaluator = kernel.evaluator(self.frame)
        source = kernel.value(root.inputs[number], dims, self.frame)
        shape = source.shape if isinstance(source, Tile) else self.frame.with_unit([a for a in axes if a != self.k_axis]).extents
        value = evaluator.materialize(source, shape)
        if self.k_axis in kernel.masked_axes(root.inputs[number], dims):
            return value
        whole = tuple(e if a == self.k_axis else s for a, e, s in zip(axes, self.frame.extents, shape, strict=True))
        value = evaluator.materialize(Tile(value), whole)
        return mask_tail(kernel, value, Frame(axes, whole), [self.k_axis], number_attr(0, tile.tile_type(value).element_type))

    def widened(self, number: int, value: SSAValue) -> SSAValue:
        """A tile of operand `number` in the type of the accumulators and of their extents."""
        cast = self.kind.lhs_cast if number == self.kind.lhs else self.kind.rhs_cast
        evaluator = self.kernel.evaluator(self.frame)
        found = convert(evaluator, Tile(value), self.plan.accumulator_type, unsigned=cast == "arith.extui")
        return evaluator.materialize(found, self.frame.extents)

    def fetch(self, place: SSAValue) -> list[SSAValue]:
        """Begin to load the large operands' tiles at `place` along k."""
        with self.kernel.at(self.k_axis, place):
            return [self.operand(root, self.plan.large) for root in self.kernel.nest.roots]

    def accumulate(self, accumulators: Sequence[SSAValue], loaded: Sequence[SSAValue], place: SSAValue) -> list[SSAValue]:
        """Add the products of loaded tiles with the small operand's at `place`."""
        insert = self.kernel.index.insert
        with self.kernel.at(self.k_axis, place):
            small = self.widened(self.plan.small, self.operand(self.kernel.nest.root, self.plan.small))
        kind = builtin.TensorType(self.plan.accumulator_type, list(self.frame.extents))
        found: list[SSAValue] = []
        for total, large in zip(accumulators, loaded, strict=True):
            product = insert(self.multiply.create(operands=[self.widened(self.plan.large, large), small], result_types=[kind]))
            found += self.add(insert, [total], [product])
        return found

    def run(self, accumulators: Sequence[SSAValue]) -> list[SSAValue]:
        """All of k: `ahead` steps an iteration, each of which ends with the fetch for the same step of the next iteration."""
        index, ahead, extent = self.kernel.index, self.plan.ahead, self.k_extent
        size = self.kernel.axis_size(self.k_axis)
        known = size.as_int()
        if known is not None:
            ahead = max(1, min(ahead, -(-known // extent)))
        turn = ahead * extent
        shifts = [index.constant(i * extent) for i in range(ahead)]
        tiles = [t for shift in shifts for t in self.fetch(shift)]
        count = len(accumulators)
        totals: list[SSAValue] = list(accumulators)
        if known is None or known > turn:
            block = Block(arg_types=[builtin.IndexType(), *(v.type for v in (*totals, *tiles))])
            # The last turn has nothing left to fetch and stands behind the loop.
            loop = scf.ForOp(index.constant(0), index.expression(size - turn), index.constant(turn), [*totals, *tiles], block)
            index.builder.insert(loop)
            place = self.kernel.enter(block)
            inner, held = list(block.args[1 : 1 + count]), block.args[1 + count :]
            following: list[SSAValue] = []
            for number, shift in enumerate(shifts):
                here = index.add(block.args[0], shift)
                inner = self.accumulate(inner, held[number * count : (number + 1) * count], here)
                following += self.fetch(index.add(block.args[0], index.add(shift, index.constant(turn))))
            index.builder.insert(scf.YieldOp(*inner, *following))
            self.kernel.leave(place)
            results: list[SSAValue] = [*loop.results]
            totals, tiles = results[:count], results[count:]
            last = index.expression((size + (turn - 1)) // turn * turn - turn)
            shifts = [index.add(last, s) for s in shifts]
        for number, shift in enumerate(shifts):
            totals = self.accumulate(totals, tiles[number * count : (number + 1) * count], shift)
        return totals

    def finish(self, root: StructuredOp, accumulators: SSAValue) -> None:
        """A root's result: the accumulators of all threads along k and what they start from."""
        (total,) = joined_along(self.kernel, root, self.frame, [self.k_axis], [accumulators], self.add)
        kept = self.frame.with_unit([self.k_axis])
        self.kernel.known[root.op.results[0]] = with_initial(self.kernel, Initial(root), total, kept, self.add)


def build_streaming(kernel: KernelBuilder, kind: Contraction, plan: StreamPlan) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid."""
    nest, index = kernel.nest, kernel.index
    m_axis, n_axis, k_axis = plan.axes
    kernel.steps[k_axis] = plan.ahead * plan.extents[2]
    extents = [1] * len(nest.axes)
    for axis, extent in zip(plan.axes, plan.extents, strict=True):
        if axis != UNIT:
            extents[axis] = extent
    parallel = [i for i, axis in enumerate(nest.axes) if not axis.is_reduction]
    place_tiles(kernel, parallel, [extents[i] for i in parallel])
    tiled = [a for a in (m_axis, n_axis) if a != UNIT and extents[a] > 1]
    # The frame has k whatever its extent: a step of one element too is added up along it, and a place along k is where tiles start.
    frame = Frame((*tiled, k_axis), (*(extents[a] for a in tiled), plan.extents[2]))
    stream = _Stream(kernel, kind, plan, frame)
    outer = [(i, 1) for i, axis in enumerate(nest.axes) if axis.is_reduction and i != k_axis]
    starts = [index.insert(dense(number_attr(0, plan.accumulator_type), plan.accumulator_type, frame.extents)) for _ in nest.roots]
    for root, accumulators in zip(nest.roots, reduction_loops(kernel, outer, starts, stream.run), strict=True):
        stream.finish(root, accumulators)
    finish(kernel, frame.with_unit([k_axis]))
    workgroups, _, _ = grid_of(nest, parallel, [extents[i] for i in parallel])
    return workgroups, constant(1), constant(1)
