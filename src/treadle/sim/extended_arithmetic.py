"""Integer operations of `arith` with two results, in exact arithmetic on Python's integers."""

from collections.abc import Callable

import numpy as np

from treadle.ir.dialects import arith
from treadle.sim.element_types import Array

Extended = Callable[[Array, Array, int], tuple[Array, Array]]
"""Two operands and the width of their type in bits (booleans stand for one bit) to the two results."""


def _exact(array: Array, width: int, *, signed: bool) -> Array:
    """The numbers that the bits stand for, as Python's integers."""
    if array.dtype == np.bool_:
        return np.where(array, -1 if signed else 1, 0).astype(object)
    return array.astype(object) if signed else array.astype(object) % (1 << width)


def _stored(numbers: Array, like: Array, width: int) -> Array:
    """The lowest `width` bits in the type of `like`."""
    if like.dtype == np.bool_:
        return np.asarray(numbers % 2, dtype=np.bool_)
    bits = np.asarray(numbers % (1 << width), dtype=f"u{width // 8}")
    return bits.astype(like.dtype)


def _add(a: Array, b: Array, width: int) -> tuple[Array, Array]:
    bits = 1 if a.dtype == np.bool_ else width
    total = np.asarray(_exact(a, width, signed=False) + _exact(b, width, signed=False), dtype=object)
    return _stored(total, a, bits), np.asarray(total >= 1 << bits, dtype=np.bool_)


def _multiply(*, signed: bool) -> Extended:
    def apply(a: Array, b: Array, width: int) -> tuple[Array, Array]:
        bits = 1 if a.dtype == np.bool_ else width
        product = np.asarray(_exact(a, width, signed=signed) * _exact(b, width, signed=signed), dtype=object)
        return _stored(product, a, bits), _stored(product >> bits, a, bits)

    return apply


EXTENDED: dict[str, Extended] = {
    arith.AddUIExtendedOp.name: _add,
    arith.MulSIExtendedOp.name: _multiply(signed=True),
    arith.MulUIExtendedOp.name: _multiply(signed=False),
}
