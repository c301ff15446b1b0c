"""fold-rings: rings of stages are the producer's on sm_90a; what is no ring of loads stays with groups of warps, and a remark says why."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.staged_kernels import eight_stages, four_stages, kernel_of, operands, straight, three_stages, triple, two_stages, unrolled

import treadle
import treadle.language as tl
from treadle.dialects import pipe, tile
from treadle.dialects.stages import WARP_PIPELINED, StageOp
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import print_module
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.transforms.kernel.fold_rings import FoldRingsPass
from treadle.transforms.kernel.set_target import SetTargetPass


def lowered(kernel: Any, target: str, m: int, n: int, k: int, warps: int = 8, stages: int = 3, **constants: Any) -> tuple[Any, list[str]]:
    """A product at schedule level as a call with a ring of `stages` compiles it, proven, and what fold-rings told."""
    grid, arrays = (-(-m // 128), -(-n // 32)), operands(m, n, k)
    form, _, _ = kernel[grid]._resolved(arrays, constants, warps, stages)
    module: builtin.ModuleOp = build(kernel.function, form).module
    with collect_remarks() as log:
        found = scheduled(read_source(module, "tile"), target, CompileOptions(), None)
    return kernel_of(found), [remark.text for remark in log.remarks if remark.pass_name == "fold-rings"]


def made(kernel: Any, **constants: Any) -> builtin.ModuleOp:
    """A kernel at tile level, for a ring of three steps."""
    form, _, _ = kernel[1, 1]._resolved(operands(128, 32, 96), constants, 8, 3)
    return build(kernel.function, form).module


def folded(module: builtin.ModuleOp) -> list[str]:
    """What fold-rings tells of a module for sm_90a, which it changes."""
    with collect_remarks() as log:
        run_passes(module, [SetTargetPass("sm_90a"), FoldRingsPass()])
    return [remark.text for remark in log.remarks]


@treadle.kernel(target="sim")
def plain(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def asked(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """No ring, and no stages but the compiler's."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, a.shape[1], BK, stages="auto"):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def deep(
    a: Any,
    b: Any,
    c: Any,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 32,
    BK: tl.constexpr = 16,
    S: tl.constexpr = 4,
    AHEAD: tl.constexpr = 2,
) -> None:
    """`AHEAD` steps ahead in a ring of `S` slots, from the second block of k on; the loop counts steps."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a, ring_b = tl.allocate_shared((BM, BK), tl.float16, slots=S), tl.allocate_shared((BK, BN), tl.float16, slots=S)
    for i in tl.static_range(AHEAD):
        ring_a[i], ring_b[i] = a[m : m + BM, (i + 1) * BK : (i + 2) * BK], b[(i + 1) * BK : (i + 2) * BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range((a.shape[1] + BK - 1) // BK):
        with tl.warp_pipeline_stage("memory"):
            x, y, k = ring_a[i % S], ring_b[i % S], (i + AHEAD + 1) * BK
            ring_a[(i + AHEAD) % S] = a[m : m + BM, k : k + BK]
            ring_b[(i + AHEAD) % S] = b[k : k + BK, n : n + BN]
        with tl.warp_pipeline_stage("compute"):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


def text(kernel: tile.KernelOp) -> str:
    """A schedule without names that say which kernel it is of."""
    return print_module(builtin.ModuleOp([kernel.clone()])).replace(kernel.sym_name.data, "kernel")


def shape(kernel: tile.KernelOp) -> list[tuple[Any, ...]]:
    """Its operations with their types and properties, but for arithmetic on numbers, of which that of the stages may be left."""
    ops = [op for op in kernel.body.walk() if not op.name.startswith("arith.")]
    return [(op.name, tuple(op.properties.items()), tuple(result.type for result in op.results)) for op in ops]


@pytest.mark.parametrize("kernel", [two_stages, three_stages, asked], ids=lambda kernel: kernel.function.__name__)
def test_it_is_the_kernel_without_stages(kernel: Any) -> None:
    found, told = lowered(kernel, "sm_90a", 256, 64, 96)
    assert told == ["the stages' rings are the producer's: its copies run ahead by themselves, and the groups of warps are its consumers"]
    assert shape(found) == shape(lowered(plain, "sm_90a", 256, 64, 96)[0])
    assert any(isinstance(op, pipe.RolesOp) for op in found.walk())


SOME = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SOME
@given(st.integers(1, 3), st.integers(0, 2), st.integers(1, 5), st.sampled_from([8, 24]))
def test_any_ring(ahead: int, more: int, steps: int, rest: int) -> None:
    """What is read is what the ring held: the product without the first block of k, whatever the ring is."""
    m, n, k = 130, 40, 16 * steps + rest
    kernel, told = lowered(deep, "sm_90a", m, n, k, S=ahead + 1 + more, AHEAD=ahead)
    assert len(told) == 1 and told[0].startswith("the stages' rings are the producer's")
    assert not any(isinstance(op, StageOp) or WARP_PIPELINED in op.attributes for op in kernel.walk())
    a, b, c = operands(m, n, k)
    sizes = {"a_size0": m, "a_size1": k, "a_stride0": k, "b_size0": k, "b_size1": n, "b_stride0": n}
    report = simulate(
        kernel, [a, b, c], {**sizes, "c_size0": m, "c_size1": n, "c_stride0": n, "grid_x": 2, "grid_y": 2}, mode="random", seed=3
    )
    assert report.ok, report
    np.testing.assert_array_equal(report.outputs[0], a[:, 16:].astype(np.float64) @ b[16:])


@treadle.kernel(target="sim")
def other(a: Any, b: Any, c: Any, what: tl.constexpr = "", BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """A ring of three slots that is not what its loop loads."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a, ring_b = tl.allocate_shared((BM, BK), tl.float16, slots=3), tl.allocate_shared((BK, BN), tl.float16, slots=3)
    first = BK if what == "other block" else 0
    ring_b[0] = b[0:BK, n : n + BN]
    if what == "no first":
        ring_a[1] = a[m : m + BM, 0:BK]
    else:
        ring_a[0] = a[m : m + BM, first : first + BK]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory"):
            x, y = ring_a[i % 3], ring_b[i % 3]
            tile = a[m : m + BM, k + BK : k + 2 * BK]
            if what == "computed":
                tile = tile * 2.0
            if what == "no order":
                ring_a[(k + i + 1) // 7 % 3] = tile
            else:
                ring_a[(i + 1) % 3] = tile
            ring_b[(i + 1) % 3] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("compute"):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc
    if what == "written":
        a[m : m + BM, 0:BN] = acc.to(tl.float16)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("computed", "what fills a slot is computed, not loaded"),
        ("written", "the kernel writes to the array that is loaded"),
        ("other block", "what fills the slot of iteration 0 ahead of the loop is not what the loop loads in others"),
        ("no first", "what iteration 0 reads was not filled ahead of the loop"),
        ("no order", "which iteration has filled the slot that is read is not known"),
    ],
)
def test_what_is_no_ring_of_loads(what: str, reason: str) -> None:
    """Stages, rings and all are as they were; the form without roles is that of groups of warps."""
    module = made(other, what=what)
    before = [op.name for op in kernel_of(module).walk()]
    assert folded(module) == [f"groups of warps run the stages: {reason}"]
    assert [op.name for op in kernel_of(module).walk()] == before and kernel_of(module).config is None


