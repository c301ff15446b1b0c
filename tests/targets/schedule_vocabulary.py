"""What hand-written schedule-level programs are built of: index arithmetic, slots, rings, roles, views and layouts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from targets.tile_kernels import INDEX, index

from treadle.dialects import pipe, tile
from treadle.dialects.tile import (
    AllocOp,
    ViewOp,
    shared_buffer_type,
    tile_of,
)
from treadle.ir.core import Block, ImplicitBuilder, Region, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.layout.fragments import tile_fragment
from treadle.layout.shared_layout import SharedLayout, swizzled
from treadle.layout.tile_layout import TileLayout
from treadle.machine.fragments import wgmma_accumulator

BF16, F32, I32 = builtin.bf16, builtin.f32, builtin.i32
MMA = "wgmma_m64k16_f32_bf16_bf16"
DEPTH = 64


def i32(value: int) -> SSAValue:
    return arith.ConstantOp(builtin.IntegerAttr(value, 32)).result


def add(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.AddiOp(a, b).result


def mul(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.MuliOp(a, b).result


def slotted(shape: Sequence[int], order: Sequence[int], *slots: int) -> tuple[SSAValue, SharedLayout]:
    """Swizzled bf16 buffers of `shape`, `slots` of them; the allocation and the layout of one."""
    layout = whole = swizzled(shape, order, 2, 128)
    for count in reversed(slots):
        whole = whole.stacked(count)
    return AllocOp(shared_buffer_type([*slots, *shape], BF16, whole)).result, layout


def slot(buffer: tuple[SSAValue, SharedLayout], *indices: SSAValue) -> SSAValue:
    return pipe.SlotOp(buffer[0], list(indices), buffer[1]).result


@dataclass
class Ring:
    """A ring of `stages` slots: place and phase, one step further each time."""

    stages: int

    def state(self) -> list[SSAValue]:
        return [index(0), i32(0)]

    def advance(self, at: SSAValue, phase: SSAValue) -> list[SSAValue]:
        following = add(at, index(1))
        wraps = arith.CmpiOp(following, index(self.stages), "eq").result
        flipped = arith.XOrIOp(phase, i32(1)).result
        return [arith.SelectOp(wraps, index(0), following).result, arith.SelectOp(wraps, flipped, phase).result]


def for_loop(low: SSAValue, high: SSAValue, step: int, start: Sequence[SSAValue], body: Any) -> list[SSAValue]:
    """`body(index, carried)` gives the next carried values."""
    block = Block(arg_types=[INDEX, *(v.type for v in start)])
    with ImplicitBuilder(block):
        scf.YieldOp(*body(block.args[0], list(block.args[1:])))
    return list(scf.ForOp(low, high, index(step), list(start), block).results)


def when(condition: SSAValue, then: Any, otherwise: Any = None) -> None:
    def region(body: Any) -> Region:
        block = Block()
        with ImplicitBuilder(block):
            if body is not None:
                body()
            scf.YieldOp()
        return Region(block)

    scf.IfOp(condition, [], region(then), region(otherwise))


def role(body: Any) -> Region:
    block = Block()
    with ImplicitBuilder(block):
        body()
        pipe.EndRoleOp()
    return Region(block)


def matmul_views(args: Sequence[SSAValue], m: int, n: int, k: int, pitch: int = 0) -> tuple[SSAValue, SSAValue, SSAValue]:
    """A (m, k), B^T seen as (k, n), C (m, n), all row-major; rows of A and of B `pitch` elements apart, not k, where that is not 0."""
    pa, pb, pc = args
    return (
        ViewOp(pa, [m, k], [pitch or k, 1], align=16).result,
        ViewOp(pb, [k, n], [1, pitch or k], align=16).result,
        ViewOp(pc, [m, n], [n, 1], align=16).result,
    )


def accumulator(shape: tuple[int, int], grid: tuple[int, int] = (1, 1)) -> TileLayout:
    return tile_fragment(wgmma_accumulator(shape[1] // grid[1]), shape, grid)


def narrowed(value: SSAValue) -> SSAValue:
    """A tile in bf16."""
    kind = tile.tile_type(value)
    return arith.TruncFOp(value, tile_of(kind.get_shape(), BF16, tile.layout_of(value))).result
