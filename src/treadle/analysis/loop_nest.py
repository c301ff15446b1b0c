"""The loop nest of a dispatched kernel: its roots' iteration axes, and what every read and write looks like along them.

Reads `dispatch.kernel` (the guarantees in docs/architecture.md), writes nothing. Axes of extent one are dropped and axes that every
access walks
as one are merged, so that decisions see the shape of the memory traffic and not the rank of the user's tensors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from treadle.analysis.convolution import Image, folding, image_of, padded_source
from treadle.analysis.indexing import Computation, Contraction, StructuredOp, classify, structured
from treadle.analysis.kernel_slices import Slice, slice_axes, sliced_argument, stored_part
from treadle.analysis.kernel_structure import Unbuildable, unbuildable
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.placed_arrays import Corner, Cut, placed
from treadle.analysis.row_structure import Rows, needs_rows, rows_of
from treadle.dialects import dispatch
from treadle.errors import NOT_ONE_KERNEL, UNSUPPORTED, InternalError, TreadleError
from treadle.ir.builtin import array_ints, element_of
from treadle.ir.core import AffineMap, Attribute, BlockArgument, Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.ir.locations import location_of
from treadle.layout.windows import Windows
from treadle.plan.block_bounds import greatest
from treadle.plan.expr import Expr, as_expr, constant, maximum, minimum, symbol

Role = Literal["batch", "m", "n", "k", "parallel", "reduction"]


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


def identity(rank: int) -> Linears:
    """Each dimension as itself."""
    return tuple(Linear(0, tuple(int(d == e) for e in range(rank))) for d in range(rank))


def compose(map_: AffineMap, dims: Linears, rank: int) -> Linears:
    """The results of a map (no floordiv, no mod) whose dimensions are `dims`, over `rank` root dimensions."""
    zeros = [0] * map_.num_dims
    results: list[Linear] = []
    for expr in map_.results:
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


LARGE = 1 << 20
"""A runtime size for which a machine is full."""
INITIAL = -2
"""Instead of the number of an input: what a root starts from."""


@dataclass(frozen=True, slots=True)
class Access:
    """A kernel argument or result along the root's dimensions: strides and offset in elements, and where a block's part of it lies.

    `number` counts arguments and results apart. `align`: bytes the base is aligned to. `input_number`: which of its inputs the root
    number `root` reads here, -1 for all other accesses (initial values, which `is_initial` tells; what consumers read; results). `image`:
    it is read at windows; the strides are those of neighbours, while no edge of a window or of the image comes between.
    """

    number: int
    is_result: bool
    element: Attribute
    strides: tuple[Expr, ...]
    offset: Expr
    align: int
    input_number: int = -1
    root: int = 0
    is_initial: bool = False
    cuts: tuple[Cut, ...] = ()
    corners: tuple[Corner, ...] = ()
    image: Image | None = None

    def walks_as_one(self, outer: int, inner: int, size: Expr) -> bool:
        """Whether two neighbouring dimensions, the inner one of this size, may be one axis."""
        folds = self.image is not None and size.is_constant and self.image.axis_of(outer) >= 0
        return folds or self.strides[outer] == self.strides[inner] * size

    def cut_along(self, dims: Sequence[int]) -> Cut | None:
        """Where along one of the dimensions the array is cut."""
        return next((cut for cut in self.cuts if cut.dim in dims), None)

    def step_of(self, block: str) -> Expr:
        """Elements that every distance between two blocks' parts is a multiple of, at least; 0 where all see the same part."""
        places = [cut.start * self.strides[cut.dim] for cut in self.cuts] + [corner.place * corner.stride for corner in self.corners]
        found = [place.divisor() for place in places if block in place.symbols()]
        return constant(min(found, default=0))


