"""Sizes of every tensor of a function as expressions over the sizes of its arguments.

Each dynamic axis of an argument is a symbol. Walking the function gives each tensor a shape and each `index` value an expression; where an operation
requires two sizes to agree, one symbol replaces the other (the inputs' shapes then say so to the runtime) or a check is recorded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from treadle import errors
from treadle.analysis.indexing import structured
from treadle.errors import SourceLocation, TreadleError
from treadle.ir.core import (
    DYNAMIC_INDEX,
    AffineBinaryOpExpr,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
    Block,
    Operation,
    SSAValue,
)
from treadle.ir.dialects import affine, arith, builtin, func, tensor
from treadle.ir.locations import location_of
from treadle.plan.expr import Expr, as_expr, constant, maximum, minimum, product, symbol

STRIDES = "treadle.strides"
ALIGN = "treadle.align"
DEFAULT_ALIGN = 16


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """`left relation right` ("==" or "<=") must hold at run time; `message` says what is wrong where it does not."""

    left: Expr
    relation: str
    right: Expr
    message: str
    location: SourceLocation | None


@dataclass(slots=True)
class Shapes:
    """The sizes of one function. `sources[name]` says where a symbol is read: (input, axis), axis < 0 for the stride of axis -1-axis."""

    sources: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _shapes: dict[SSAValue, tuple[Expr, ...]] = field(default_factory=dict[SSAValue, tuple[Expr, ...]])
    _indices: dict[SSAValue, Expr] = field(default_factory=dict[SSAValue, Expr])
    _replaced: dict[str, Expr] = field(default_factory=dict[str, Expr])
    _checks: list[SizeCheck] = field(default_factory=list[SizeCheck])

    def shape(self, value: SSAValue) -> tuple[Expr, ...]:
        """The sizes of a tensor."""
        if value not in self._shapes:
            raise errors.InternalError(f"no shape is known for a value of type {value.type}")
        return tuple(self.resolve(size) for size in self._shapes[value])

    def index(self, value: SSAValue) -> Expr | None:
        """An index value as an expression; None where it depends on data."""
        found = self._indices.get(value)
        return None if found is None else self.resolve(found)

    def resolve(self, size: Expr) -> Expr:
        """The expression with every replaced symbol replaced."""
        while used := size.symbols() & self._replaced.keys():
            size = size.substitute({name: self._replaced[name] for name in used})
        return size

    @property
    def checks(self) -> list[SizeCheck]:
        """What must be checked at run time beyond the inputs' shapes; those that hold always are left out."""
        found: list[SizeCheck] = []
        for check in self._checks:
            left, right = self.resolve(check.left), self.resolve(check.right)
            gap = (right - left).as_int()
            if gap is not None and (gap == 0 if check.relation == "==" else gap >= 0):
                continue
            found.append(SizeCheck(left, check.relation, right, check.message, check.location))
        return list({(c.left, c.relation, c.right): c for c in found}.values())

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """The symbols still in use and where each is read."""
        return {name: source for name, source in self.sources.items() if name not in self._replaced}

    def new_symbol(self, source: tuple[int, int]) -> Expr:
        """A fresh symbol read from `source`."""
        name = f"s{len(self.sources)}"
        self.sources[name] = source
        return symbol(name)

    def set_shape(self, value: SSAValue, sizes: Sequence[Expr]) -> None:
        """Record the shape of a tensor."""
        self._shapes[value] = tuple(sizes)

    def set_index(self, value: SSAValue, size: Expr) -> None:
        """Record an index value."""
        self._indices[value] = size

    def equate(self, left: Expr, right: Expr, message: str, op: Operation) -> None:
        """Require two sizes to be equal: a lone symbol is replaced by the other side, else a check is kept.

        Raises `TreadleError` TR202 where both are known and differ.
        """
        left, right = self.resolve(left), self.resolve(right)
        gap = (left - right).as_int()
        if gap == 0:
            return
        if gap is not None:
            raise TreadleError(errors.SIZE_MISMATCH, location_of(op), message=message, left=left, right=right)
        for one, other in sorted(((left, right), (right, left)), key=lambda pair: _age(pair[0]), reverse=True):
            name = _lone_symbol(one)
            if name is not None and name not in other.symbols():
                self._replaced[name] = other
                return
        self._checks.append(SizeCheck(left, "==", right, message, location_of(op)))

    def require_at_most(self, left: Expr, right: Expr, message: str, op: Operation) -> None:
        """Require `left <= right`; raises `TreadleError` TR202 where both are known and it fails."""
        gap = (self.resolve(right) - self.resolve(left)).as_int()
        if gap is not None and gap < 0:
            raise TreadleError(errors.SIZE_MISMATCH, location_of(op), message=message, left=self.resolve(left), right=self.resolve(right))
        if gap is None:
            self._checks.append(SizeCheck(left, "<=", right, message, location_of(op)))


