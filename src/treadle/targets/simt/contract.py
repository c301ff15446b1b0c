"""`tile.contract "fma"`: multiply-adds of the vector units on register tiles."""

from treadle.codegen.llvm_text import Value, bit_width
from treadle.dialects.tile import ContractOp, tile_type
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.layout.bits import pack
from treadle.layout.tile_layout import TileLayout
from treadle.targets.simt.casts import convert_floats
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.types import is_float_type, register_type


def _along(ctx: KernelContext, value: SSAValue, axis: int, accumulator: SSAValue) -> dict[tuple[int, int], int]:
    """`(index along the accumulator's axis, k) -> register` in thread 0; the threads' parts must agree, and none move along k."""
    layout, target = ctx.layout(value), ctx.layout(accumulator)
    k_axis = 1 - axis
    for have, want in ((layout.lane, target.lane), (layout.warp, target.warp)):
        for mine, theirs in zip(have, want, strict=True):
            if mine[k_axis] or mine[axis] != theirs[axis]:
                raise InternalError(f"fma contraction: operand {layout.to_lists()} does not lie like the accumulator {target.to_lists()}")
    return {(at[axis], at[k_axis]): register for register, at in reversed(list(layout.registers()))}


def _operand(ctx: KernelContext, value: SSAValue, accumulator: SSAValue) -> list[Value]:
    b = ctx.b
    source, result = tile_type(value).element_type, tile_type(accumulator).element_type
    registers = ctx.tile(value)
    if is_float_type(result):
        return convert_floats(ctx, registers, source, result)
    kind = register_type(result)
    return [b.sext(v, kind) if bit_width(v.type) < bit_width(kind) else v for v in registers]


def _walk(layout: TileLayout) -> list[tuple[int, tuple[int, int]]]:
    """The registers of different elements and where these are in thread 0: row by row, every other row from its last column to its first.

    Neighbours then share a row, or at a turn a column: that operand need not come from the register file again.
    """
    first: dict[tuple[int, int], int] = {}
    for register, (m, n) in layout.registers():
        first.setdefault((m, n), register)
    rows = sorted({m for m, _ in first})
    return [
        (first[at], at) for number, row in enumerate(rows) for at in sorted((at for at in first if at[0] == row), reverse=number % 2 == 1)
    ]


def emit_fma(ctx: KernelContext, op: ContractOp) -> None:
    """acc(m, n) += sum over k of a(m, k) b(k, n), k ascending, one fused multiply-add a product."""
    b = ctx.b
    a_at = _along(ctx, op.a, 0, op.accumulator)
    b_at = _along(ctx, op.b, 1, op.accumulator)
    k_extent = op.operand_shape(op.a)[1]
    left, right = _operand(ctx, op.a, op.accumulator), _operand(ctx, op.b, op.accumulator)
    floats = is_float_type(tile_type(op.accumulator).element_type)
    layout = ctx.layout(op.accumulator)
    accumulators = list(ctx.tile(op.accumulator))
    walk = _walk(layout)
    for k in range(k_extent):
        for register, (m, n) in walk:
            x, y = left[a_at[m, k]], right[b_at[n, k]]
            accumulators[register] = (
                b.math("llvm.fma", [x, y, accumulators[register]]) if floats else b.add(b.mul(x, y), accumulators[register])
            )
    first = {pack(at): register for register, at in walk}
    ctx.bind(op.result, [accumulators[first[key]] for key in layout.register_keys()])
    ctx.counts.contractions += 1