@dataclass(frozen=True, slots=True)
class Axis:
    """One merged axis: the root dimensions it stands for (outer to inner), its extent, its role.

    `factor`: steps of the innermost dimension from one of its indices to the next (see `split_axis`). `block`: the block symbol that walks
    it, for an axis that is none of the root's. `reach`: an extent that no block's exceeds, where blocks have different ones.
    """

    dims: tuple[int, ...]
    size: Expr
    role: Role
    factor: int = 1
    block: str = ""
    reach: Expr | None = None

    @property
    def bound(self) -> Expr:
        """An extent that the host knows and no block exceeds."""
        return self.size if self.reach is None else self.reach

    @property
    def usual(self) -> int | None:
        """The extent that models go by: of blocks whose number the runtime knows, as many as there are for very large sizes."""
        if self.block and not self.bound.is_constant:
            return self.bound.evaluate(dict.fromkeys(self.bound.symbols(), LARGE))
        return self.bound.as_int()

    @property
    def is_reduction(self) -> bool:
        """Whether the axis is reduced over."""
        return self.role in ("k", "reduction")


@dataclass(frozen=True, slots=True)
class LoopNest:
    """Everything a tiling decision needs to know of one kernel. `roots`: several for contractions that share an operand, over the same
    dimensions, and for reductions of rows; `computation` is the first one's, and tells the roles of the dimensions for all.
    `consumer_dims`: the dimensions of what is computed from the roots, of `rows` those of all members, as linear forms of the first root's.
    """

    kernel: dispatch.KernelOp
    roots: tuple[StructuredOp, ...]
    computation: Computation
    dim_sizes: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    consumer_dims: dict[Operation, Linears]
    uses_index: bool
    rows: Rows | None = None

    def image_at(self, value: SSAValue, dims: Linears) -> Image | None:
        """The image that a root reads as `value` at `dims`."""
        images = (access.image for access in self.accesses if access.image is not None)
        return next((image for image in images if image.source is value and image.reached == dims), None)

    def folding(self, image: Image, axes: Sequence[int]) -> Windows | None:
        """How a view along these axes (-1: one that stands still) folds an image."""
        roles = [self.axes[axis].role if axis >= 0 else "" for axis in axes]
        rows = len(roles) - 1 - roles[::-1].index("m") if "m" in roles else -1
        return folding(image, [self.axes[axis].dims if axis >= 0 else () for axis in axes], self.dim_sizes, rows)

    @property
    def root(self) -> StructuredOp:
        """The first root: its dimensions are those of all."""
        return self.roots[0]

    @property
    def kind(self) -> Literal["contraction", "rows", "reduction", "elementwise"]:
        """Which of the tilings applies."""
        if self.rows is not None:
            return "rows"
        if isinstance(self.computation, Contraction):
            return "contraction"
        return "elementwise" if self.root.is_parallel else "reduction"

    def stride_along(self, access: Access, axis: Axis) -> Expr:
        """Elements between neighbours along a merged axis; along one of blocks what the distance is a multiple of."""
        if axis.block:
            return access.step_of(axis.block)
        return access.strides[axis.dims[-1]] * axis.factor


def index_expr(value: SSAValue, symbols: dict[SSAValue, Expr]) -> Expr:
    """An index value of the kernel's top level as a size expression over its symbols."""
    if value in symbols:
        return symbols[value]
    op = value.owner
    match op:
        case arith.ConstantOp():
            if isinstance(op.value, builtin.IntegerAttr):
                return constant(op.value.value.data)
        case arith.AddiOp():
            return index_expr(op.lhs, symbols) + index_expr(op.rhs, symbols)
        case arith.SubiOp():
            return index_expr(op.lhs, symbols) - index_expr(op.rhs, symbols)
        case arith.MuliOp():
            return index_expr(op.lhs, symbols) * index_expr(op.rhs, symbols)
        case arith.FloorDivSIOp() | arith.DivSIOp() | arith.DivUIOp():  # sizes: not negative
            return index_expr(op.lhs, symbols) // index_expr(op.rhs, symbols)
        case arith.RemSIOp() | arith.RemUIOp():
            return index_expr(op.lhs, symbols) % index_expr(op.rhs, symbols)
        case arith.MinSIOp() | arith.MinUIOp():
            return minimum(index_expr(op.lhs, symbols), index_expr(op.rhs, symbols))
        case arith.MaxSIOp() | arith.MaxUIOp():
            return maximum(index_expr(op.lhs, symbols), index_expr(op.rhs, symbols))
        case arith.IndexCastOp():
            return index_expr(op.input, symbols)
        case _:
            pass
    raise InternalError(f"{op} is no size expression")