def _lone_symbol(size: Expr) -> str | None:
    names = size.symbols()
    return next(iter(names)) if len(names) == 1 and size == symbol(next(iter(names))) else None


def _age(size: Expr) -> int:
    """Later symbols give way to earlier ones, so that the first input names a size."""
    name = _lone_symbol(size)
    return -1 if name is None else int(name[1:])


def infer_shapes(function: func.FuncOp) -> Shapes:
    """The shapes of every tensor in the function's (single) block, `dispatch.region`s included.

    Raises `TreadleError` TR301 for operations whose result sizes the host cannot know, TR202 where sizes contradict each other.
    """
    shapes = Shapes()
    for index, argument in enumerate(function.body.block.args):
        match argument.type:
            case builtin.TensorType():
                sizes = argument.type.get_shape()
                shapes.set_shape(
                    argument,
                    [shapes.new_symbol((index, axis)) if size == DYNAMIC_INDEX else constant(size) for axis, size in enumerate(sizes)],
                )
            case _:
                raise TreadleError(
                    errors.UNSUPPORTED,
                    location_of(function),
                    what=f"argument {index} of type {argument.type}",
                    hint="pass a ranked tensor (tensor<f32> holds one number); sizes are read off tensors with tensor.dim",
                )
    _walk(function.body.block, shapes)
    return shapes


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
                if result not in shapes._shapes:  # pyright: ignore[reportPrivateUsage]
                    raise unsupported(op)
                known = result.type.get_shape()
                for axis, (found, size) in enumerate(zip(shapes.shape(result), known, strict=True)):
                    if size != DYNAMIC_INDEX:
                        shapes.equate(found, constant(size), f"axis {axis} of the result of {op.name}", op)
                sizes = [
                    found if size == DYNAMIC_INDEX else constant(size) for found, size in zip(shapes.shape(result), known, strict=True)
                ]
                shapes.set_shape(result, sizes)


def unsupported(op: Operation) -> TreadleError:
    """The error for an operation that no kernel and no host program can hold."""
    hints = {
        "scf.forall": "write the computation of the whole tensor with linalg operations; tiling is the compiler's choice",
        "scf.for": "write the loop as a reduction with linalg.generic or linalg.reduce",
        "scf.if": "choose elementwise with arith.select inside linalg.generic",
        "scf.while": "write the computation without a data-dependent loop",
        "func.call": "inline the called function",
        "tensor.extract": "use the element inside a linalg.generic, with constant indices",
    }
    hint = hints.get(op.name, "express it with linalg.generic on tensors, tensor slices and reshapes")
    return TreadleError(errors.UNSUPPORTED, location_of(op), what=f"'{op.name}' on tensors, outside a kernel,", hint=hint)


def mixed(static: Sequence[int], dynamic: Sequence[SSAValue], shapes: Shapes, op: Operation) -> list[Expr]:
    """A static list with each dynamic marker replaced by the next operand's expression. Raises `TreadleError` TR301 where that depends on data."""
    values = iter(dynamic)
    found: list[Expr] = []
    for entry in static:
        if entry != DYNAMIC_INDEX:
            found.append(constant(int(entry)))
            continue
        value = next(values)
        size = shapes.index(value)
        if size is None:
            raise TreadleError(
                errors.UNSUPPORTED,
                location_of(op),
                what=f"'{op.name}' with a size or offset that is computed from data",
                hint="compute it from constants and tensor.dim with index arithmetic",
            )
        found.append(size)
    return found


def type_sizes(type_: builtin.TensorType) -> list[int]:
    """Sizes of a tensor type, DYNAMIC_INDEX where dynamic."""
    return list(type_.get_shape())


def groups_of(attr: object) -> list[list[int]]:
    """The reassociation of expand_shape and collapse_shape as lists of axes of the larger rank."""
    if not isinstance(attr, builtin.ArrayAttr):
        raise errors.InternalError("reassociation is not an array")
    return [[int(entry.value.data) for entry in group] for group in attr]


def kept_axes(op: tensor.ExtractSliceOp | tensor.InsertSliceOp, part: builtin.TensorType) -> list[int]:
    """The axes of the larger tensor that the slice type keeps (dropped ones have static size 1), matched from the left."""
    wanted = type_sizes(part)
    sizes = [int(size) for size in op.static_sizes.get_values()]
    kept: list[int] = []
    for axis, size in enumerate(sizes):
        if len(kept) < len(wanted) and wanted[len(kept)] == size:
            kept.append(axis)
        elif size != 1:
            raise errors.InternalError(f"{op.name}: {part} is no rank reduction of sizes {sizes}")
    return kept


