"""Where the values of a dispatched kernel's body lie along the dimensions of its root, and how long those are.

Positions are linear forms of the root's dimensions, lengths are expressions over the kernel's symbols. Reads `dispatch.kernel` (the
guarantees in docs/architecture.md), writes nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TypeAlias

from treadle.analysis.indexing import StructuredOp, structured
from treadle.analysis.kernel_slices import Slice, slice_axes, sliced_argument
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.core import AffineDimExpr, AffineMap, BlockArgument, Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.ir.locations import location_of
from treadle.ir.tables import table_of
from treadle.plan.expr import Expr, as_expr, constant, maximum, minimum, symbol
from treadle.plan.expr_tables import entry
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """`offset + sum(coefficients[d] * axis d)` over the root's iteration dimensions.

    `offset`: an expression over the kernel's symbols where an axis of an argument is one of which blocks read parts.
    """

    offset: int | Expr
    coefficients: tuple[int, ...]

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions it depends on."""
        return tuple(d for d, c in enumerate(self.coefficients) if c)


Linears: TypeAlias = tuple[Linear, ...]


@cache
def identity(rank: int) -> Linears:
    """Each dimension as itself."""
    return tuple(Linear(0, tuple(int(d == e) for e in range(rank))) for d in range(rank))


def compose(map_: AffineMap, dims: Linears, rank: int) -> Linears:
    """The results of a map (no floordiv, no mod) whose dimensions are `dims`, over `rank` root dimensions."""
    zeros = [0] * map_.num_dims
    results: list[Linear] = []
    for expr in map_.results:
        if isinstance(expr, AffineDimExpr):
            results.append(dims[expr.position])
            continue
        offset: int | Expr = expr.eval(zeros, [])
        coefficients = [0] * rank
        for d, linear in enumerate(dims):
            unit = list(zeros)
            unit[d] = 1
            if factor := expr.eval(unit, []) - expr.eval(zeros, []):
                offset += factor * linear.offset
                coefficients = [c + factor * x for c, x in zip(coefficients, linear.coefficients, strict=True)]
        results.append(Linear(offset, tuple(coefficients)))
    return tuple(results)


_COMBINED: dict[type[Operation], Callable[[Expr, Expr], Expr]] = {
    arith.AddiOp: Expr.__add__,
    arith.SubiOp: Expr.__sub__,
    arith.MuliOp: Expr.__mul__,
    # Sizes: not negative.
    arith.FloorDivSIOp: Expr.__floordiv__,
    arith.DivSIOp: Expr.__floordiv__,
    arith.DivUIOp: Expr.__floordiv__,
    arith.RemSIOp: Expr.__mod__,
    arith.RemUIOp: Expr.__mod__,
    arith.MinSIOp: minimum,
    arith.MinUIOp: minimum,
    arith.MaxSIOp: maximum,
    arith.MaxUIOp: maximum,
}


@lru_cache(maxsize=4096)
def _combination(kind: type[Operation], left: Expr, right: Expr) -> Expr:
    """What an operation makes of two expressions. Slices of a kernel's arguments begin and end at the same places, each told by operations
    of its own.
    """
    return _COMBINED[kind](left, right)


@lru_cache(maxsize=64)
def _entry(table: tuple[int, ...], place: Expr) -> Expr:
    """The number of a table at a place, whose text is long."""
    return entry(table, place)


def index_expr(value: SSAValue, symbols: Mapping[SSAValue, Expr]) -> Expr:
    """An index value of the kernel's top level as a size expression over its symbols."""
    known = symbols.get(value)
    return _index_expr(value, dict(symbols)) if known is None else known


