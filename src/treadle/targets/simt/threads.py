"""Thread-dependent parts of coordinates and addresses: linear maps over the bits of the lane and warp number."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import TRUE, Value, i32
from treadle.layout.bits import log2_exact
from treadle.layout.tile_layout import TileLayout
from treadle.targets.simt.context import KernelContext


def _runs(bits: Sequence[int]) -> list[tuple[int, int, int]]:
    """`(first bit, count, first value)` of runs of bits whose values double; zero values belong to none."""
    runs: list[tuple[int, int, int]] = []
    for bit, value in enumerate(bits):
        if not value:
            continue
        if runs:
            start, count, first = runs[-1]
            if start + count == bit and value == first << count and log2_exact(first) >= 0:
                runs[-1] = (start, count + 1, first)
                continue
        runs.append((bit, 1, value))
    return runs


def _terms(ctx: KernelContext, number: Value, bits: Sequence[int]) -> list[tuple[Value, int]]:
    """`(value, mask of the bits it may set)` whose XOR (or sum, where masks are disjoint) is the map's value."""
    b = ctx.b
    terms: list[tuple[Value, int]] = []
    for start, count, first in _runs(bits):
        shift = log2_exact(first)
        if shift < 0:
            bit = b.and_(b.lshr(number, i32(start)), i32(1))
            terms.append((b.mul(bit, i32(first)), first))
            continue
        part = number
        mask = (1 << count) - 1
        if start + count < len(bits) or start:
            part = b.and_(number, i32(mask << start))
        move = shift - start
        part = b.shl(part, i32(move)) if move >= 0 else b.lshr(part, i32(-move))
        terms.append((part, mask << shift))
    return terms


def linear(ctx: KernelContext, lane_bits: Sequence[int], warp_bits: Sequence[int], *, add: bool = False) -> Value:
    """XOR (or, with `add`, sum) of the values of the set bits of the lane and the warp, as i32."""
    b = ctx.b
    result, taken = i32(0), 0
    for term, mask in _terms(ctx, ctx.lane, lane_bits) + _terms(ctx, ctx.warp, warp_bits):
        if add:
            result = b.add(result, term)
        else:
            result = b.xor(result, term) if taken & mask else b.or_(result, term, "disjoint" if taken else "")
        taken |= mask
    return result


def thread_coordinates(ctx: KernelContext, layout: TileLayout) -> tuple[Value, ...]:
    """The thread's part of the coordinates along each dimension, as i32."""
    return tuple(linear(ctx, [basis[dim] for basis in layout.lane], [basis[dim] for basis in layout.warp]) for dim in range(layout.rank))


def holds_first_copy(ctx: KernelContext, layout: TileLayout) -> Value:
    """i1: the thread is the one of its replicas that stores."""
    b = ctx.b
    condition = TRUE
    for number, mask in ((ctx.lane, layout.replicated_lane_bits()), (ctx.warp, layout.replicated_warp_bits())):
        if mask:
            condition = b.and_(condition, b.icmp("eq", b.and_(number, i32(mask)), i32(0)))
    return condition
