"""Reading size expressions: Python's own parser, and which of its nodes are allowed. Imported with the first text that needs it."""

import ast
import operator
from collections.abc import Callable

from treadle.errors import SIZE_EXPRESSION, TreadleError
from treadle.plan.expr import Expr, constant, maximum, minimum, symbol
from treadle.plan.expr_tables import entry

_BINARY: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}


def read(text: str) -> Expr:
    """The expression that a text spells. Raises `TreadleError` TR103 for a text that spells none."""
    try:
        return _build(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError) as problem:
        raise TreadleError(SIZE_EXPRESSION, text=text, reason=problem) from None


def _build(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return constant(value)
        case ast.Name(id=name) if name not in ("min", "max"):
            return symbol(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_build(left), _build(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args, keywords=[]):
            return minimum(*map(_build, args)) if name == "min" else maximum(*map(_build, args))
        case ast.Subscript(value=ast.Tuple(elts=[_, _, *_] as elements), slice=index):
            return entry([_number(element) for element in elements], _build(index))
        case _:
            raise ValueError(f"'{ast.unparse(node)}' is not allowed here")


def _number(node: ast.expr) -> int:
    if (number := _build(node).as_int()) is None:
        raise ValueError(f"'{ast.unparse(node)}' is no number, which the entries of a table are")
    return number
