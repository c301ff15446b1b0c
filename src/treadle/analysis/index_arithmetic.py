"""Index arithmetic of the host as size expressions: `affine` and `arith` operations on index values."""

from collections.abc import Callable, Sequence

from treadle import errors
from treadle.analysis.sizes import Shapes, cannot_compile
from treadle.ir.core import AffineBinaryOpExpr, AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap, AffineSymExpr, Operation
from treadle.ir.dialects import builtin
from treadle.plan.expr import Expr, ceil_div, constant, maximum, minimum


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
                "ceildiv": ceil_div,
            }
            return operations[expr.kind.get_token()](left, right)
        case _:
            raise errors.InternalError(f"affine expression {expr}")


def infer_affine(op: Operation, shapes: Shapes) -> None:
    """`affine.apply`, `min` and `max`."""
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


def infer_arithmetic(op: Operation, shapes: Shapes) -> None:
    """Arithmetic on index (and integer) scalars that the host can do; division is that of non-negative sizes."""
    operands = [value for operand in op.operands if (value := shapes.index(operand)) is not None]
    if len(operands) != len(op.operands):
        return
    if op.name == "arith.index_cast":
        shapes.set_index(op.results[0], operands[0])
        return
    if (operation := _BINARY.get(op.name)) is None:
        return
    try:
        shapes.set_index(op.results[0], operation(operands[0], operands[1]))
    except ZeroDivisionError:
        raise cannot_compile(op, what=f"'{op.name}' that divides by zero", hint="divide sizes by a positive number") from None


def _quotient(a: Expr, b: Expr) -> Expr:
    return a // b


def _remainder(a: Expr, b: Expr) -> Expr:
    return a % b


_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": _quotient,
    "arith.divui": _quotient,
    "arith.floordivsi": _quotient,
    "arith.ceildivsi": ceil_div,
    "arith.ceildivui": ceil_div,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.minsi": minimum,
    "arith.minui": minimum,
    "arith.maxsi": maximum,
    "arith.maxui": maximum,
}
