"""Where the parts of a split loop begin and how long they are, as operations."""

from treadle.analysis.indexing import StructuredOp, map_dims
from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.split_attribute import SplitLoop
from treadle.ir.core import DYNAMIC_INDEX, AffineExpr, AffineMap, Block, Operation, SSAValue
from treadle.ir.dialects import affine, arith, builtin, tensor
from treadle.ir.emitter import at_end, before
from treadle.plan.expr import Expr, ceil_div, constant, maximum, minimum, parse, symbol
from treadle.records import dataclass
from treadle.transforms.tensor.generics import insert_before
from treadle.transforms.tensor.tensors import tensor_type

Extent = SSAValue | int


def index_value(extent: Extent, anchor: Operation) -> SSAValue:
    """An extent as a value, a constant before `anchor` where it is a number."""
    if isinstance(extent, SSAValue):
        return extent
    op = arith.ConstantOp(builtin.IntegerAttr(extent, builtin.IndexType()))
    insert_before(anchor, op)
    return op.result


def static_and_dynamic(extents: "list[Extent]") -> tuple[list[int], list[SSAValue]]:
    """A list of extents as operations have it: numbers with the dynamic marker, and the values that it stands for."""
    static = [extent if isinstance(extent, int) else DYNAMIC_INDEX for extent in extents]
    return static, [extent for extent in extents if isinstance(extent, SSAValue)]


def loop_extents(view: StructuredOp, anchor: Operation) -> list[Extent]:
    """The extent of each loop: a number, or the size of an operand's axis, read before `anchor`."""
    found: dict[int, Extent] = {}
    for value, map_ in view.operands():
        for axis, expr in enumerate(map_.results):
            dims = map_dims(AffineMap(map_.num_dims, 0, (expr,)))
            if not dims or isinstance(found.get(dims[0]), int):
                continue
            size = tensor_type(value).get_shape()[axis]
            if size != DYNAMIC_INDEX:
                found[dims[0]] = size
            elif dims[0] not in found:
                dim = tensor.DimOp(value, index_value(axis, anchor))
                insert_before(anchor, dim)
                found[dims[0]] = dim.result
    return [found[dim] for dim in range(view.rank)]


@dataclass(frozen=True, slots=True)
class Part:
    """Loop `dim` of `extent` in `count` parts of whole `step`s. Parts of known sizes differ by one step at most; else all but the last ones
    have one length, so that workgroups divide nothing.
    """

    dim: int
    extent: Extent
    count: Extent
    step: int

    def bounds(self, index: SSAValue, block: Block) -> tuple[Extent, Extent]:
        """First element and number of elements of part `index`, computed at the end of `block`."""
        if isinstance(self.extent, int) and isinstance(self.count, int):
            return _static_bounds(self.extent, self.count, self.step, index, block)
        names: dict[str, Extent] = {"k": self.extent, "s": self.count, "p": index}
        values = {name: value for name, value in names.items() if isinstance(value, SSAValue)}
        k, s, p = (constant(value) if isinstance(value, int) else symbol(name) for name, value in names.items())
        length = maximum(1, ceil_div(ceil_div(k, self.step), s)) * self.step
        emit = at_end(block, values)
        return emit.expression(p * length), emit.expression(maximum(0, minimum(k - p * length, length)))


def _static_bounds(extent: int, count: int, step: int, index: SSAValue, block: Block) -> tuple[Extent, Extent]:
    each, more = divmod(-(-extent // step), count)
    p, even = AffineExpr.dimension(0), more == 0

    def steps_before(part: AffineExpr) -> AffineExpr:
        """`part * steps // count`, of numbers that are not larger than an index of an element."""
        return part * each if even else part * each + (part * more) // count

    first = steps_before(p) * step
    start = affine.ApplyOp([index], builtin.AffineMapAttr(AffineMap(1, 0, (first,))))
    if even and extent % step == 0:
        block.add_op(start)
        return start.result, each * step
    length = AffineExpr.constant(each * step) if even else steps_before(p + 1) * step + first * -1
    size = affine.MinOp([index], builtin.AffineMapAttr(AffineMap(1, 0, (first * -1 + extent, length))))
    least = MaxOp([size.result], builtin.AffineMapAttr(AffineMap(1, 0, (AffineExpr.constant(0), p))))
    block.add_ops([size, least, start])
    return start.result, least.result


def _emitted(expr: Expr, values: dict[str, SSAValue], anchor: Operation) -> SSAValue:
    return before(anchor, values).expression(expr)


def part_of(loop: SplitLoop, view: StructuredOp, extents: list[Extent], anchor: Operation) -> Part:
    """How a loop is split: not into more parts than there are steps, and into one at least."""
    names = {f"r{number}": dim for number, dim in enumerate(view.reduction_dims)}
    names |= {f"n{number}": dim for number, dim in enumerate(view.parallel_dims)}
    known = {name: extent for name, dim in names.items() if isinstance(extent := extents[dim], int)}
    values = {name: extent for name, dim in names.items() if isinstance(extent := extents[dim], SSAValue)}
    dim = view.reduction_dims[loop.loop]
    own = symbol(f"r{loop.loop}").substitute(known)
    count = maximum(1, minimum(parse(loop.parts).substitute(known), ceil_div(own, loop.step)))
    number = count.as_int()
    return Part(dim, extents[dim], number if number is not None else _emitted(count, values, anchor), loop.step)