def _index_expr(value: SSAValue, known: dict[SSAValue, Expr]) -> Expr:
    """The same. `known` gets all values on the way: what several sizes are computed from is looked at once."""
    if (found := known.get(value)) is not None:
        return found
    op = value.owner
    if isinstance(op, Operation) and (kind := type(op)) in _COMBINED:
        left, right = op.operands
        found = _combination(kind, _index_expr(left, known), _index_expr(right, known))
    elif isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.IntegerAttr):
        found = constant(op.value.value.data)
    elif isinstance(op, arith.IndexCastOp):
        found = _index_expr(op.input, known)
    elif isinstance(op, tensor.ExtractOp) and (table := table_of(op)) is not None:
        found = _entry(table, _index_expr(op.indices[0], known))
    else:
        raise InternalError(f"{op} is no size expression")
    known[value] = found
    return found


def kernel_symbols(kernel: dispatch.KernelOp) -> dict[SSAValue, Expr]:
    """The kernel's index arguments as symbols."""
    names = (*dispatch.texts(kernel.symbols), *kernel.blocks, *kernel.reads)
    return {arg: symbol(name) for arg, name in zip(kernel.body.block.args[kernel.tensor_count :], names, strict=True)}


class KernelSizes:
    """The sizes of what a kernel's body holds, as expressions over the kernel's symbols, each worked out once. `symbols`: index values
    that are known, the kernel's index arguments among them.
    """

    def __init__(self, kernel: dispatch.KernelOp) -> None:
        self.kernel, self.symbols = kernel, kernel_symbols(kernel)
        self._arguments = dispatch.text_lists(kernel.arg_shapes)
        self._shapes: dict[SSAValue, tuple[Expr, ...]] = {}
        self._loops: dict[Operation, tuple[Expr, ...]] = {}

    def index(self, value: SSAValue) -> Expr:
        """An index value of the kernel's top level."""
        return _index_expr(value, self.symbols)

    def shape_of(self, value: SSAValue) -> tuple[Expr, ...]:
        """Sizes of a tensor of the kernel's body."""
        if (found := self._shapes.get(value)) is None:
            found = self._shapes[value] = self._shape_of(value)
        return found

    def _shape_of(self, value: SSAValue) -> tuple[Expr, ...]:
        if isinstance(value, BlockArgument):
            return tuple([as_expr(text) for text in self._arguments[value.index]])
        op = value.owner
        if isinstance(op, tensor.EmptyOp):
            dynamic = iter(op.dynamic_sizes)
            shape = op.tensor.type.get_shape()
            return tuple([self.index(next(dynamic)) if s == builtin.DYNAMIC_INDEX else constant(s) for s in shape])
        if isinstance(op, linalg.ops.GenericOp | linalg.ops.FillOp):
            return self.shape_of(op.outputs[result_number(value)])
        if isinstance(op, tensor.ExtractSliceOp):
            axes = slice_axes(op, self.index)
            return tuple(axis.size for axis in sorted(axes, key=lambda axis: axis.part_axis) if axis.part_axis >= 0)
        raise InternalError(f"a kernel's body holds {op}")

    def loops(self, view: StructuredOp) -> tuple[Expr, ...]:
        """Extent of each dimension that a generic of the kernel's body iterates over."""
        if (found := self._loops.get(view.op)) is None:
            found = self._loops[view.op] = self._extents(view)
        return found

    def _extents(self, view: StructuredOp) -> tuple[Expr, ...]:
        sizes: list[Expr | None] = [None] * view.rank
        unit = identity(view.rank)
        for value, map_ in view.operands():
            if not isinstance(value.type, builtin.TensorType):
                continue
            for size, linear in zip(self.shape_of(value), compose(map_, unit, view.rank), strict=True):
                dims = linear.dims
                if len(dims) == 1 and linear.offset == 0 and linear.coefficients[dims[0]] == 1:
                    if sizes[dims[0]] is None or size.is_constant:
                        sizes[dims[0]] = size
        known = tuple([size for size in sizes if size is not None])
        if len(known) != len(sizes):
            raise InternalError(f"an iteration size of kernel {self.kernel.sym_name.data} cannot be read off its operands")
        return known


def result_number(value: SSAValue) -> int:
    """Which of its operation's results a value is."""
    if not isinstance(value, OpResult):
        raise InternalError("a block argument is no result")
    return value.index


