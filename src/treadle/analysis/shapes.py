"""Sizes of every tensor of a function as expressions over the sizes of its arguments.

Each dynamic axis of an argument is a symbol. Walking the function gives each tensor a shape and each `index` value an expression; where an
operation requires two sizes to agree, one symbol replaces the other (the inputs' shapes then say so to the runtime) or a check is recorded.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from treadle import errors
from treadle.analysis.index_arithmetic import affine_value, infer_affine, infer_arithmetic
from treadle.analysis.indexing import gathered_tensors, is_linear, structured, tensor_of
from treadle.analysis.sizes import (
    ReadNumber,
    Shapes,
    SizeCheck,
    cannot_compile,
    groups_of,
    kept_axes,
    mixed,
    slice_parameters,
    tensor_sizes,
    unsupported,
)
from treadle.errors import TreadleError
from treadle.ir.core import DYNAMIC_INDEX, AffineDimExpr, AffineExpr, Attribute, Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import affine, arith, builtin, func, tensor
from treadle.ir.locations import location_of
from treadle.ir.tables import table_of
from treadle.plan.expr import Expr, constant, maximum, minimum, product, symbol
from treadle.plan.expr_tables import entry

__all__ = [
    "ALIGN",
    "DEFAULT_ALIGN",
    "SIZE_DIVISOR",
    "STRIDES",
    "STRIDE_DIVISOR",
    "Shapes",
    "SizeCheck",
    "groups_of",
    "infer_shapes",
    "is_number_argument",
    "kept_axes",
    "mixed",
    "power_of_two",
    "slice_parameters",
    "unsupported",
]

STRIDES = "treadle.strides"
STRIDE_DIVISOR = "treadle.stride_divisor"
SIZE_DIVISOR = "treadle.size_divisor"
ALIGN = "treadle.align"
DEFAULT_ALIGN = 16
LARGEST_NUMBER = 2**31 - 1
"""What an argument that is a size or an index may be at most."""


def infer_shapes(function: func.FuncOp) -> Shapes:
    """The shapes of every tensor in the function's (single) block, `dispatch.region`s included.

    Raises `TreadleError` TR301 for operations whose result sizes the host cannot know, TR202 where sizes contradict each other.
    """
    shapes = Shapes()
    attributes = function.arg_attrs.data if function.arg_attrs is not None else ()
    for index, argument in enumerate(function.body.block.args):
        match argument.type:
            case builtin.TensorType():
                given: Mapping[str, Attribute] = attributes[index].data if index < len(attributes) else {}
                divisor = power_of_two(SIZE_DIVISOR, given, 1, function)
                shapes.set_shape(argument, _argument_sizes(index, argument.type.get_shape(), divisor, shapes))
            case _:
                raise cannot_compile(
                    function,
                    what=f"argument {index} of type {argument.type}",
                    hint="pass a ranked tensor (tensor<f32> holds one number); sizes are read off tensors with tensor.dim",
                )
    _walk(function.body.block, shapes)
    return shapes


def _argument_sizes(index: int, sizes: Sequence[int], divisor: int, shapes: Shapes) -> list[Expr]:
    """The sizes of an argument, the last of which `divisor` is said to divide."""
    found = [shapes.new_symbol((index, axis)) if size == DYNAMIC_INDEX else constant(size) for axis, size in enumerate(sizes)]
    if sizes and sizes[-1] == DYNAMIC_INDEX:
        # `s // d * d` is the size itself where d divides it, and the runtime compares the two; every pass sees that d divides it.
        found[-1] = found[-1] // divisor * divisor
    return found


def power_of_two(name: str, given: Mapping[str, Attribute], default: int, function: func.FuncOp) -> int:
    """The value of an argument's attribute of this name. Raises TR201 for what is no power of two."""
    if (attr := given.get(name)) is None:
        return default
    value = attr.value.data if isinstance(attr, builtin.IntegerAttr) else 0
    if value < 1 or value & (value - 1):
        unit = "bytes" if name == ALIGN else "elements"
        raise TreadleError(errors.VERIFY, location_of(function), message=f"{name} must be a power of two, in {unit}")
    return value


