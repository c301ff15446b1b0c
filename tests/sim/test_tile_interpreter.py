"""Tile kernels in the interpreter, ragged sizes first."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from generators.tile_builder import KernelBuilder, matmul_kernel, shared_type

from treadle.dialects import sync, tile
from treadle.errors import TreadleError
from treadle.ir.core import Attribute, Block, Region, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import Pointer, View, Window
from treadle.sim.tile_interpreter import TileKernel

RNG = np.random.default_rng(11)
BF16 = ml_dtypes.bfloat16
F8 = ml_dtypes.float8_e4m3fn


def run(kernel: tile.KernelOp, arrays: list[np.ndarray], *symbols: int) -> None:
    kernel.verify()
    TileKernel(kernel).launch([Pointer(a.reshape(-1)) for a in arrays], symbols)


SIZES = [(1, 1, 1), (5, 3, 7), (16, 16, 16), (17, 31, 33), (40, 1, 100), (1, 64, 15), (33, 47, 64)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("through_shared", [False, True])
def test_ragged_matmul(m: int, n: int, k: int, through_shared: bool) -> None:
    a, b, c = RNG.standard_normal((m, k), dtype="f"), RNG.standard_normal((k, n), dtype="f"), np.full((m, n), np.nan, "f")
    run(matmul_kernel(builtin.f32, builtin.f32, (16, 16, 16), through_shared=through_shared), [a, b, c], m, n, k)
    assert np.allclose(c, a.astype("d") @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operand", "dtype", "accumulator", "result"),
    [
        (builtin.f16, np.float16, builtin.f32, np.float32),
        (builtin.bf16, BF16, builtin.f32, np.float32),
        (builtin.Float8E4M3FNType(), F8, builtin.f32, np.float32),
        (builtin.f64, np.float64, builtin.f64, np.float64),
        (builtin.f16, np.float16, builtin.f16, np.float16),
    ],
)
def test_types_of_contractions(operand: Attribute, dtype: type, accumulator: Attribute, result: type) -> None:
    m, n, k = 19, 9, 37
    a, b, c = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((n, k)).astype(dtype), np.zeros((m, n), result)
    run(matmul_kernel(operand, accumulator, (16, 16, 16), transposed_b=True), [a, b, c], m, n, k)
    expected = a.astype("d") @ b.astype("d").T
    limit = {np.float16: 5e-3, np.float64: 1e-14}.get(result, 1e-5)
    assert np.abs(c.astype("d") - expected).max() < limit * np.abs(expected).max()


def test_integers_wrap() -> None:
    m, n, k = 5, 3, 40
    a, b, c = RNG.integers(-128, 128, (m, k), np.int8), RNG.integers(-128, 128, (k, n), np.int8), np.zeros((m, n), np.int32)
    run(matmul_kernel(builtin.i8, builtin.i32, (16, 16, 16)), [a, b, c], m, n, k)
    assert np.array_equal(c, a.astype("i") @ b.astype("i"))


def test_elements_outside_are_other() -> None:
    """With another filler the ragged part of the reduction is no longer neutral."""
    m, n, k = 3, 2, 5
    a, b, c = np.ones((m, k), "f"), np.ones((k, n), "f"), np.zeros((m, n), "f")
    run(matmul_kernel(builtin.f32, builtin.f32, (16, 16, 16), other=builtin.FloatAttr(2.0, builtin.f32)), [a, b, c], m, n, k)
    assert np.all(c == 5 + 11 * 4)


def test_shared_memory_starts_as_poison() -> None:
    k = KernelBuilder([builtin.f32], [])
    buffer = k.add(tile.AllocOp(shared_type((4, 8), builtin.f32)))
    view = k.add(tile.ViewOp(k.pointers[0], [4, 8], [8, 1], align=16))
    half = k.constant(1, [2, 8], builtin.f32)
    k.add(tile.LocalStoreOp(half, buffer, [2, 0]))
    k.add(sync.BarrierOp())
    zero = k.index(0)
    k.add(tile.StoreOp(k.add(tile.LocalLoadOp(buffer, [0, 0], tile.tile_of([4, 8], builtin.f32))), view, [zero, zero], [0, 1]))
    out = np.zeros((4, 8), "f")
    run(k.kernel("poison", ["1", "1", "1"], 1), [out])
    assert np.isnan(out[:2]).all()
    assert (out[2:] == 1).all()


def test_vector_promises_are_checked() -> None:
    a, b = RNG.standard_normal((8, 16), dtype="f"), RNG.standard_normal((16, 20), dtype="f")
    run(matmul_kernel(builtin.f32, builtin.f32, (16, 16, 16), vector=4), [a, b, np.zeros((8, 20), "f")], 8, 20, 16)
    view = View(Pointer(np.zeros(160, "f")), 0, (8, 18), (20, 1), 16)
    Window((0, 1), (8, 16), 2, 2).read(view, (0, 16), 0)
    with pytest.raises(SimulationFault, match="crosses the size 18"):
        Window((0, 1), (8, 16), 2, 4).read(view, (0, 16), 0)
    with pytest.raises(SimulationFault, match="not aligned"):
        Window((0, 1), (8, 8), 2, 4).read(view, (0, 2), 0)
    with pytest.raises(SimulationFault, match="not aligned"):
        Window((0, 1), (8, 8), 2, 4).read(View(Pointer(np.zeros(160, "f")), 0, (8, 18), (18, 1), 16), (0, 0), 0)
    with pytest.raises(SimulationFault, match="no dimension of stride 1"):
        Window((0, 1), (8, 8), 2, 4).read(View(Pointer(np.zeros(320, "f")), 0, (8, 18), (36, 2), 16), (0, 0), 0)
    with pytest.raises(SimulationFault, match="promises 16 bytes"):
        View(Pointer(np.zeros(160, "f"), 2), 0, (8,), (1,), 16)


def test_access_outside_an_allocation_is_a_fault() -> None:
    a, b, c = np.zeros((4, 4), "f"), np.zeros((4, 4), "f"), np.zeros((4, 4), "f")
    with pytest.raises(SimulationFault, match="reaches elements"):
        run(matmul_kernel(builtin.f32, builtin.f32, (16, 16, 16)), [a, b, c], 4, 4, 5)


def test_index_beyond_32_bits_is_a_fault() -> None:
    k = KernelBuilder([builtin.f32], ["n"])
    k.mul(k.indices[0], k.indices[0])
    kernel = k.kernel("big", ["1", "1", "1"], 0)
    run(kernel, [np.zeros(1, "f")], 46340)
    with pytest.raises(SimulationFault, match="32 bits"):
        run(kernel, [np.zeros(1, "f")], 46341)


def test_views_of_any_stride_and_rank() -> None:
    """A tile of dimensions (2, 0) of a view of rank 3 whose dimension 1 repeats one element (stride 0); then stored transposed."""
    k = KernelBuilder([builtin.i32, builtin.i32], ["p"])
    source = k.add(tile.ViewOp(k.pointers[0], [5, 3, 7], [7, 0, 1], offset=2, align=4))
    target = k.add(tile.ViewOp(k.pointers[1], [5, 7], [7, 1], align=4))
    zero, minus = k.index(0), k.index(-1)
    loaded = k.add(
        tile.LoadOp(source, [minus, k.indices[0], zero], [2, 0], tile.tile_of([8, 8], builtin.i32), other=builtin.IntegerAttr(9, 32))
    )
    k.add(tile.StoreOp(loaded, target, [minus, zero], [1, 0]))
    kernel = k.kernel("views", ["1", "1", "1"], 1)
    data, out = np.arange(40, dtype=np.int32), np.zeros((5, 7), np.int32)
    run(kernel, [data, out], 2)
    assert np.array_equal(out, data[2:37].reshape(5, 7))
    run(kernel, [data, out], 3)  # outside along the dimension that the tile has not
    assert (out == 9).all()


def _combiner(op: type, element: Attribute) -> Region:
    block = Block(arg_types=[element, element])
    inner = op(block.args[0], block.args[1])
    block.add_ops([inner, tile.YieldOp([inner.results[0]])])
    return Region(block)


@pytest.mark.parametrize("extent", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("axis", [0, 1])
def test_reduce(extent: int, axis: int) -> None:
    shape = [4, 4]
    shape[axis] = extent
    k = KernelBuilder([builtin.f32, builtin.f32], [])
    source = k.add(tile.ViewOp(k.pointers[0], shape, [shape[1], 1], align=16))
    zero = k.index(0)
    loaded = k.add(tile.LoadOp(source, [zero, zero], [0, 1], tile.tile_of(shape, builtin.f32)))
    reduced = k.add(tile.ReduceOp([loaded], axis, _combiner(arith.AddfOp, builtin.f32)))
    spread = k.add(tile.BroadcastOp(reduced, tile.tile_of(shape, builtin.f32)))
    k.add(tile.StoreOp(spread, k.add(tile.ViewOp(k.pointers[1], shape, [shape[1], 1], align=16)), [zero, zero], [0, 1]))
    x, out = RNG.standard_normal(shape, dtype="f"), np.zeros(shape, "f")
    run(k.kernel("reduce", ["1", "1", "1"], 1), [x, out])
    want, terms = x.astype(np.float64).sum(axis, keepdims=True), np.abs(x).sum(axis, keepdims=True)
    assert np.all(np.abs(out - want) <= extent * 2**-24 * terms)  # each addition rounds a part of the terms


def test_reduce_within_groups() -> None:
    """Mask 0b100 of an axis of 8: element 0 combines indices 0..3, element 1 indices 4..7; mask 0b001: the even ones, the odd ones."""
    for mask, groups in (
        (0b100, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (0b001, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (0b101, [[0, 2], [1, 3], [4, 6], [5, 7]]),
    ):
        k = KernelBuilder([builtin.i32, builtin.i32], [])
        zero = k.index(0)
        loaded = k.add(tile.LoadOp(k.add(tile.ViewOp(k.pointers[0], [8], [1], align=4)), [zero], [0], tile.tile_of([8], builtin.i32)))
        reduced = k.add(tile.ReduceOp([loaded], 0, _combiner(arith.AddiOp, builtin.i32), group_mask=mask))
        k.add(tile.StoreOp(reduced, k.add(tile.ViewOp(k.pointers[1], [len(groups)], [1], align=4)), [zero], [0]))
        x, out = RNG.integers(0, 99, 8).astype(np.int32), np.zeros(len(groups), np.int32)
        run(k.kernel("groups", ["1", "1", "1"], 1), [x, out])
        assert list(out) == [x[g].sum() for g in groups]


def test_masks_from_iota_and_branches() -> None:
    """out[i] = i < n ? i : -1 in workgroups of 8; the second workgroup takes the other branch of an scf.if."""
    k = KernelBuilder([builtin.i32], ["n"])
    start = k.mul(k.program_id(0), k.index(8))
    kind = tile.tile_of([8], builtin.i32)
    place = k.add(arith.AddiOp(k.add(tile.IotaOp(0, kind)), k.add(tile.SplatOp(start, kind))))
    limit = k.add(tile.SplatOp(k.indices[0], kind))
    mask = k.add(arith.CmpiOp(place, limit, "slt"))
    chosen = k.add(arith.SelectOp(mask, place, k.constant(-1, [8], builtin.i32)))
    first = k.add(arith.CmpiOp(start, k.index(0), "eq"))
    yes, no = Block(), Block()
    yes.add_op(scf.YieldOp(chosen))
    doubled = arith.AddiOp(chosen, chosen)
    no.add_ops([doubled, scf.YieldOp(doubled.result)])
    result = k.add(scf.IfOp(first, [kind], Region(yes), Region(no)))
    k.add(tile.StoreOp(result, k.add(tile.ViewOp(k.pointers[0], [16], [1], align=4)), [start], [0]))
    out = np.zeros(16, np.int32)
    run(k.kernel("mask", ["2", "1", "1"], 1), [out], 11)
    assert list(out) == [0, 1, 2, 3, 4, 5, 6, 7, 16, 18, 20, -2, -2, -2, -2, -2]


def test_loop_without_iterations_and_swapped_values() -> None:
    """Carried values that change places are not overwritten by each other."""
    k = KernelBuilder([builtin.i32], ["n"])
    zero = k.index(0)
    one, two = k.constant(1, [1], builtin.i32), k.constant(2, [1], builtin.i32)
    a, b = k.loop(k.indices[0], 1, [one, two], lambda _, carried: [carried[1], carried[0]])
    view = k.add(tile.ViewOp(k.pointers[0], [2], [1], align=4))
    k.add(tile.StoreOp(a, view, [zero], [0]))
    k.add(tile.StoreOp(b, view, [k.index(1)], [0]))
    kernel = k.kernel("swap", ["1", "1", "1"], 1)
    for n, expected in ((0, [1, 2]), (1, [2, 1]), (4, [1, 2]), (5, [2, 1])):
        out = np.zeros(2, np.int32)
        run(kernel, [out], n)
        assert list(out) == expected


def test_grid_is_evaluated() -> None:
    kernel = TileKernel(matmul_kernel(builtin.f32, builtin.f32, (16, 32, 16)))
    assert kernel.grid([17, 64, 5]) == (2, 2, 1)


def exchange(*, in_loop: bool = False) -> tile.KernelOp:
    """Clusters of two: each workgroup writes 4 elements, and twice what the second of its cluster wrote to its own row of the result."""
    k = KernelBuilder([builtin.f32, builtin.f32], ["rows"])
    x, y = (k.add(tile.ViewOp(pointer, [k.indices[0], 4], [4, 1], align=16)) for pointer in k.pointers)
    row, kind = k.program_id(0), tile.tile_of([1, 4], builtin.f32)
    buffer = k.add(tile.AllocOp(shared_type((1, 4), builtin.f32)))
    k.add(tile.LocalStoreOp(k.add(tile.LoadOp(x, [row, k.index(0)], [0, 1], kind)), buffer, [0, 0]))

    def add(_: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return [k.add(arith.AddfOp(carried[0], k.add(tile.LocalLoadOp(buffer, [0, 0], kind, peer=1))))]

    zero = k.constant(0, [1, 4], builtin.f32)
    (total,) = k.loop(k.index(2), 1, [zero], add) if in_loop else add(zero, add(zero, [zero]))
    k.add(tile.StoreOp(total, y, [row, k.index(0)], [0, 1]))
    kernel = k.kernel("exchange", ["rows", "1", "1"], 1)
    kernel.properties["cluster"] = builtin.IntegerAttr(2, builtin.i64)
    return kernel


def test_workgroups_of_a_cluster_read_each_other() -> None:
    x, y = RNG.standard_normal((6, 4), dtype="f"), np.full((6, 4), np.nan, "f")
    run(exchange(), [x, y], 6)
    assert np.array_equal(y, 2 * np.repeat(x[1::2], 2, axis=0))


def test_reads_of_others_within_loops_are_refused() -> None:
    """The others are at another iteration."""
    with pytest.raises(TreadleError, match=r"TR321.*outside of loops"):
        run(exchange(in_loop=True), [np.zeros((2, 4), "f")] * 2, 2)
