"""How the products of one step along k join the running sums of a contraction."""

from collections.abc import Sequence

from treadle.dialects import tile
from treadle.ir.builtin import number_attr
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.transforms.kernel.tiling.index_math import IndexBuilder
from treadle.transforms.kernel.tiling.scalars import dense


def accumulate(
    index: IndexBuilder, operands: Sequence[tuple[SSAValue, SSAValue]], sums: Sequence[SSAValue], instruction: str, *, promoted: bool
) -> list[SSAValue]:
    """The sums of all contractions after one step: `operands` are the tiles of A and B of each.

    `promoted`: the products are summed from zero and added in f32, which rounds where the matrix unit cuts. The contractions stand side by
    side: what they share is staged once, and one group of matrix instructions holds all of them.

    Source: H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores" (2022); DeepSeek-V3 does it for 8-bit floats.
    """
    kind = tile.tile_type(sums[0])
    nothing = index.insert(dense(number_attr(0, kind.element_type), kind.element_type, kind.get_shape())) if promoted else None
    parts = [index.insert(tile.ContractOp(a, b, nothing or own, instruction)) for (a, b), own in zip(operands, sums, strict=True)]
    if not promoted:
        return parts
    return [index.insert(arith.AddfOp.create(operands=[a, b], result_types=[b.type])) for a, b in zip(sums, parts, strict=True)]