def _walk(block: Block, shapes: Shapes) -> None:
    for op in block.ops:
        if op.name == "dispatch.region":
            inner = op.regions[0].block
            _walk(inner, shapes)
            last = inner.last_op
            for result, value in zip(op.results, last.operands if last is not None else (), strict=True):
                shapes.set_shape(result, shapes.shape(value))
            continue
        _infer(op, shapes)
        for result in op.results:
            if isinstance(result.type, builtin.TensorType):
                if not shapes.knows(result):
                    raise unsupported(op)
                known = tensor_sizes(result)
                for axis, (found, size) in enumerate(zip(shapes.shape(result), known, strict=True)):
                    if size != DYNAMIC_INDEX:
                        shapes.equate(found, constant(size), f"axis {axis} of the result of {op.name}", op)
                sizes = [
                    found if size == DYNAMIC_INDEX else constant(size) for found, size in zip(shapes.shape(result), known, strict=True)
                ]
                shapes.set_shape(result, sizes)


def _slice_bounds(op: tensor.ExtractSliceOp | tensor.InsertSliceOp, whole: SSAValue, shapes: Shapes) -> list[Expr]:
    offsets, sizes, strides = slice_parameters(op, shapes)
    for axis, (offset, size, stride, extent) in enumerate(zip(offsets, sizes, strides, shapes.shape(whole), strict=True)):
        shapes.require_at_most(constant(0), offset, f"the offset of axis {axis} of {op.name} is negative", op)
        shapes.require_at_most(constant(0), size, f"the size of axis {axis} of {op.name} is negative", op)
        # An empty slice touches nothing, so its end is the offset (stride - 1 would overshoot backwards).
        end = offset + size if stride == 1 else maximum(offset, offset + (size - 1) * stride + 1)
        shapes.require_at_most(end, extent, f"the slice of {op.name} leaves axis {axis}", op)
    return sizes


def _infer(op: Operation, shapes: Shapes) -> None:
    match op:
        case _ if structured(op) is not None:
            _infer_structured(op, shapes)
        case arith.ConstantOp():
            _infer_constant(op, shapes)
        case tensor.DimOp():
            _infer_dim(op, shapes)
        case tensor.ExtractOp() if is_number_argument(op.tensor):
            shapes.set_index(op.result, _argument_value(op, shapes))
        case tensor.ExtractOp() if (table := table_of(op)) is not None:
            _infer_entry(op, table, shapes)
        case affine.ApplyOp() | affine.MinOp():
            infer_affine(op, shapes)
        case _ if op.name == "dispatch.block_index":
            _infer_block_index(op, shapes)
        case _ if op.name == "dispatch.read_index":
            _infer_read(op, shapes)
        case _ if op.name == "dispatch.same_size":
            left, right = (shapes.index(value) for value in op.operands)
            if left is not None and right is not None:
                shapes.equate(left, right, "two sizes of a reduction that is split", op)
        case _ if op.name == "affine.max":
            infer_affine(op, shapes)
        case _ if len(op.results) == 1 and not _infer_tensor(op, shapes):
            infer_arithmetic(op, shapes)
        case _:
            pass


def _infer_block_index(op: Operation, shapes: Shapes) -> None:
    extent = shapes.index(op.operands[0])
    if extent is None or shapes.is_per_block(extent):
        hint = "compute the bounds from constants, tensor.dim and integer arguments: the grid is known before kernels are launched"
        raise cannot_compile(op, what="a 'scf.forall' whose bounds are computed from data or from the index of another one", hint=hint)
    shapes.set_index(op.results[0], shapes.new_block(extent))


def _infer_read(op: Operation, shapes: Shapes) -> None:
    table, *indices, most = op.operands
    known = [shapes.index(value) for value in (*indices, most)]
    if any(value is None for value in known):
        hint = "read it at indices that are computed from constants, sizes and the index of scf.forall"
        raise cannot_compile(op, what="an offset or a size that is read from a tensor at a place that depends on data", hint=hint)
    *place, bound = [value for value in known if value is not None]
    for axis, (index, size) in enumerate(zip(place, shapes.shape(table), strict=True)):
        shapes.require_at_most(constant(0), index, f"an offset or a size is read ahead of axis {axis} of its tensor", op)
        shapes.require_at_most(index + 1, size, f"an offset or a size is read beyond axis {axis} of its tensor", op)
    shapes.set_index(op.results[0], shapes.new_read(ReadNumber(table, tuple(place), bound)))