def kernel_symbols(kernel: dispatch.KernelOp) -> dict[SSAValue, Expr]:
    """The kernel's index arguments as symbols."""
    names = (*dispatch.texts(kernel.symbols), *kernel.blocks)
    return {arg: symbol(name) for arg, name in zip(kernel.body.block.args[kernel.tensor_count :], names, strict=True)}


def shape_of(value: SSAValue, kernel: dispatch.KernelOp, symbols: dict[SSAValue, Expr]) -> tuple[Expr, ...]:
    """Sizes of a tensor of the kernel's body."""
    if isinstance(value, BlockArgument):
        return tuple(as_expr(t) for t in dispatch.text_lists(kernel.arg_shapes)[value.index])
    op = value.owner
    if isinstance(op, tensor.EmptyOp):
        dynamic = iter(op.dynamic_sizes)
        shape = op.tensor.type.get_shape()
        return tuple(index_expr(next(dynamic), symbols) if s == builtin.DYNAMIC_INDEX else constant(s) for s in shape)
    if isinstance(op, linalg.ops.GenericOp | linalg.ops.FillOp):
        return shape_of(op.outputs[result_number(value)], kernel, symbols)
    if isinstance(op, tensor.ExtractSliceOp):
        axes = slice_axes(op, lambda index: index_expr(index, symbols))
        return tuple(axis.size for axis in sorted(axes, key=lambda axis: axis.part_axis) if axis.part_axis >= 0)
    raise InternalError(f"a kernel's body holds {op}")


def result_number(value: SSAValue) -> int:
    """Which of its operation's results a value is."""
    if not isinstance(value, OpResult):
        raise InternalError("a block argument is no result")
    return value.index


def roots_of(kernel: dispatch.KernelOp) -> tuple[StructuredOp, ...]:
    """The generics that carry `dispatch.root`, at least one."""
    views = (structured(op) for op in kernel.body.block.ops if dispatch.ROOT in op.attributes)
    found = tuple(view for view in views if view is not None)
    if not found:
        raise InternalError(f"kernel {kernel.sym_name.data} has no root")
    return found


def _dim_sizes(root: StructuredOp, kernel: dispatch.KernelOp, symbols: dict[SSAValue, Expr]) -> tuple[Expr, ...]:
    sizes: list[Expr | None] = [None] * root.rank
    for value, map_ in root.operands():
        if not isinstance(value.type, builtin.TensorType):
            continue
        for size, linear in zip(shape_of(value, kernel, symbols), compose(map_, identity(root.rank), root.rank), strict=True):
            if linear.offset == 0 and len(linear.dims) == 1 and linear.coefficients[linear.dims[0]] == 1:
                dim = linear.dims[0]
                if sizes[dim] is None or size.is_constant:
                    sizes[dim] = size
    if any(s is None for s in sizes):
        raise InternalError(f"an iteration size of kernel {kernel.sym_name.data} cannot be read off its operands")
    return tuple(s for s in sizes if s is not None)


def iteration_sizes(view: StructuredOp, kernel: dispatch.KernelOp) -> tuple[Expr, ...]:
    """Extent of each dimension that a generic of the kernel's body iterates over."""
    return _dim_sizes(view, kernel, kernel_symbols(kernel))


def _root_results(roots: Sequence[StructuredOp]) -> dict[SSAValue, Linears]:
    """Where each result of the roots lies along their dimensions."""
    return {
        result: compose(map_, identity(root.rank), root.rank)
        for root in roots
        for result, map_ in zip(root.op.results, root.output_maps, strict=True)
    }


