"""Sums of products over loop dimensions, through matrix products.

Arrays live in *loop space*: one axis for each loop, of extent 1 where the array does not depend on the loop.
"""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from treadle.sim.element_types import Array
from treadle.sim.error_analysis import Tracked

EXACT_IN_FLOAT64 = 2.0**53


def used(array: Array) -> frozenset[int]:
    """The loops an array depends on."""
    return frozenset(axis for axis, extent in enumerate(array.shape) if extent != 1)


def _largest(array: Array) -> float:
    return float(np.max(np.abs(array.astype(np.float64)))) if array.size else 0.0


def matrix_product(a: Array, b: Array) -> Array:
    """A (batched) matrix product; integers exactly, modulo their width."""
    if a.dtype.kind == "f":
        return a @ b
    if a.dtype == np.bool_:
        return ((a.astype(np.float64) @ b.astype(np.float64)) % 2).astype(np.bool_)  # i1 counts modulo 2
    if a.shape[-1] * _largest(a) * _largest(b) < EXACT_IN_FLOAT64:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(a.dtype)
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(a.dtype)


def _summed(array: Array, axes: tuple[int, ...]) -> Array:
    if array.dtype == np.bool_:
        return np.bitwise_xor.reduce(array, axis=axes, keepdims=True)
    return array.sum(axis=axes, keepdims=True, dtype=array.dtype)


def contract(a: Array, b: Array, reduced: Sequence[int], extents: Sequence[int]) -> Array:
    """Sum of `a * b` over the loops `reduced`; the result is in loop space, of extent 1 along them.

    Loops neither depends on count by their extent.
    """
    rank = len(extents)
    over = set(reduced)
    if only_a := tuple(sorted((used(a) - used(b)) & over)):
        a = _summed(a, only_a)
    if only_b := tuple(sorted((used(b) - used(a)) & over)):
        b = _summed(b, only_b)
    in_a, in_b = used(a), used(b)
    batch, rows = sorted((in_a & in_b) - over), sorted(in_a - in_b)
    columns, inner = sorted(in_b - in_a), sorted(in_a & in_b & over)
    missing = prod(extents[d] for d in over - in_a - in_b - set(only_a) - set(only_b))

    def arranged(array: Array, *groups: list[int]) -> Array:
        flat = [d for group in groups for d in group]
        rest = [d for d in range(rank) if d not in flat]
        return array.transpose(*flat, *rest).reshape([prod(array.shape[d] for d in group) for group in groups])

    product = matrix_product(arranged(a, batch, rows, inner), arranged(b, batch, inner, columns))
    order = [*batch, *rows, *columns]
    shape = [extents[d] for d in order]
    placed = product.reshape(shape).transpose([order.index(d) for d in sorted(order)])
    result = placed.reshape([extents[d] if d in order else 1 for d in range(rank)])
    return result if missing == 1 else result * np.asarray(missing % 2 if result.dtype == np.bool_ else missing).astype(result.dtype)


def contracted_squares(a: Array, b: Array, reduced: Sequence[int], extents: Sequence[int]) -> Array:
    """`contract` of the squares of two floating-point arrays, to float32 precision."""

    def scaled(array: Array) -> tuple[Array, float]:
        largest = max(float(np.max(array, initial=0.0)), -float(np.min(array, initial=0.0)))
        scale = largest if np.isfinite(largest) and largest > 0 else 1.0
        squares = np.divide(array, scale, dtype=np.float32, casting="same_kind")
        return np.multiply(squares, squares, out=squares), scale

    (a2, scale_a), (b2, scale_b) = scaled(a), scaled(b)
    return contract(a2, b2, reduced, extents).astype(np.float64) * (scale_a * scale_b) ** 2


def merge_factors(factors: Sequence[Tracked], multiply: Callable[[Tracked, Tracked], Tracked]) -> list[Tracked]:
    """Multiply factors together until one is left, or two of which neither depends on a subset of the other's loops."""
    left = sorted(factors, key=lambda f: f.value.size)
    while len(left) > 1:
        loops = [used(f.value) for f in left]
        pair = next(((i, j) for j in range(len(left)) for i in range(len(left)) if i != j and loops[i] <= loops[j]), None)
        if pair is None:
            if len(left) == 2:
                break
            pair = (0, 1)
        product = multiply(left[pair[0]], left[pair[1]])
        left = sorted([*(f for k, f in enumerate(left) if k not in pair), product], key=lambda f: f.value.size)
    return left
