"""What arithmetic on `index` computes: Python ints, held against the width that indices have in the kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dialects import tile
from treadle.ir.core import Attribute, Operation
from treadle.ir.dialects import arith, builtin
from treadle.ir.locations import location_of
from treadle.sim.element_types import storage_dtype
from treadle.sim.elementwise import Binary, Function, Ternary, attribute_value, unary
from treadle.sim.faults import SimulationFault


def _truncating_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INDEX: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": _truncating_quotient,
    "arith.divui": lambda a, b: a // b,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.remsi": lambda a, b: a - b * _truncating_quotient(a, b),
    "arith.remui": lambda a, b: a % b,
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
_ORDER: tuple[Binary, ...] = (lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b)
_UNSIGNED = frozenset(f"arith.{name}" for name in ("divui", "ceildivui", "remui", "minui", "maxui", "shrui"))
_FIRST_UNSIGNED = 6
"""Among the predicates of comparisons."""
_INDEX_COMPARISONS: tuple[Binary, ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    *_ORDER,
    *_ORDER,
)
_AFFINE: dict[str, Callable[[Sequence[int]], int]] = {"affine.apply": lambda r: r[0], "affine.min": min, "affine.max": max}


def _two(function: Binary) -> Function:
    return function


def _three(function: Ternary) -> Function:
    return function


def is_index(value_type: Attribute) -> bool:
    """Whether a type is `index`."""
    return isinstance(value_type, builtin.IndexType)


def index_width_around(op: Operation) -> int:
    """Bits of an `index` in the kernel around an operation; 64 outside of kernels."""
    around = op.parent_op()
    while around is not None and not isinstance(around, tile.KernelOp):
        around = around.parent_op()
    return around.index_width() if around is not None else 64


def check_symbols(kernel: tile.KernelOp, symbols: Sequence[int]) -> None:
    """Raise SimulationFault for an argument that the kernel's indices do not hold: a launch would cut it."""
    limit = 1 << (kernel.index_width() - 1)
    if any(not -limit <= s < limit for s in symbols):
        raise SimulationFault(f"kernel {kernel.sym_name.data} takes indices of {kernel.index_width()} bits, given {list(symbols)}")


def index_check(op: Operation) -> Callable[[int], int]:
    """What an operation's index results pass through: a SimulationFault where the kernel's indices do not hold the value."""
    bits = index_width_around(op)
    limit = 1 << (bits - 1)

    def check(value: int) -> int:
        if not -limit <= value < limit:
            raise SimulationFault(f"{op.name} at {location_of(op)} gives the index {value}, which {bits} bits do not hold")
        return value

    return check


def _on_unsigned(function: Binary, op: Operation, *, is_number: bool) -> Binary:
    """A function of numbers as those without a sign that have the same bits; so is its result, if it is a number."""
    bits = index_width_around(op)

    def apply(a: int, b: int) -> Any:
        if a >= 0 and b >= 0:
            return function(a, b)
        found = function(a % (1 << bits), b % (1 << bits))
        return found - (1 << bits) if is_number and found >> (bits - 1) else found

    return apply


def index_function(op: Operation) -> Function | None:
    """Arithmetic on `index`; None where the operation has nothing to do with it."""
    if isinstance(op, arith.CmpiOp) and is_index(op.lhs.type):
        compare = _INDEX_COMPARISONS[op.predicate.value.data]
        return _two(_on_unsigned(compare, op, is_number=False) if op.predicate.value.data >= _FIRST_UNSIGNED else compare)
    if op.name in ("arith.index_cast", "arith.index_castui"):
        if is_index(op.results[0].type):
            held = index_check(op)
            return unary(lambda a: held(int(a)))
        dtype = storage_dtype(op.results[0].type)
        return unary(lambda a: np.asarray(a).astype(dtype))
    if not op.results or not is_index(op.results[0].type):
        return None
    if isinstance(op, arith.ConstantOp):
        constant = index_check(op)(int(attribute_value(op.value, storage_dtype)))
        return lambda: constant
    if isinstance(op, arith.SelectOp):
        return _three(lambda condition, a, b: a if condition else b)
    if op.name in _INDEX:
        function, in_range = _INDEX[op.name], index_check(op)
        if op.name in _UNSIGNED:
            function = _on_unsigned(function, op, is_number=True)
        return _two(lambda a, b: in_range(function(a, b)))
    attribute = op.properties.get("map")
    if op.name in _AFFINE and isinstance(attribute, builtin.AffineMapAttr):
        affine_map, choose, in_range = attribute.data, _AFFINE[op.name], index_check(op)
        dims = affine_map.num_dims
        return lambda *args: in_range(choose(affine_map.eval(args[:dims], args[dims:])))
    return None
