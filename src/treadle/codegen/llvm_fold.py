"""Folding of integer instructions while text is built: constants meet constants, and neutral operands vanish.

Only scalar integers fold. What LLVM's code generator folds anyway within a block is left to it; this keeps the text small.
"""

from collections.abc import Callable

from treadle.codegen.llvm_types import Value, bit_width, integer

_MASKED: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _unsigned(v: int, width: int) -> int:
    return v & ((1 << width) - 1)


def _both(op: str, a: int, b: int, width: int) -> int | None:
    if op in _MASKED:
        return _MASKED[op](a, b)
    if op in ("shl", "lshr", "ashr"):
        if not 0 <= b < width:
            return None
        return a << b if op == "shl" else (_unsigned(a, width) if op == "lshr" else a) >> b
    if b == 0:
        return None
    if op in ("udiv", "urem"):
        ua, ub = _unsigned(a, width), _unsigned(b, width)
        return ua // ub if op == "udiv" else ua % ub
    if op in ("sdiv", "srem"):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if op == "sdiv" else a - quotient * b
    return None


def fold_binary(op: str, a: Value, b: Value) -> tuple[Value | None, str, Value, Value]:
    """(result, op, a, b): the folded value or None, and the instruction to emit, which may be a cheaper one (udiv 8 -> lshr 3)."""
    x, y = a.number, b.number
    if x is None and y is None:
        if a.text != b.text:
            return None, op, a, b
        if op in ("sub", "xor"):
            return integer(a.type, 0), op, a, b
        return (a if op in ("and", "or") else None), op, a, b
    if x is not None and y is not None:
        value = _both(op, x, y, bit_width(a.type))
        return (None if value is None else integer(a.type, value)), op, a, b
    if y is None:
        if op in ("add", "mul", "and", "or", "xor"):
            a, b, x, y = b, a, y, x  # constant to the right
        else:
            return (a if x == 0 and op in ("shl", "lshr", "ashr") else None), op, a, b
    if y == 0:
        if op in ("add", "sub", "or", "xor", "shl", "lshr", "ashr"):
            return a, op, a, b
        if op in ("mul", "and"):
            return b, op, a, b
    elif (y == -1 and op == "and") or (y == 1 and op in ("mul", "udiv", "sdiv")):
        return a, op, a, b
    elif y in (1, -1) and op in ("urem", "srem") and (y == 1 or op == "srem"):
        return integer(a.type, 0), op, a, b
    if y is not None and y > 0 and y & (y - 1) == 0:
        if op == "urem":
            return None, "and", a, integer(a.type, y - 1)
        if op == "udiv":
            return None, "lshr", a, integer(a.type, y.bit_length() - 1)
    return None, op, a, b


def fold_compare(predicate: str, a: Value, b: Value) -> bool | None:
    """The outcome of `icmp predicate a, b` if it is known while building."""
    if a.number is None or b.number is None:
        if a.text == b.text and a.number is None and b.number is None:
            return predicate in ("eq", "ule", "uge", "sle", "sge")
        return None
    x, y = a.number, b.number
    if predicate.startswith("u"):
        width = bit_width(a.type)
        x, y = _unsigned(x, width), _unsigned(y, width)
    return _COMPARE[predicate.lstrip("us") if predicate not in ("eq", "ne") else predicate](x, y)


def fold_cast(op: str, value: Value, type: str) -> Value | None:
    """The integer constant that `zext`, `sext` or `trunc` makes of a constant; None where nothing folds."""
    if value.number is None or op not in ("zext", "sext", "trunc"):
        return None
    number = value.number
    if op == "zext":
        number = _unsigned(number, bit_width(value.type))
    elif op == "sext" and value.type == "i1":
        number = -number
    return integer(type, number)