def slice_parameters(op: tensor.ExtractSliceOp | tensor.InsertSliceOp, shapes: Shapes) -> tuple[list[Expr], list[Expr], list[Expr]]:
    """Offsets, sizes and strides of a slice, one an axis of the larger tensor."""
    return (
        mixed([int(v) for v in op.static_offsets.get_values()], op.offsets, shapes, op),
        mixed([int(v) for v in op.static_sizes.get_values()], op.sizes, shapes, op),
        mixed([int(v) for v in op.static_strides.get_values()], op.strides, shapes, op),
    )


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
    view = structured(op)
    if view is not None:
        _infer_structured(op, shapes)
        return
    match op:
        case arith.ConstantOp():
            _infer_constant(op, shapes)
        case tensor.DimOp():
            axis = shapes.index(op.index)
            sizes = shapes.shape(op.source)
            number = axis.as_int() if axis is not None else None
            if number is None or not 0 <= number < len(sizes):
                raise TreadleError(
                    errors.UNSUPPORTED, location_of(op), what="tensor.dim of this axis", hint="use a constant axis of the tensor"
                )
            shapes.set_index(op.result, sizes[number])
        case tensor.EmptyOp():
            shapes.set_shape(op.tensor, mixed(type_sizes(_tensor(op.tensor)), op.dynamic_sizes, shapes, op))
        case tensor.SplatOp():
            shapes.set_shape(op.result, mixed(type_sizes(_tensor(op.result)), op.dynamicSizes, shapes, op))
        case tensor.CastOp():
            shapes.set_shape(op.dest, shapes.shape(op.source))
        case tensor.CollapseShapeOp():
            source = shapes.shape(op.src)
            shapes.set_shape(op.result, [product(source[axis] for axis in group) for group in groups_of(op.reassociation)])
        case tensor.ExpandShapeOp():
            _infer_expand(op, shapes)
        case tensor.ExtractSliceOp():
            sizes = _slice_bounds(op, op.source, shapes)
            shapes.set_shape(op.result, [sizes[axis] for axis in kept_axes(op, _tensor(op.result))])
        case tensor.InsertSliceOp():
            sizes = _slice_bounds(op, op.dest, shapes)
            for axis, found in zip(kept_axes(op, _tensor(op.source)), shapes.shape(op.source), strict=True):
                shapes.equate(sizes[axis], found, f"axis {axis} of the slice of {op.name}", op)
            shapes.set_shape(op.result, shapes.shape(op.dest))
        case tensor.ReshapeOp() if DYNAMIC_INDEX not in type_sizes(_tensor(op.result)):
            sizes = [constant(size) for size in type_sizes(_tensor(op.result))]
            shapes.equate(product(shapes.shape(op.source)), product(sizes), "the number of elements of tensor.reshape", op)
            shapes.set_shape(op.result, sizes)
        case tensor.FromElementsOp():
            shapes.set_shape(op.result, [constant(size) for size in type_sizes(_tensor(op.result))])
        case tensor.PadOp():
            low = mixed([int(v) for v in op.static_low.get_values()], op.low, shapes, op)
            high = mixed([int(v) for v in op.static_high.get_values()], op.high, shapes, op)
            shapes.set_shape(op.result, [a + b + c for a, b, c in zip(low, shapes.shape(op.source), high, strict=True)])
        case tensor.ConcatOp():
            axis = int(op.dim.value.data)
            parts = [shapes.shape(value) for value in op.inputs]
            for other in range(len(parts[0])):
                for left, right in pairwise(parts):
                    if other != axis:
                        shapes.equate(left[other], right[other], f"axis {other} of the operands of tensor.concat", op)
            total = sum((part[axis] for part in parts), start=constant(0))
            shapes.set_shape(op.result, [total if other == axis else size for other, size in enumerate(parts[0])])
        case affine.ApplyOp() | affine.MinOp():
            _infer_affine(op, shapes)
        case _ if op.name == "affine.max":
            _infer_affine(op, shapes)
        case _ if len(op.results) == 1:
            _infer_arithmetic(op, shapes)
        case _:
            pass


