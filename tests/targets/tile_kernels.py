"""Hand-written `tile.kernel`s in the form insert-sync leaves them, for the tests of the targets."""

from typing import Any, cast

from treadle.dialects import sync, tile
from treadle.dialects.tile import (
    AllocOp,
    BroadcastOp,
    ContractOp,
    ConvertLayoutOp,
    CopyOp,
    KernelOp,
    LoadOp,
    LocalLoadOp,
    LocalStoreOp,
    ProgramIdOp,
    ReduceOp,
    StoreOp,
    ViewOp,
    YieldOp,
    shared_buffer_type,
    tile_of,
)
from treadle.dialects.tile_attributes import PointerType
from treadle.ir.core import Attribute, Block, ImplicitBuilder, Region, SSAValue
from treadle.ir.dialects import arith, builtin, math, scf
from treadle.layout.fragments import tile_fragment
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.machine import target_spec
from treadle.machine.fragments import wgmma_accumulator

INDEX = builtin.IndexType()


def index(value: int) -> SSAValue:
    return arith.ConstantOp(builtin.IntegerAttr(value, INDEX)).result


def splat(number: float, tile_type: builtin.TensorType) -> SSAValue:
    element = tile_type.element_type
    value = int(number) if isinstance(element, builtin.IntegerType) else number
    return arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(cast("Any", tile_type), [value]), tile_type).result


def kernel_block(pointers: list[Attribute], symbols: int = 0) -> Block:
    return Block(arg_types=[*(PointerType(p) for p in pointers), *[INDEX] * symbols])


def finish(
    name: str, block: Block, *, outputs: int = 1, grid: list[str], warps: int, symbols: list[str] | None = None, target: str = "sm_90a"
) -> KernelOp:
    pointers = sum(isinstance(a.type, PointerType) for a in block.args)
    kernel = KernelOp(
        name,
        block,
        symbols=symbols or [],
        grid=grid,
        num_warps=warps,
        target=target,
        arg_align=[16] * pointers,
        output_count=outputs,
    )
    kernel.verify()
    return kernel


def vector_add(element: Attribute, width: int = 4, target: str = "sm_90a", warps: int = 4) -> KernelOp:
    """Z = x + y over `s0` elements, tiles of warps * lanes * width."""
    lanes = target_spec(target).subgroup_size
    extent = lanes * warps * width
    layout = blocked([extent], [0], width, lanes, warps)
    block = kernel_block([element] * 3, 1)
    x, y, z, n = block.args
    with ImplicitBuilder(block):
        start = arith.MuliOp(ProgramIdOp(0).result, index(extent)).result
        views = [ViewOp(p, [n], [1], align=16).result for p in (x, y, z)]
        kind = tile_of([extent], element, layout)
        a = LoadOp(views[0], [start], [0], kind, vector=width).result
        b = LoadOp(views[1], [start], [0], kind, vector=width).result
        StoreOp(arith.AddfOp(a, b).result, views[2], [start], [0], vector=width)
        tile.ReturnOp()
    return finish("vector_add", block, grid=[f"(s0 + {extent - 1}) // {extent}", "1", "1"], warps=warps, symbols=["s0"], target=target)


def maximum_region(element: Attribute) -> Region:
    body = Block(arg_types=[element, element])
    with ImplicitBuilder(body):
        YieldOp([arith.MaximumfOp(body.args[0], body.args[1]).result])
    return Region(body)


def add_region(element: Attribute) -> Region:
    body = Block(arg_types=[element, element])
    with ImplicitBuilder(body):
        YieldOp([arith.AddfOp(body.args[0], body.args[1]).result])
    return Region(body)


