"""Index and integer arithmetic of schedules, on Python integers. A value nobody knows is None and makes its users None."""

from collections.abc import Callable

from treadle.ir.core import Operation
from treadle.ir.dialects import builtin

Scalar = int | None
Function = Callable[[list[object], tuple[int, ...]], Scalar]


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def width_of(value_type: object) -> int:
    """Bits of an integer or index type; 0 for anything else."""
    if isinstance(value_type, builtin.IntegerType):
        return value_type.width.data
    return 32 if isinstance(value_type, builtin.IndexType) else 0


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.remui": lambda a, b: a % b,
    "arith.remsi": lambda a, b: a - b * _truncated(a, b),
    "arith.divui": lambda a, b: a // b,
    "arith.divsi": _truncated,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.minsi": min,
    "arith.minui": min,
    "arith.maxsi": max,
    "arith.maxui": max,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b,
    "arith.shrsi": lambda a, b: a >> b,
    "arith.shrui": lambda a, b: a >> b,
}
_UNSIGNED = frozenset({"arith.remui", "arith.divui", "arith.ceildivui", "arith.minui", "arith.maxui", "arith.shrui"})
_COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
)
_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi", "arith.trunci")


def constant_value(op: Operation) -> Scalar:
    """The value of an `arith.constant` of integer or index type."""
    value = op.properties.get("value")
    return value.value.data if isinstance(value, builtin.IntegerAttr) else None


def scalar_function(op: Operation) -> Callable[..., int] | None:
    """What a scalar operation computes from its operands; None where this is not known."""
    name = op.name
    bits = width_of(op.results[0].type) if op.results else 0
    if name in _BINARY and bits:
        function = _BINARY[name]
        if bits == 1:
            return lambda a, b: function(a, b) & 1
        if name in _UNSIGNED:
            mask = (1 << bits) - 1
            return lambda a, b: _signed(function(a & mask, b & mask), bits)
        half = 1 << (bits - 1)

        def wrapped(a: int, b: int) -> int:
            result = function(a, b)
            return result if -half <= result < half else _signed(result, bits)

        return wrapped
    if name == "arith.cmpi":
        predicate = op.properties["predicate"]
        which = predicate.value.data if isinstance(predicate, builtin.IntegerAttr) else 0
        if which < 6:
            compare = _COMPARISONS[which]
            return lambda a, b: int(compare(a, b))
        compare = _COMPARISONS[which - 4]
        mask = (1 << (width_of(op.operands[0].type) or 64)) - 1
        return lambda a, b: int(compare(a & mask, b & mask))
    if name == "arith.select" and bits:
        return lambda c, a, b: a if c else b
    if name in _CASTS and bits:
        if name == "arith.extui" or name == "arith.index_castui":
            mask = (1 << (width_of(op.operands[0].type) or 64)) - 1
            return lambda a: a & mask
        return (lambda a: a & 1) if bits == 1 else (lambda a: _signed(a, bits))
    return None