def _infer_entry(op: tensor.ExtractOp, table: Sequence[int], shapes: Shapes) -> None:
    """A number of a table in the text; none where its place depends on data."""
    if (place := shapes.index(op.indices[0])) is None:
        return
    shapes.require_at_most(constant(0), place, "a table is read ahead of its first number", op)
    shapes.require_at_most(place + 1, constant(len(table)), "a table is read beyond its last number", op)
    shapes.set_index(op.result, entry(table, place))


def _infer_tensor(op: Operation, shapes: Shapes) -> bool:
    """The shape of an operation that makes or moves a tensor; False for any other."""
    match op:
        case tensor.EmptyOp():
            shapes.set_shape(op.tensor, mixed(tensor_sizes(op.tensor), op.dynamic_sizes, shapes, op))
        case tensor.SplatOp():
            shapes.set_shape(op.result, mixed(tensor_sizes(op.result), op.dynamicSizes, shapes, op))
        case tensor.CastOp():
            shapes.set_shape(op.dest, shapes.shape(op.source))
        case tensor.CollapseShapeOp():
            source = shapes.shape(op.src)
            shapes.set_shape(op.result, [product(source[axis] for axis in group) for group in groups_of(op.reassociation)])
        case tensor.ExpandShapeOp():
            _infer_expand(op, shapes)
        case tensor.ExtractSliceOp():
            sizes = _slice_bounds(op, op.source, shapes)
            shapes.set_shape(op.result, [sizes[axis] for axis in kept_axes(op, op.result)])
        case tensor.InsertSliceOp():
            _infer_insert_slice(op, shapes)
        case tensor.ReshapeOp() if DYNAMIC_INDEX not in tensor_sizes(op.result):
            sizes = [constant(size) for size in tensor_sizes(op.result)]
            shapes.equate(product(shapes.shape(op.source)), product(sizes), "the number of elements of tensor.reshape", op)
            shapes.set_shape(op.result, sizes)
        case tensor.FromElementsOp():
            shapes.set_shape(op.result, [constant(size) for size in tensor_sizes(op.result)])
        case tensor.PadOp():
            low = mixed([int(v) for v in op.static_low.get_values()], op.low, shapes, op)
            high = mixed([int(v) for v in op.static_high.get_values()], op.high, shapes, op)
            shapes.set_shape(op.result, [a + b + c for a, b, c in zip(low, shapes.shape(op.source), high, strict=True)])
        case tensor.ConcatOp():
            _infer_concat(op, shapes)
        case _:
            return False
    return True


def _infer_dim(op: tensor.DimOp, shapes: Shapes) -> None:
    axis = shapes.index(op.index)
    sizes = shapes.shape(op.source)
    number = axis.as_int() if axis is not None else None
    if number is None or not 0 <= number < len(sizes):
        raise cannot_compile(op, what="tensor.dim of this axis", hint="use a constant axis of the tensor")
    shapes.set_index(op.result, sizes[number])


def _infer_insert_slice(op: tensor.InsertSliceOp, shapes: Shapes) -> None:
    sizes = _slice_bounds(op, op.dest, shapes)
    for axis, found in zip(kept_axes(op, op.source), shapes.shape(op.source), strict=True):
        shapes.equate(sizes[axis], found, f"axis {axis} of the slice of {op.name}", op)
    shapes.set_shape(op.result, shapes.shape(op.dest))


def _infer_concat(op: tensor.ConcatOp, shapes: Shapes) -> None:
    axis = int(op.dim.value.data)
    parts = [shapes.shape(value) for value in op.inputs]
    for other in range(len(parts[0])):
        for left, right in pairwise(parts):
            if other != axis:
                shapes.equate(left[other], right[other], f"axis {other} of the operands of tensor.concat", op)
    total = sum((part[axis] for part in parts), start=constant(0))
    shapes.set_shape(op.result, [total if other == axis else size for other, size in enumerate(parts[0])])


def is_number_argument(value: SSAValue) -> bool:
    """Whether a tensor is an argument of the function that holds one integer: the host may read it as a size."""
    if not isinstance(value, BlockArgument) or not isinstance(value.owner.parent_op(), func.FuncOp):
        return False
    type_ = tensor_of(value)
    return type_ is not None and not type_.get_shape() and isinstance(type_.element_type, builtin.IntegerType | builtin.IndexType)