def softmax(rows: int, columns: int, extent: int, target: str = "sm_90a", warps: int = 4) -> KernelOp:
    """Row softmax in f32 of `rows` x `columns`, a row a warp, `extent` >= columns held at once."""
    lanes = target_spec(target).subgroup_size
    f32 = builtin.f32
    layout = blocked([warps, extent], [1, 0], 1, lanes, 1)
    # One row a warp: warp bits move along dimension 0.
    layout = TileLayout(
        tuple(b for b in layout.register if b[1]),
        layout.lane,
        tuple((1 << i, 0) for i in range(warps.bit_length() - 1)),
        (1, layout.repeat[1]),
    )
    block = kernel_block([f32, f32])
    x, z = block.args
    with ImplicitBuilder(block):
        row, zero = arith.MuliOp(ProgramIdOp(0).result, index(warps)).result, index(0)
        source, target_view = (ViewOp(p, [rows, columns], [columns, 1], align=4).result for p in (x, z))
        kind = tile_of([warps, extent], f32, layout)
        narrow = tile_of([warps, 1], f32, layout.with_unit_dim(1))
        values = LoadOp(source, [row, zero], [0, 1], kind, other=builtin.FloatAttr(float("-inf"), f32)).result
        top = ReduceOp([values], 1, maximum_region(f32), [narrow]).results_[0]
        powers = math.ExpOp(arith.SubfOp(values, BroadcastOp(top, kind).result).result).result
        total = ReduceOp([powers], 1, add_region(f32), [narrow]).results_[0]
        StoreOp(arith.DivfOp(powers, BroadcastOp(total, kind).result).result, target_view, [row, zero], [0, 1])
        tile.ReturnOp()
    return finish("softmax", block, grid=[str(-(-rows // warps)), "1", "1"], warps=warps, target=target)


def fma_matmul(
    m: int, n: int, k: int, element: Attribute, target: str = "sm_90a", warps: int = 4, side: int = 64, depth: int = 16
) -> KernelOp:
    """C = A B with f32 sums: operands through shared memory to registers, `side` x `side` x `depth` tiles, ragged everywhere."""
    lanes = target_spec(target).subgroup_size
    f32 = builtin.f32
    across = (lanes * warps).bit_length() - 1
    # Threads in a grid over the tile, columns first; what is left of each side is in registers.
    columns = min(across // 2, side.bit_length() - 1)
    bits = [(0, 1 << i) for i in range(columns)] + [(1 << i, 0) for i in range(across - columns)]
    lane_bits = lanes.bit_length() - 1
    rest_m = [(1 << i, 0) for i in range(across - columns, side.bit_length() - 1)]
    rest_n = [(0, 1 << i) for i in range(columns, side.bit_length() - 1)]
    accumulator = TileLayout((*rest_n, *rest_m), tuple(bits[:lane_bits]), tuple(bits[lane_bits:]), (1, 1))
    k_bits = tuple(1 << i for i in range(depth.bit_length() - 1))
    a_layout = TileLayout(
        (*((0, v) for v in k_bits), *rest_m),
        tuple((v[0], 0) for v in accumulator.lane),
        tuple((v[0], 0) for v in accumulator.warp),
        (1, 1),
    )
    b_layout = TileLayout(
        (*((v, 0) for v in k_bits), *rest_n),
        tuple((0, v[1]) for v in accumulator.lane),
        tuple((0, v[1]) for v in accumulator.warp),
        (1, 1),
    )
    block = kernel_block([element, element, f32])
    pa, pb, pc = block.args
    with ImplicitBuilder(block):
        zero, one = index(0), index(1)
        mm = arith.MuliOp(ProgramIdOp(0).result, index(side)).result
        nn = arith.MuliOp(ProgramIdOp(1).result, index(side)).result
        va = ViewOp(pa, [m, k], [k, 1], align=4).result
        vb = ViewOp(pb, [k, n], [n, 1], align=4).result
        vc = ViewOp(pc, [m, n], [n, 1], align=4).result
        sa = AllocOp(shared_buffer_type([side, depth], element, row_major([side, depth], (1, 0)))).result
        sb = AllocOp(shared_buffer_type([depth, side], element, row_major([depth, side], (1, 0)))).result
        ga = tile_of([side, depth], element, blocked([side, depth], (1, 0), 1, lanes, warps))
        gb = tile_of([depth, side], element, blocked([depth, side], (1, 0), 1, lanes, warps))
        acc_type = tile_of([side, side], f32, accumulator)
        start = splat(0.0, acc_type)
        body = Block(arg_types=[INDEX, acc_type])
        with ImplicitBuilder(body):
            kk, acc = body.args
            a = LoadOp(va, [mm, kk], [0, 1], ga).result
            b = LoadOp(vb, [kk, nn], [0, 1], gb).result
            sync.BarrierOp()
            LocalStoreOp(a, sa, [0, 0])
            LocalStoreOp(b, sb, [0, 0])
            sync.BarrierOp()
            la = LocalLoadOp(sa, [0, 0], tile_of([side, depth], element, a_layout)).result
            lb = LocalLoadOp(sb, [0, 0], tile_of([depth, side], element, b_layout)).result
            scf.YieldOp(ContractOp(la, lb, acc, "fma").result)
        loop = scf.ForOp(zero, index(k), index(depth), [start], body)
        StoreOp(loop.results[0], vc, [mm, nn], [0, 1])
        _ = one
        tile.ReturnOp()
    return finish("fma_matmul", block, grid=[str(-(-m // side)), str(-(-n // side)), "1"], warps=warps, target=target)


def wgmma_matmul(
    m: int,
    n: int,
    k: int,
    element: Attribute,
    *,
    tile_shape: tuple[int, int, int] = (128, 128, 64),
    warp_grid: tuple[int, int] = (2, 1),
    b_transposed: bool = True,
    copies: bool = True,
    instruction: str = "wgmma_m64k16_f32_bf16_bf16",
    result: Attribute | None = None,
    row_bytes: int = 128,
    accumulator_type: Attribute | None = None,
    a_shared: SharedLayout | None = None,
) -> KernelOp:
    """C = A B, or with `b_transposed` C = A B^T (B is n x k), operands by tensor copies or through registers (`copies` False)."""
    accumulator = accumulator_type or builtin.f32
    out = result or accumulator
    bm, bn, bk = tile_shape
    size = builtin_bytes(element)
    warps = 4 * warp_grid[0] * warp_grid[1]
    layout = tile_fragment(wgmma_accumulator(bn // warp_grid[1]), (bm, bn), warp_grid)
    block = kernel_block([element, element, out])
    pa, pb, pc = block.args
    with ImplicitBuilder(block):
        mm = arith.MuliOp(ProgramIdOp(0).result, index(bm)).result
        nn = arith.MuliOp(ProgramIdOp(1).result, index(bn)).result
        va = ViewOp(pa, [m, k], [k, 1], align=16).result
        # The loop dimensions are (k, n); their strides say how B lies.
        vb = ViewOp(pb, [k, n], [1, k] if b_transposed else [n, 1], align=16).result
        vc = ViewOp(pc, [m, n], [n, 1], align=16).result
        sa = AllocOp(shared_buffer_type([bm, bk], element, a_shared or swizzled([bm, bk], (1, 0), size, row_bytes))).result
        order = (0, 1) if b_transposed else (1, 0)
        sb = AllocOp(shared_buffer_type([bk, bn], element, swizzled([bk, bn], order, size, row_bytes))).result
        acc_type = tile_of([bm, bn], accumulator, layout)
        start = splat(0.0, acc_type)
        barrier = sync.MbarrierAllocOp(1).result if copies else None
        parity = arith.ConstantOp(builtin.IntegerAttr(0, 32)).result
        flip = arith.ConstantOp(builtin.IntegerAttr(1, 32)).result
        body = Block(arg_types=[INDEX, acc_type, builtin.i32])
        with ImplicitBuilder(body):
            kk, acc, phase = body.args
            if barrier is not None:
                sync.MbarrierExpectOp(barrier, (bm + bn) * bk * size)
                CopyOp(va, [mm, kk], [0, 1], sa, path="bulk_tensor", barrier=barrier)
                CopyOp(vb, [kk, nn], [0, 1], sb, path="bulk_tensor", barrier=barrier)
                sync.WaitPhaseOp(barrier, phase)
            else:
                vector = 16 // size
                ta = tile_of([bm, bk], element, blocked([bm, bk], (1, 0), vector, 32, warps))
                tb = tile_of([bk, bn], element, blocked([bk, bn], order, vector, 32, warps))
                a = LoadOp(va, [mm, kk], [0, 1], ta, vector=vector if k % vector == 0 else 1).result
                b = LoadOp(vb, [kk, nn], [0, 1], tb, vector=vector if (k if b_transposed else n) % vector == 0 else 1).result
                LocalStoreOp(a, sa, [0, 0])
                LocalStoreOp(b, sb, [0, 0])
                sync.FenceOp("async_shared")
                sync.BarrierOp()
            next_acc = ContractOp(sa, sb, acc, instruction).result
            sync.CommitOp("wgmma")
            sync.WaitOp("wgmma", 0)
            sync.BarrierOp()
            scf.YieldOp(next_acc, arith.XOrIOp(phase, flip).result)
        loop = scf.ForOp(index(0), index(k), index(bk), [start, parity], body)
        total: SSAValue = loop.results[0]
        if out != accumulator:
            total = arith.TruncFOp(total, tile_of([bm, bn], out, layout)).result
        StoreOp(total, vc, [mm, nn], [0, 1], vector=2 if n % 2 == 0 else 1)
        tile.ReturnOp()
    return finish("wgmma_matmul", block, grid=[str(-(-m // bm)), str(-(-n // bn)), "1"], warps=warps)


def builtin_bytes(element: Attribute) -> int:
    return {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "i32": 4}.get(str(element), 1)


def copy_only(shape: tuple[int, int], element: Attribute, layout: SharedLayout) -> KernelOp:
    """One tensor copy of a tile, and nothing else."""
    block = kernel_block([element, element], 1)
    with ImplicitBuilder(block):
        rows = block.args[2]
        view = ViewOp(block.args[0], [rows, 4096], [4096, 1], align=16).result
        buffer = AllocOp(shared_buffer_type(shape, element, layout)).result
        barrier = sync.MbarrierAllocOp(1).result
        sync.MbarrierExpectOp(barrier, shape[0] * shape[1] * builtin_bytes(element))
        CopyOp(view, [index(0), index(0)], [0, 1], buffer, path="bulk_tensor", barrier=barrier)
        sync.WaitPhaseOp(barrier, arith.ConstantOp(builtin.IntegerAttr(0, 32)).result)
        tile.ReturnOp()
    return finish("copy_only", block, grid=["1", "1", "1"], warps=4, symbols=["s0"])


def converted(element: Attribute, source: TileLayout, result: TileLayout, target: str = "sm_90a", warps: int = 4) -> KernelOp:
    """A tile read in one layout and written in another that stays within warps."""
    shape = source.shape
    block = kernel_block([element, element])
    with ImplicitBuilder(block):
        views = [ViewOp(p, list(shape), [shape[1], 1], align=16).result for p in block.args]
        value = LoadOp(views[0], [index(0), index(0)], [0, 1], tile_of(shape, element, source)).result
        StoreOp(ConvertLayoutOp(value, result).result, views[1], [index(0), index(0)], [0, 1])
        tile.ReturnOp()
    return finish("converted", block, grid=["1", "1", "1"], warps=warps, target=target)


def warp_conversions(warps: int = 4) -> dict[str, tuple[TileLayout, TileLayout]]:
    """Pairs of layouts of 32 lanes between which a conversion stays within warps."""
    warp = tuple((0, 64 << i) for i in range(warps.bit_length() - 1))
    rows, columns = tuple((1 << i, 0) for i in range(5)), tuple((0, 1 << i) for i in range(5))
    swapped = TileLayout((*rows, (0, 32)), columns, warp, (1, 1)), TileLayout((*columns, (0, 32)), rows, warp, (1, 1))
    bit = (
        TileLayout(((0, 1), (0, 32)), ((0, 2), (0, 4), (0, 8), (0, 16), (1, 0)), warp, (1, 1)),
        TileLayout(((1, 0), (0, 32)), ((0, 2), (0, 4), (0, 8), (0, 16), (0, 1)), warp, (1, 1)),
    )
    turned = (
        TileLayout(((0, 32),), columns, warp, (3, 1)),
        TileLayout(((0, 32),), (*columns[2:], *columns[:2]), warp, (3, 1)),
    )
    return {"transposed": swapped, "one_bit": bit, "lanes_turned": turned}