def test_a_ring_that_is_read_in_two_loops() -> None:
    """An unrolled loop, and the one behind it for what is left."""
    (told,) = folded(made(unrolled))
    assert told == "groups of warps run the stages: 3 stores in loops with stages fill its slots, not one"


def test_stages_in_straight_code() -> None:
    """Products outside of loops have no form with roles."""
    module = made(straight)
    assert not folded(module) and any(isinstance(op, StageOp) for op in module.walk())


@pytest.mark.parametrize("kernel", [triple, four_stages, eight_stages], ids=lambda kernel: kernel.function.__name__)
def test_several_rings_of_one_loop(kernel: Any) -> None:
    found, told = lowered(kernel, "sm_90a", 128, 32, 256)
    assert told[0].startswith("the stages' rings are the producer's")
    assert any(isinstance(op, pipe.RolesOp) for op in found.walk())


@treadle.kernel(target="sim")
def turned(a: Any, b: Any, c: Any, what: tl.constexpr = "", BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """B lies as (n, k), and comes turned; A's one block stands in a buffer that is filled once."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    held, ring = tl.allocate_shared((BM, BK), tl.float16), tl.allocate_shared((BK, BN), tl.float16, slots=3)
    held[0] = a[m : m + BM, 0:BK]
    ring[0] = b[n : n + BN, 0:BK].T if what != "other turn" else b[n : n + BN, 0:BK]
    if what == "filled twice":
        held[0] = a[m : m + BM, BK : 2 * BK]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, b.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory"):
            y = ring[i % 3]
            ring[(i + 1) % 3] = b[n : n + BN, k + BK : k + 2 * BK].T
        with tl.warp_pipeline_stage("compute"):
            acc = tl.dot(held[0], y, acc)
    c[m : m + BM, n : n + BN] = acc


def test_turned_tiles_and_buffers_that_are_filled_once() -> None:
    a, b, c = np.ones((128, 32), np.float16), np.arange(40 * 88).reshape(40, 88).astype(np.float16) % 5, np.zeros((128, 40), np.float32)
    form, _, _ = turned[1, 2]._resolved((a, b, c), {}, 8, 3)
    kernel = kernel_of(scheduled(read_source(build(turned.function, form).module, "tile"), "sm_90a", CompileOptions(), None))
    assert not any(WARP_PIPELINED in op.attributes for op in kernel.walk())
    sizes = {"a_size0": 128, "a_size1": 32, "a_stride0": 32, "b_size0": 40, "b_size1": 88, "b_stride0": 88, "c_size0": 128, "c_size1": 40}
    report = simulate(kernel, [a, b, c], {**sizes, "c_stride0": 40, "grid_x": 1, "grid_y": 2}, mode="random", seed=1)
    wide = np.pad(b.astype(np.float64), ((0, 0), (0, 8))).reshape(40, 3, 32).sum(1)
    np.testing.assert_array_equal(report.outputs[0], a.astype(np.float64) @ wide.T)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("other turn", "what fills the slot of iteration 0 ahead of the loop is not what the loop loads in others"),
        ("filled twice", "0 stores in loops with stages fill its slots, not one"),
    ],
)
def test_what_is_not_turned_alike(what: str, reason: str) -> None:
    a = np.ones((128, 32), np.float16), np.ones((32, 96), np.float16), np.zeros((128, 32), np.float32)
    form, _, _ = turned[1, 1]._resolved(a, {"what": what}, 8, 3)
    assert folded(build(turned.function, form).module) == [f"groups of warps run the stages: {reason}"]


def test_machines_without_roles_keep_their_stages() -> None:
    found, told = lowered(two_stages, "gfx942", 128, 32, 96)
    assert told == ["groups of warps run the stages: the machine has no warps that copy for others"]
    assert text(found) == text(lowered(two_stages, "gfx942", 128, 32, 96, stages=1)[0])


def test_who_asks_for_no_ring_of_roles_keeps_groups_of_warps() -> None:
    found, told = lowered(two_stages, "sm_90a", 128, 32, 96, stages=1, S=3)
    assert not told and any(WARP_PIPELINED in op.attributes for op in found.walk())
