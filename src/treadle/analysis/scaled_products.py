"""The product that a contraction sums: its factors, and which of them are operands and which scales.

`sum_k a[m, k] * b[n, k] * s[m, k / 128] * t[n / 128, k / 128]` is written with k split in two loops, `kb` over blocks and `ki` within one:
factors that read `ki` are the operands, the others are scales, constant over a block.
"""

from collections.abc import Sequence

from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Factor:
    """An argument of the body, and the operation that widens it ("" for none)."""

    argument: int
    cast: str


@dataclass(frozen=True, slots=True)
class Product:
    """Factors by what they are: two operands, in order of their arguments, and scales."""

    operands: tuple[Factor, Factor]
    scales: tuple[Factor, ...]
    inner: tuple[int, ...]


def factors_of(value: SSAValue, body: Block, widening: tuple[type[Operation], ...]) -> list[Factor] | None:
    """The arguments of `body` whose product `value` is; None where it is anything else."""
    owner = value.owner
    if isinstance(owner, arith.MulfOp | arith.MuliOp) and owner.parent_block() is body:
        left, right = (factors_of(operand, body, widening) for operand in owner.operands)
        return None if left is None or right is None else left + right
    cast = ""
    if isinstance(owner, widening) and owner.parent_block() is body:
        cast, value = owner.name, owner.operands[0]
    if isinstance(value, BlockArgument) and value.block is body:
        return [Factor(value.index, cast)]
    return None


def split_product(factors: Sequence[Factor], read: Sequence[set[int]], reduced: Sequence[int]) -> Product | None:
    """Tell operands from scales; `read`: the loops that each factor's tensor depends on. None where two operands cannot be told."""
    if len(factors) == 2:
        return Product((factors[0], factors[1]), (), tuple(reduced))
    inner = tuple(d for d in reduced if sum(d in dims for dims in read) == 2)
    pairs = {tuple(i for i, dims in enumerate(read) if d in dims) for d in inner}
    if len(pairs) != 1:
        return None
    first, second = next(iter(pairs))
    scales = tuple(factor for i, factor in enumerate(factors) if i not in (first, second))
    return Product((factors[first], factors[second]), scales, inner)
