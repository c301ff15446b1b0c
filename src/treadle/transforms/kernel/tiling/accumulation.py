"""How the products of one step along k join the running accumulators of a contraction."""

from collections.abc import Sequence

from treadle.analysis.indexing import Contraction, StructuredOp
from treadle.dialects import tile
from treadle.ir.builtin import number_attr
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.plan.f32_split import Split
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.index_math import IndexBuilder
from treadle.transforms.kernel.tiling.scalars import Value, dense


def scale_of(kernel: KernelBuilder, root: StructuredOp, kind: Contraction, frame: Frame) -> SSAValue | None:
    """The product of a contraction's scales where the loops are, over the tile of its accumulators; None where it has none."""
    evaluator = kernel.evaluator(frame)
    found: Value | None = None
    for number in kind.scales:
        value = kernel.value(root.inputs[number], kernel.reached(root.input_maps[number]), frame)
        # Each is as small as the axes it depends on: rows and columns meet in the last product only.
        found = value if found is None else evaluator.combine(arith.MulfOp, [found, value])
    return None if found is None else evaluator.materialize(found, frame.extents)


def accumulate(
    index: IndexBuilder,
    operands: Sequence[tuple[SSAValue, SSAValue]],
    accumulators: Sequence[SSAValue],
    instruction: str,
    scales: Sequence[SSAValue | None],
    *,
    promoted: bool,
) -> list[SSAValue]:
    """The accumulators of all contractions after one step: `operands` are the tiles of A and B of each, `scales` what its products are
    times.

    `promoted`: the products are summed from zero and added in f32, which rounds where the matrix unit cuts. The contractions stand side by
    side: what they share is staged once, and one group of matrix instructions holds all of them.

    Source: H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores" (2022); DeepSeek-V3 does it for 8-bit floats.
    """
    kind = tile.tile_type(accumulators[0])
    nothing = index.insert(dense(number_attr(0, kind.element_type), kind.element_type, kind.get_shape())) if promoted else None
    parts = [index.insert(tile.ContractOp(a, b, nothing or own, instruction)) for (a, b), own in zip(operands, accumulators, strict=True)]
    if not promoted:
        return parts
    return [_added(index, total, part, scale) for total, part, scale in zip(accumulators, parts, scales, strict=True)]


def split_tile(index: IndexBuilder, value: SSAValue, split: Split) -> list[SSAValue]:
    """The bf16 parts of a tile of f32, large first: each is what is left, rounded. Those of infinity are NaN but for the first. A single
    part of tf32 is the tile itself, which is rounded where the matrix instruction gets it.
    """
    if split.element != "bf16":
        return [value]
    shape = tile.tile_type(value).get_shape()
    narrow, wide = builtin.TensorType(builtin.bf16, shape), value.type
    parts: list[SSAValue] = []
    for _ in range(split.parts):
        parts.append(index.insert(arith.TruncFOp(value, narrow)))
        if len(parts) < split.parts:
            value = index.insert(arith.SubfOp(value, index.insert(arith.ExtFOp(parts[-1], wide))))
    return parts


def accumulate_parts(
    index: IndexBuilder, operands: tuple[SSAValue, SSAValue], total: SSAValue, instruction: str, split: Split, *, promoted: bool
) -> SSAValue:
    """The accumulators after one step whose operands are tiles of f32: the products of their parts, one after the other."""
    left, right = (split_tile(index, operand, split) for operand in operands)
    kind = tile.tile_type(total)
    part = index.insert(dense(number_attr(0, kind.element_type), kind.element_type, kind.get_shape())) if promoted else total
    for a, b in split.products:
        part = index.insert(tile.ContractOp(left[a], right[b], part, instruction))
    return _added(index, total, part, None) if promoted else part


def _added(index: IndexBuilder, total: SSAValue, part: SSAValue, scale: SSAValue | None) -> SSAValue:
    if scale is None:
        return index.insert(arith.AddfOp.create(operands=[total, part], result_types=[part.type]))
    return index.insert(math.FmaOp.create(operands=[part, scale, total], result_types=[part.type]))