def roots_of(kernel: dispatch.KernelOp, generics: Sequence[StructuredOp]) -> tuple[StructuredOp, ...]:
    """Of a kernel's generics those that carry `dispatch.root`, at least one."""
    found = tuple(view for view in generics if dispatch.ROOT in view.op.attributes)
    if not found:
        raise InternalError(f"kernel {kernel.sym_name.data} has no root")
    return found


def root_results(roots: Sequence[StructuredOp]) -> dict[SSAValue, Linears]:
    """Where each result of the roots lies along their dimensions."""
    return {
        result: compose(map_, identity(root.rank), root.rank)
        for root in roots
        for result, map_ in zip(root.op.results, root.output_maps, strict=True)
    }


def consumer_dims(roots: Sequence[StructuredOp], generics: Sequence[StructuredOp]) -> dict[Operation, Linears]:
    """For each consumer of the roots among a kernel's generics, its iteration dimensions as linear forms of theirs."""
    known = root_results(roots)
    found: dict[Operation, Linears] = {}
    for view in generics:
        if dispatch.ROOT in view.op.attributes:
            continue
        dims: list[Linear | None] = [None] * view.rank
        for value, map_ in zip(view.inputs, view.input_maps, strict=True):
            for linear, position in zip(known.get(value, ()), compose(map_, identity(view.rank), view.rank), strict=False):
                dims[position.dims[0]] = linear
        if all(d is None for d in dims):
            if view.rank or not any(v in known for v in view.inputs):
                continue
        full = tuple(d for d in dims if d is not None)
        if len(full) != view.rank:
            raise InternalError(f"a consumer at {location_of(view.op)} iterates over more than its root's results")
        found[view.op] = full
        for result, map_ in zip(view.op.results, view.output_maps, strict=True):
            known[result] = compose(map_, full, roots[0].rank)
    return found


def producer_dims(producer: StructuredOp, result: int, dims: Linears, rank: int) -> Linears:
    """Iteration dimensions of an all-parallel generic where its result is read at `dims`."""
    positions = compose(producer.output_maps[result], identity(producer.rank), producer.rank)
    found: list[Linear] = [Linear(0, (0,) * rank)] * producer.rank
    for linear, position in zip(dims, positions, strict=True):
        found[position.dims[0]] = linear
    return tuple(found)


def whole_positions(op: Slice, dims: Linears, rank: int, symbols: dict[SSAValue, Expr]) -> Linears:
    """Where the part of a slice that is read or written at `dims` lies along the axes of the whole."""
    found: list[Linear] = []
    for axis in slice_axes(op, lambda index: index_expr(index, symbols)):
        inner = dims[axis.part_axis] if axis.part_axis >= 0 else Linear(0, (0,) * rank)
        offset = axis.offset + axis.step * inner.offset
        number = offset.as_int()
        found.append(Linear(offset if number is None else number, tuple(axis.step * c for c in inner.coefficients)))
    return tuple(found)


def member_dims(members: Mapping[Operation, tuple[int, ...]], rank: int) -> dict[Operation, Linears]:
    """The iteration dimensions of each member of a kernel, told by the loops that they are, as linear forms of these."""
    unit = identity(rank)
    return {op: tuple(unit[loop] for loop in loops) for op, loops in members.items()}


def reads(value: SSAValue, dims: Linears, rank: int, symbols: dict[SSAValue, Expr]) -> Iterator[tuple[BlockArgument, Linears]]:
    """The kernel arguments that `value`, read at `dims`, is computed from."""
    if (found := sliced_argument(value)) is not None:
        argument, part = found
        yield argument, dims if part is None else whole_positions(part, dims, rank, symbols)
        return
    op = value.owner
    view = structured(op) if isinstance(op, linalg.ops.GenericOp) else None
    if view is None:
        return
    inner = producer_dims(view, result_number(value), dims, rank)
    for source, map_ in zip(view.inputs, view.input_maps, strict=True):
        if isinstance(source.type, builtin.TensorType):
            yield from reads(source, compose(map_, inner, rank), rank, symbols)