def _argument_value(op: tensor.ExtractOp, shapes: Shapes) -> Expr:
    """The number that an argument holds: a symbol, which must be a size."""
    source = op.tensor
    number = source.index if isinstance(source, BlockArgument) else -1
    known = next((name for name, place in shapes.sources.items() if place == (number, 0)), None)
    value = symbol(known) if known is not None else shapes.new_symbol((number, 0))
    name = source.name_hint or f"arg{number}"
    shapes.require_at_most(constant(0), value, f"argument {number} ('{name}') is used as a size or an index and must not be negative", op)
    shapes.require_at_most(
        value, constant(LARGEST_NUMBER), f"argument {number} ('{name}') is used as a size or an index and is too large", op
    )
    return value


def _infer_structured(op: Operation, shapes: Shapes) -> None:
    view = structured(op)
    if view is None:
        return
    extents: dict[int, Expr] = {}
    for number, (value, map_) in enumerate(view.operands()):
        if not isinstance(value.type, builtin.TensorType):
            continue
        for axis, (expr, size) in enumerate(zip(map_.results, shapes.shape(value), strict=True)):
            if isinstance(expr, AffineDimExpr):
                if expr.position in extents:
                    shapes.equate(extents[expr.position], size, f"axis {axis} of operand {number} of {op.name}", op)
                else:
                    extents[expr.position] = size
    for d in range(view.rank):
        if d not in extents:
            raise cannot_compile(
                op,
                what=f"'{op.name}' whose loop {d} has no size",
                hint="let some operand have an axis of its own for each loop",
            )
    for number, (value, map_) in enumerate(view.operands()):
        if isinstance(value.type, builtin.TensorType):
            for axis, (expr, size) in enumerate(zip(map_.results, shapes.shape(value), strict=True)):
                if not isinstance(expr, AffineDimExpr):
                    first, last = _ends(expr, [extents[d] - 1 for d in range(view.rank)])
                    if not any(extents[d] == constant(0) for d in expr.used_dims()):  # an empty loop reads nothing
                        shapes.require_at_most(last + 1, size, f"operand {number} of {op.name} is read beyond its axis {axis}", op)
                        shapes.require_at_most(constant(0), first, f"operand {number} of {op.name} is read before its axis {axis}", op)
    for table in gathered_tensors(op):
        # An element is read only where there is one to compute.
        wanted = minimum(constant(1), *extents.values())
        for axis, size in enumerate(shapes.shape(table)):
            shapes.require_at_most(wanted, size, f"axis {axis} of a tensor that {op.name} gathers from is empty", op)
    for result, output in zip(op.results, view.outputs, strict=True):
        shapes.set_shape(result, shapes.shape(output))


def _ends(expr: AffineExpr, last: Sequence[Expr]) -> tuple[Expr, Expr]:
    """The smallest and the largest value of a linear index expression over loops that run from 0 to `last`; any other one at `last`."""
    if not is_linear(expr):
        value = affine_value(expr, last, [])
        return value, value
    offset = expr.eval([0] * len(last), [])
    factors = [expr.eval([int(d == e) for e in range(len(last))], []) - offset for d in range(len(last))]
    reached = [factor * end for factor, end in zip(factors, last, strict=True)]
    below = sum((value for factor, value in zip(factors, reached, strict=True) if factor < 0), start=constant(offset))
    return below, sum((value for factor, value in zip(factors, reached, strict=True) if factor > 0), start=constant(offset))


def _infer_constant(op: arith.ConstantOp, shapes: Shapes) -> None:
    if isinstance(op.result.type, builtin.TensorType):
        shapes.set_shape(op.result, [constant(size) for size in tensor_sizes(op.result)])
    elif isinstance(op.value, builtin.IntegerAttr):
        shapes.set_index(op.result, constant(op.value.value.data))


def _infer_expand(op: tensor.ExpandShapeOp, shapes: Shapes) -> None:
    sizes = mixed([int(v) for v in op.static_output_shape.get_values()], op.dynamic_output_shape, shapes, op)
    for axis, (group, size) in enumerate(zip(groups_of(op.reassociation), shapes.shape(op.src), strict=True)):
        shapes.equate(size, product(sizes[inner] for inner in group), f"axis {axis} of the source of {op.name}", op)
    shapes.set_shape(op.result, sizes)