def _tensor(value: SSAValue) -> builtin.TensorType:
    if not isinstance(value.type, builtin.TensorType):
        raise errors.InternalError(f"{value.type} is not a tensor")
    return value.type


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
            raise TreadleError(
                errors.UNSUPPORTED,
                location_of(op),
                what=f"'{op.name}' whose loop {d} has no size",
                hint="let some operand have an axis of its own for each loop",
            )
    for number, (value, map_) in enumerate(view.operands()):
        if isinstance(value.type, builtin.TensorType):
            for axis, (expr, size) in enumerate(zip(map_.results, shapes.shape(value), strict=True)):
                if not isinstance(expr, AffineDimExpr):
                    last = affine_value(expr, [extents[d] - 1 for d in range(view.rank)], [])
                    # With an empty loop nothing is read, whatever the last index would be.
                    if all((extents[d].as_int() or 0) > 0 for d in expr.used_dims()) or last.as_int() is None:
                        shapes.require_at_most(last + 1, size, f"operand {number} of {op.name} is read beyond its axis {axis}", op)
    for result, output in zip(op.results, view.outputs, strict=True):
        shapes.set_shape(result, shapes.shape(output))


def _infer_constant(op: arith.ConstantOp, shapes: Shapes) -> None:
    if isinstance(type_ := op.result.type, builtin.TensorType):
        shapes.set_shape(op.result, [constant(size) for size in type_sizes(type_)])
    elif isinstance(op.value, builtin.IntegerAttr):
        shapes.set_index(op.result, constant(op.value.value.data))


def _infer_expand(op: tensor.ExpandShapeOp, shapes: Shapes) -> None:
    sizes = mixed([int(v) for v in op.static_output_shape.get_values()], op.dynamic_output_shape, shapes, op)
    for axis, (group, size) in enumerate(zip(groups_of(op.reassociation), shapes.shape(op.src), strict=True)):
        shapes.equate(size, product(sizes[inner] for inner in group), f"axis {axis} of the source of {op.name}", op)
    shapes.set_shape(op.result, sizes)


def affine_value(expr: AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr]) -> Expr:
    """An affine expression over size expressions."""
    match expr:
        case AffineDimExpr():
            return dims[expr.position]
        case AffineSymExpr():
            return symbols[expr.position]
        case AffineConstantExpr():
            return constant(expr.value)
        case AffineBinaryOpExpr():
            left, right = affine_value(expr.lhs, dims, symbols), affine_value(expr.rhs, dims, symbols)
            operations: dict[str, Callable[[Expr, Expr], Expr]] = {
                "+": lambda a, b: a + b,
                "*": lambda a, b: a * b,
                "mod": lambda a, b: a % b,
                "floordiv": lambda a, b: a // b,
                "ceildiv": lambda a, b: -(-a // b),
            }
            return operations[expr.kind.get_token()](left, right)
        case _:
            raise errors.InternalError(f"affine expression {expr}")


def _infer_affine(op: Operation, shapes: Shapes) -> None:
    map_attr = op.properties.get("map")
    operands = [shapes.index(value) for value in op.operands]
    if not isinstance(map_attr, builtin.AffineMapAttr) or any(value is None for value in operands):
        return
    map_: AffineMap = map_attr.data
    values = [value for value in operands if value is not None]
    results = [affine_value(expr, values[: map_.num_dims], values[map_.num_dims :]) for expr in map_.results]
    shapes.set_index(
        op.results[0], minimum(*results) if op.name == "affine.min" else maximum(*results) if op.name == "affine.max" else results[0]
    )


def _infer_arithmetic(op: Operation, shapes: Shapes) -> None:
    """Arithmetic on index (and integer) scalars that the host can do; division is that of non-negative sizes."""
    operations: dict[str, Callable[..., Expr]] = {
        "arith.addi": lambda a, b: a + b,
        "arith.subi": lambda a, b: a - b,
        "arith.muli": lambda a, b: a * b,
        "arith.divsi": lambda a, b: a // b,
        "arith.divui": lambda a, b: a // b,
        "arith.floordivsi": lambda a, b: a // b,
        "arith.ceildivsi": lambda a, b: -(-a // b),
        "arith.ceildivui": lambda a, b: -(-a // b),
        "arith.remsi": lambda a, b: a % b,
        "arith.remui": lambda a, b: a % b,
        "arith.minsi": minimum,
        "arith.minui": minimum,
        "arith.maxsi": maximum,
        "arith.maxui": maximum,
        "arith.index_cast": lambda a: a,
    }
    if (operation := operations.get(op.name)) is None:
        return
    operands = [shapes.index(value) for value in op.operands]
    if any(value is None for value in operands):
        return
    try:
        shapes.set_index(op.results[0], as_expr(operation(*operands)))
    except ZeroDivisionError:
        raise TreadleError(
            errors.UNSUPPORTED, location_of(op), what=f"'{op.name}' that divides by zero", hint="divide sizes by a positive number"
        ) from None