def consumer_dims(roots: Sequence[StructuredOp], kernel: dispatch.KernelOp) -> dict[Operation, Linears]:
    """For each consumer of the roots, its iteration dimensions as linear forms of theirs."""
    known = _root_results(roots)
    found: dict[Operation, Linears] = {}
    for op in kernel.body.block.ops:
        view = structured(op) if isinstance(op, linalg.ops.GenericOp) and dispatch.ROOT not in op.attributes else None
        if view is None:
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
            raise InternalError(f"a consumer in kernel {kernel.sym_name.data} iterates over more than its root's results")
        found[op] = full
        for result, map_ in zip(op.results, view.output_maps, strict=True):
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


def row_dims(rows: Rows, rank: int) -> dict[Operation, Linears]:
    """The iteration dimensions of each member of a kernel of rows as linear forms of the first root's."""
    unit = identity(rank)
    return {op: tuple(unit[loop] for loop in loops) for op, loops in rows.members.items()}


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


def _accesses(
    kernel: dispatch.KernelOp,
    roots: Sequence[StructuredOp],
    consumers: dict[Operation, Linears],
    sizes: Sequence[Expr],
    *,
    rows: bool,
) -> Iterator[Access]:
    rank, symbols = roots[0].rank, kernel_symbols(kernel)
    arg_shapes = [[as_expr(t) for t in row] for row in dispatch.text_lists(kernel.arg_shapes)]
    result_shapes = [[as_expr(t) for t in row] for row in dispatch.text_lists(kernel.result_shapes)]
    arg_strides = [[as_expr(t) for t in row] for row in dispatch.text_lists(kernel.arg_strides)]
    result_strides = [[as_expr(t) for t in row] for row in dispatch.text_lists(kernel.result_strides)]
    arg_align = array_ints(kernel.arg_align)
    result_align = array_ints(kernel.result_align)

    def access(number: int, is_result: bool, type_: Attribute, dims: Linears, input_number: int = -1, root: int = 0) -> Access:
        strides = (result_strides if is_result else arg_strides)[number]
        align = (result_align if is_result else arg_align)[number]
        place = placed(strides, (result_shapes if is_result else arg_shapes)[number], dims, sizes)
        element = element_of(type_)
        return Access(
            number,
            is_result,
            element,
            place.strides,
            place.offset,
            align,
            max(-1, input_number),
            root,
            input_number == INITIAL,
            place.cuts,
            place.corners,
        )

    for which, root in enumerate(roots if not rows else ()):
        for i, (value, map_) in enumerate(root.operands()):
            if isinstance(value.type, builtin.TensorType):
                own = compose(map_, identity(rank), rank)
                if (image := _image(kernel, root, i, own)) is not None:
                    found = access(image.argument.index, False, image.argument.type, image.places, i, which)
                    yield replace(found, image=image)
                    continue
                for arg, dims in reads(value, own, rank, symbols):
                    yield access(arg.index, False, arg.type, dims, i if i < len(root.inputs) else INITIAL, which)
    results = _root_results(roots) if not rows else {}
    for op, dims in consumers.items():
        view = structured(op)
        if view is None:
            raise InternalError(f"consumer {op} is not structured")
        operands = view.operands() if op in {root.op for root in roots} else zip(view.inputs, view.input_maps, strict=True)
        for value, map_ in operands:
            if isinstance(value.type, builtin.TensorType) and value not in results:
                for arg, at in reads(value, compose(map_, dims, rank), rank, symbols):
                    yield access(arg.index, False, arg.type, at)
        for result, map_ in zip(op.results, view.output_maps, strict=True):
            results[result] = compose(map_, dims, rank)
    last = kernel.body.block.last_op
    if last is None:
        raise InternalError("a kernel without dispatch.yield")
    for number, value in enumerate(last.operands):
        part, insertion = stored_part(value)
        dims = results[part] if insertion is None else whole_positions(insertion, results[part], rank, symbols)
        yield access(number, True, value.type, dims)


