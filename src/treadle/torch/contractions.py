"""Matrix products, as loop nests over named dimensions."""

from collections.abc import Sequence
from typing import Final

import torch

from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import linalg
from treadle.torch.elements import accumulator
from treadle.torch.nests import Nests, element
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size
from treadle.torch.values import Operand, Uniform, Value, loops_of

PRODUCTS: Final = {
    "aten::mm": ("mk", "kn", "mn"),
    "aten::bmm": ("bmk", "bkn", "bmn"),
    "aten::mv": ("mk", "k", "m"),
    "aten::dot": ("k", "k", ""),
    "aten::_int_mm": ("mk", "kn", "mn"),
}
"""The dimensions of the operands and of the result, by letters."""

SUMS: Final = {"aten::addmm": ("mk", "kn", "mn"), "aten::baddbmm": ("bmk", "bkn", "bmn"), "aten::addmv": ("mk", "k", "m")}
"""The same for those that add a matrix or a vector first."""


def contract(nests: Nests, left: Operand, right: Operand, spec: Sequence[str], dtype: torch.dtype) -> Value:
    """The sum of products over the letters that the result lacks, accumulated in f32 (or as integers `dtype`) and seen as `dtype`."""
    operands = [nests.rounded(left), nests.rounded(right)]
    sizes: dict[str, Size] = {}
    for value, letters in zip(operands, spec, strict=False):
        for letter, size in zip(letters, value.shape, strict=True):
            sizes[letter] = size if letter not in sizes or isinstance(size, int) else sizes[letter]
    summed = [letter for letter in dict.fromkeys(spec[0] + spec[1]) if letter not in spec[2]]
    loops = [letter for letter in (*spec[2], *summed) if sizes[letter] != 1]
    read = [_covering(nests, value, letters, loops) for value, letters in zip(operands, spec, strict=False)]
    total = accumulator(dtype) if dtype.is_floating_point else dtype
    shape = tuple(sizes[letter] for letter in spec[2])
    if not any(letter in loops for letter in summed):
        return _outer(nests, read, spec, shape, dtype, total)
    body = Block(arg_types=[*(element(value.stored) for value in read), element(total)])
    scalars = Scalars(body)
    a, b = (scalars.cast(arg, value.stored, total) for arg, value in zip(body.args, read, strict=False))
    body.add_op(linalg.ops.YieldOp(scalars.add(body.args[2], scalars.multiply(a, b))))
    inputs = [(value.tensor, [loops.index(letters[axis]) for axis in value.axes]) for value, letters in zip(read, spec, strict=False)]
    kept = [letter for letter in spec[2] if letter in loops]
    start = nests.filled(0, [sizes[letter] for letter in kept], total)
    kinds = ["reduction" if letter in summed else "parallel" for letter in loops]
    result = nests.generic(inputs, (start, [loops.index(letter) for letter in kept]), kinds, body)
    return Value(result, loops_of(shape), shape, dtype, total)


def _covering(nests: Nests, value: Operand, letters: str, loops: Sequence[str]) -> Value:
    """The operand with every loop of its own stored: what is repeated along a loop would leave it without a size."""
    if isinstance(value, Uniform) or any(letters[dim] in loops and dim not in value.axes for dim in range(len(letters))):
        return nests.row_major(value)
    return value


def _outer(
    nests: Nests, read: Sequence[Value], spec: Sequence[str], shape: tuple[Size, ...], dtype: torch.dtype, total: torch.dtype
) -> Value:
    """A product that sums one term an element."""
    placed: list[Operand] = []
    for value, letters in zip(read, spec, strict=False):
        axes = tuple(spec[2].index(letters[axis]) for axis in value.axes)
        placed.append(value.moved(axes, [size if dim in axes else 1 for dim, size in enumerate(shape)]))

    def multiply(s: Scalars, given: list[SSAValue]) -> SSAValue:
        a, b = (s.cast(arg, value.stored, total) for arg, value in zip(given, read, strict=True))
        return s.multiply(a, b)

    return nests.elementwise(placed, shape, dtype, multiply, total)


def scaled_sum(nests: Nests, first: Operand, product: Value, alpha: float, beta: float) -> Value:
    """`beta * first + alpha * product`, computed in the type of the product's sums."""

    def add(s: Scalars, given: list[SSAValue]) -> SSAValue:
        total = given[1] if alpha == 1 else s.multiply(given[1], s.like(given[1], alpha))
        source = first.stored if isinstance(first, Value) else first.dtype
        extra = s.cast(given[0], source, product.stored)
        return s.add(total, extra if beta == 1 else s.multiply(extra, s.like(extra, beta)))

    return nests.elementwise([first, product], product.shape, product.dtype, add, product.stored)