def _image(kernel: dispatch.KernelOp, root: StructuredOp, number: int, reached: Linears) -> Image | None:
    """The image that a root reads as input `number`; None where it is none, or where no folded view can show it."""
    kind = classify(root.op)
    if not isinstance(kind, Contraction) or kind.image != number or kernel.blocks:
        return None
    value, places = root.inputs[number], reached
    if (padded := padded_source(value)) is not None:
        value = padded[0]
        places = tuple(replace(place, offset=place.offset - low) for place, low in zip(reached, padded[1], strict=True))
    if not isinstance(value, BlockArgument):
        return None
    shape, strides = ([as_expr(t) for t in dispatch.text_lists(row)[value.index]] for row in (kernel.arg_shapes, kernel.arg_strides))
    return image_of(root.inputs[number], reached, places, value, shape, strides)


def _without_plain_images(accesses: tuple[Access, ...], axes: Sequence[Axis], sizes: Sequence[Expr]) -> tuple[Access, ...]:
    """The accesses; images that every axis walks evenly, and that nothing is padded of, are arrays like all others."""
    loops = [axis.dims for axis in axes]
    return tuple(replace(a, image=None) if a.image and folding(a.image, loops, sizes) is None else a for a in accesses)


def _roles(root: StructuredOp, computation: Computation) -> tuple[Role, ...]:
    if isinstance(computation, Contraction):
        groups: tuple[tuple[Role, tuple[int, ...]], ...] = (
            ("batch", computation.batch),
            ("m", computation.m),
            ("n", computation.n),
            ("k", computation.k),
        )
        role: dict[int, Role] = {d: name for name, dims in groups for d in dims}
        return tuple(role[d] for d in range(root.rank))
    names: dict[str, Role] = {"parallel": "parallel", "reduction": "reduction"}
    return tuple(names[kind] for kind in root.iterators)


def merge_axes(sizes: Sequence[Expr], roles: Sequence[Role], accesses: Sequence[Access], keep_apart: bool) -> tuple[Axis, ...]:
    """Drop axes of extent one, join neighbours of one role that every access walks as one (unless `keep_apart`)."""
    axes: list[Axis] = []
    cut = {place.dim for access in accesses for place in access.cuts}
    for d, (size, role) in enumerate(zip(sizes, roles, strict=True)):
        if size == constant(1):
            continue
        previous = axes[-1] if axes else None
        if previous is not None and previous.role == role and not keep_apart:
            outer = previous.dims[-1]
            if cut.isdisjoint((outer, d)) and all(a.walks_as_one(outer, d, size) for a in accesses):
                axes[-1] = Axis((*previous.dims, d), previous.size * size, role)
                continue
        axes.append(Axis((d,), size, role))
    return tuple(axes)


def with_blocks(kernel: dispatch.KernelOp, axes: Sequence[Axis], computation: Computation) -> tuple[Axis, ...]:
    """The axes behind those of the blocks, each with an extent that no block exceeds."""
    extents = {name: as_expr(text) for name, text in kernel.blocks.items()}
    role: Role = "batch" if isinstance(computation, Contraction) else "parallel"
    return (*(Axis((), extent, role, block=name) for name, extent in extents.items()), *(_reaching(axis, extents, kernel) for axis in axes))


def _reaching(axis: Axis, extents: dict[str, Expr], kernel: dispatch.KernelOp) -> Axis:
    if extents.keys().isdisjoint(axis.size.symbols()):
        return axis
    if (found := greatest(axis.size, extents)) is None:
        what = f"a loop of '{kernel.sym_name.data}' whose length {axis.size} in each block has no bound that the sizes tell"
        hint = "compute the sizes in scf.forall with sums, products with sizes, min and max of its indices"
        raise TreadleError(UNSUPPORTED, location_of(kernel), what=what, hint=hint)
    return replace(axis, reach=maximum(0, *found))


def split_axis(nest: LoopNest, number: int, step: int) -> LoopNest:
    """The nest with axis `number` walked in pieces: it has extent `step`, and a new last axis tells the piece. `step` divides its size."""
    axis = nest.axes[number]
    inner, pieces = replace(axis, size=constant(step)), replace(axis, size=axis.size // step, factor=axis.factor * step)
    return replace(nest, axes=(*nest.axes[:number], inner, *nest.axes[number + 1 :], pieces))


def _generics(kernel: dispatch.KernelOp) -> list[StructuredOp]:
    return [view for op in kernel.body.block.ops if isinstance(op, linalg.ops.GenericOp) and (view := structured(op)) is not None]


def _rows(kernel: dispatch.KernelOp, roots: Sequence[StructuredOp]) -> Rows | None:
    """How a kernel that is built is one of rows; None where it is none."""
    views, operations = _generics(kernel), [root.op for root in roots]
    found = rows_of(views, operations) if needs_rows(views, operations) else None
    return found if isinstance(found, Rows) else None


def _uneven(kernel: dispatch.KernelOp, roots: Sequence[StructuredOp]) -> Unbuildable | None:
    """The first of several operations that share loops whose loops have other sizes than those of the first root."""
    rows, wanted = _rows(kernel, roots), iteration_sizes(roots[0], kernel)
    views = roots if rows is None else [view for view in _generics(kernel) if view.op in rows.members]
    for view in views:
        own = iteration_sizes(view, kernel)
        loops = range(view.rank) if rows is None else rows.members[view.op]
        expected = tuple(wanted[loop] for loop in loops)
        if own != expected:
            told = [" x ".join(map(str, one)) for one in (own, expected)]
            return Unbuildable(view.op, f"its loops have the sizes {told[0]}, those of the first root {told[1]}")
    return None


def check_buildable(kernel: dispatch.KernelOp, roots: Sequence[StructuredOp]) -> None:
    """Raise `TreadleError` TR304 for a kernel that can be stated and evaluated, and that no kernel form builds."""
    found = unbuildable(_generics(kernel), [root.op for root in roots]) or _uneven(kernel, roots)
    if found is not None:
        what, fix = (
            f"dispatch.kernel '{kernel.sym_name.data}'",
            "state it as a dispatch.kernel of its own, which the program launches apart",
        )
        raise TreadleError(NOT_ONE_KERNEL, location_of(found.op), what=what, op=origin_of(found.op), reason=found.reason, fix=fix)


def loop_nest(kernel: dispatch.KernelOp) -> LoopNest:
    """Read the loop nest off a dispatched kernel. Raises `TreadleError` TR304 for kernels that no form builds (`kernel_structure`)."""
    symbols = kernel_symbols(kernel)
    roots = roots_of(kernel)
    check_buildable(kernel, roots)
    root, computation = roots[0], classify(roots[0].op)
    if computation is None:
        raise InternalError(f"the root of kernel {kernel.sym_name.data} is not a structured operation")
    sizes = _dim_sizes(root, kernel, symbols)
    rows = _rows(kernel, roots)
    consumers = consumer_dims(roots, kernel) if rows is None else row_dims(rows, root.rank)
    accesses = tuple(_accesses(kernel, roots, consumers, sizes, rows=rows is not None))
    if rows is not None:  # what several members read is read once
        accesses = tuple(dict.fromkeys(accesses))
    # Folded views know the places of an image themselves.
    seen = {access.image.source.owner for access in accesses if access.image is not None and access.image.is_padded}
    indexed = [op for op in kernel.body.block.ops if op not in seen and any(isinstance(i, linalg.ops.IndexOp) for i in op.walk())]
    uses_index = bool(indexed)
    axes = with_blocks(kernel, merge_axes(sizes, _roles(root, computation), accesses, uses_index), computation)
    accesses = _without_plain_images(accesses, axes, sizes)
    return LoopNest(kernel, roots, computation, sizes, axes, accesses, consumers, uses_index, rows)
