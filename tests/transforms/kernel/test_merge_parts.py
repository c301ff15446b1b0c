"""merge-parts: parts and their merge in one kernel: right for all combiners and epilogues, proven, refused with the reason where not."""

from typing import Any

import numpy as np
import pytest
from generators.arrivals import IN_CLUSTERS, IN_ROLES, product_kernel, split_product
from ml_dtypes import bfloat16
from targets.amd import emulator, programs

import treadle
from treadle import remarks
from treadle.dialects import dispatch, pipe, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.frontends.mlir import load
from treadle.ir.passes import run_passes
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.plan.part_merges import parts_at_once
from treadle.sim.schedule import ScheduledProgram
from treadle.transforms.kernel.merge_parts import MergePartsPass
from treadle.verify.check import prove

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


def reduction(
    rows: int, columns: int, parts: int, *, body: str = "arith.addf", start: str = "0.0", kind: str = "f32", tail: str = ""
) -> str:
    """A reduction of rows that is split; `tail`: what is computed of its result %s."""
    whole, row = f"tensor<{rows}x{columns}x{kind}>", f"tensor<{rows}x{kind}>"
    return f"""
func.func @f(%x: {whole}, %bias: {row}) -> {row} {{
  %z = arith.constant {start} : {kind}
  %e = tensor.empty() : {row}
  %i = linalg.fill ins(%z : {kind}) outs(%e : {row}) -> {row}
  %s = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]}} ins(%x : {whole}) outs(%i : {row})
    attrs = {{treadle.split_reduction = #dispatch.split<r0 = "{parts}", merge = last>}} {{
  ^bb0(%a: {kind}, %b: {kind}):
    %c = {body} %a, %b : {kind}
    linalg.yield %c : {kind}
  }} -> {row}
{tail}
  return %{"r" if tail else "s"} : {row}
}}
"""


def matmul(m: int, n: int, k: int, parts: int, kind: str = "f16") -> str:
    """A product onto an initial value, split along k."""
    a, b, c = f"tensor<{m}x{k}x{kind}>", f"tensor<{k}x{n}x{kind}>", f"tensor<{m}x{n}xf32>"
    return f"""
func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %r = linalg.matmul {{treadle.split_reduction = #dispatch.split<r0 = "{parts}" step 16, merge = last>}}
    ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %r : {c}
}}
"""


ADDED = "  %r = linalg.add ins(%s, %bias : tensor<{0}x{1}>, tensor<{0}x{1}>) outs(%e : tensor<{0}x{1}>) -> tensor<{0}x{1}>"
RNG = np.random.default_rng(11)


def test_one_kernel_with_counters() -> None:
    program = treadle.compile(matmul(100, 90, 500, 7), target="sm_90a")
    assert len(program.manifest.launches) == 1
    kept = [b for b in program.manifest.buffers if b.kept]
    assert [(b.role, b.zero, b.bytes) for b in kept] == [("temporary", True, 4 * 2 * 3)]


@pytest.mark.parametrize("seed", range(6))
def test_random_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.integers(1, top)) for top in (140, 140, 900))
    parts = int(rng.integers(2, max(3, -(-k // 16) + 1)))
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float16), rng.integers(-3, 4, (k, n)).astype(np.float16)
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    program = treadle.compile(matmul(m, n, k, parts), target="sim")
    for _ in range(2):
        np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b + c)


def random_roles(rng: np.random.Generator) -> tuple[tuple[int, int, int, int], dict[str, Any]]:
    """Sizes that descriptor copies can bring (m, n, k, parts), and roles: one group or two of any tile, or the small side swapped."""
    m, n, k = (int(rng.integers(1, top)) for top in (200, 25, 170))
    swaps = rng.random() < 0.4
    m, n, k = (min(m, 64) if swaps else m), 8 * n, 8 * k
    form: dict[str, Any] = {"form": "swapped"} if swaps else {"tile": (64, int(rng.choice([32, 64, 128])), 64)}
    groups = {} if swaps else {"consumer_warpgroups": int(rng.integers(1, 3))}
    return (m, n, k, int(rng.integers(2, max(3, -(-k // 64) + 1)))), {**form, **groups, "num_stages": int(rng.integers(2, 5))}


@pytest.mark.parametrize("seed", range(8))
def test_random_products_in_roles(seed: int) -> None:
    """Consumer warpgroups merge: right in both of the simulator's orders, twice with the same counters, and proven."""
    rng = np.random.default_rng(seed)
    (m, n, k, parts), knobs = random_roles(rng)
    kind = ("f16", "bf16")[seed % 2]
    module, kernel = product_kernel(split_product(m, n, k, parts, kind), **knobs)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    assert prove(kernel, effort=16).is_proven
    dtype = np.float16 if kind == "f16" else bfloat16
    a, b = rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    for order in ("late", "random"):
        program = ScheduledProgram(module, order, seed)
        for _ in range(2):
            np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b.astype(np.float64) + c)
        assert program.findings.report(()).ok, str(program.findings.report(()))


@pytest.mark.parametrize("product", [*IN_ROLES.values(), *IN_CLUSTERS.values()])
def test_products_whose_schedules_are_known(product: tuple[str, dict[str, Any]]) -> None:
    """Results that leave by boxes and by the threads: the numbers are right whoever merges."""
    text, knobs = product
    module, _ = product_kernel(text, **knobs)
    sizes = [[int(t.data) for t in op.shape] for op in module.walk() if isinstance(op, dispatch.InputOp)]
    a, b = (RNG.integers(-3, 4, shape).astype(np.float16) for shape in sizes[:2])
    c = RNG.integers(-9, 10, sizes[2]).astype(np.float32)
    program = ScheduledProgram(module, "random", 5)
    np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b + c)
    assert program.findings.report(()).ok


@pytest.mark.parametrize("seed", range(4))
def test_random_products_in_clusters_before_their_schedules(seed: int) -> None:
    """The simulator of tiles takes the workgroups of a cluster through the kernel together."""
    rng = np.random.default_rng(200 + seed)
    (m, n, k, _), knobs = random_roles(rng)
    parts = int(rng.choice([2, 4, 8]))
    k = max(k, 64 * parts)
    program = treadle.compile(split_product(m, n, k, parts, merge="cluster"), target="sim", options=CompileOptions(**knobs))
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float16), rng.integers(-3, 4, (k, n)).astype(np.float16)
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b + c)


@pytest.mark.parametrize("seed", range(8))
def test_random_products_in_clusters(seed: int) -> None:
    """The workgroups of a cluster merge, in forms with roles and without, whatever the sizes."""
    rng = np.random.default_rng(100 + seed)
    (m, n, k, _), knobs = random_roles(rng)
    if seed % 4 == 3:
        n, k, knobs = n + 3, k + 5, {"form": "tiles"}
    parts = int(rng.choice([2, 4, 8]))
    module, kernel = product_kernel(split_product(m, n, max(k, 64 * parts), parts, "bf16", merge="cluster"), **knobs)
    assert kernel.cluster_size() == parts
    assert not any(isinstance(op, tile.CountInOp) for op in kernel.walk())
    assert prove(kernel, effort=16).is_proven
    k = max(k, 64 * parts)
    a, b = rng.integers(-3, 4, (m, k)).astype(bfloat16), rng.integers(-3, 4, (k, n)).astype(bfloat16)
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    for order in ("late", "random"):
        program = ScheduledProgram(module, order, seed)
        np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b.astype(np.float64) + c)
        assert program.findings.report(()).ok, str(program.findings.report(()))


@pytest.mark.parametrize("seed", range(8))
def test_random_products_whose_clusters_fetch_an_operand_once(seed: int) -> None:
    """Neighbours of one part share their rows or their columns, tiles beyond the result included, whoever merges the parts."""
    rng = np.random.default_rng(300 + seed)
    (m, n, k, parts), knobs = random_roles(rng)
    count, merge, side = (2, 4)[seed % 2], ("last", "kernel")[seed // 2 % 2], int(rng.integers(2))
    m, n, k = min(m, 80), min(n, 72), min(k, 520)
    m, n = (m, n + 64 * int(rng.integers(1, 3))) if side else (m + 64, n)
    parts, groups = min(parts, -(-k // 64)), int(rng.integers(1, 3)) if side else 1
    asked = CompileOptions(
        tile=(64, 64, 64),
        num_stages=knobs["num_stages"],
        consumer_warpgroups=groups,
        cluster=count,
        group_m=1 if side else count,
        verify=False,
    )
    m += 8 * (m % (64 * groups) == 0)  # the ends cut tiles
    n += 8 * (n % 64 == 0)
    k, parts = max(k, 128), max(parts, 2)
    text = split_product(m, n, k, parts, "bf16", merge=merge)
    module = scheduled(read_source(text), "sm_90a", asked, None)
    kernels = [op for op in module.walk() if isinstance(op, tile.KernelOp)]
    assert kernels[0].cluster_size() == count
    assert any(isinstance(op, tile.CountInOp) for op in kernels[0].walk()) == (merge == "last")
    assert all(prove(kernel).is_proven for kernel in kernels)
    a, b = rng.integers(-3, 4, (m, k)).astype(bfloat16), rng.integers(-3, 4, (k, n)).astype(bfloat16)
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    for order in ("late", "random"):
        program = ScheduledProgram(module, order, seed)
        for _ in range(2):
            np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b.astype(np.float64) + c)
        assert program.findings.report(()).ok, str(program.findings.report(()))


@pytest.mark.parametrize("merge", ["last", "kernel"])
def test_counters_of_tiles_beyond_the_result(merge: str) -> None:
    """Three rows of tiles are four in clusters of two: the workgroups of each have a counter, where parts are merged in the kernel."""
    text = split_product(136, 32, 640, 3, merge=merge)
    program = treadle.compile(text, "sm_90a", CompileOptions(tile=(64, 32, 64), num_stages=2, cluster=2, group_m=2))
    kept = [b.bytes for b in program.manifest.buffers if b.kept]
    assert kept == ([4 * 4] if merge == "last" else [])
    assert program.manifest.kernels[0].cluster == (2, 1, 1)
    told = " ".join(remark.text for remark in program.remarks)
    assert "clusters of 2 share columns of B" in told and ("the last workgroup of a tile merges its parts" in told) == (merge == "last")


@pytest.mark.parametrize("m", [384, 448, 832])
@pytest.mark.parametrize(
    "knobs", [{"tile": (64, 64, 64), "num_stages": 3, "group_m": 4}, {"form": "tiles", "tile": (64, 64, 64), "group_m": 4}]
)
def test_more_rows_of_tiles_than_are_walked_together(m: int, knobs: dict[str, Any]) -> None:
    """The last group of rows is smaller: tiles that arrive are numbered without."""
    _, kernel = product_kernel(split_product(m, 128, 512, 2), **knobs)
    assert prove(kernel).is_proven


def test_a_cluster_needs_no_workspace() -> None:
    made = (treadle.compile(split_product(96, 80, 512, 4, merge=merge), target="sm_90a") for merge in ("last", "cluster"))
    last, cluster = (sum(int(b.bytes) for b in one.manifest.buffers if b.role == "temporary") for one in made)  # type: ignore[arg-type]
    assert last >= 4 * 4 * 96 * 80 and cluster <= 8


@pytest.mark.parametrize(("parts", "target"), [(3, "sm_90a"), (16, "sm_90a"), (4, "gfx942")])
def test_without_a_cluster_the_last_one_merges(parts: int, target: str) -> None:
    """Parts that are no power of two, more than a cluster has, a machine without clusters."""
    _, kernel = product_kernel(split_product(64, 64, 2048, parts, merge="cluster"), target)
    assert kernel.cluster_size() == 1
    assert any(isinstance(op, tile.CountInOp) for op in kernel.walk())


FOLDS = [("arith.addf", "0.0", np.sum), ("arith.maximumf", "0xFF800000", np.max), ("arith.minimumf", "1.0e+3", np.min)]


@pytest.mark.parametrize(("body", "start", "fold"), FOLDS)
@pytest.mark.parametrize(("rows", "columns", "parts"), [(1, 3001, 5), (7, 1003, 2), (33, 700, 11)])
def test_combiners_and_an_epilogue(body: str, start: str, fold: object, rows: int, columns: int, parts: int) -> None:
    x, bias = RNG.integers(-9, 10, (rows, columns)).astype(np.float32), RNG.integers(-9, 10, rows).astype(np.float32)
    text = reduction(rows, columns, parts, body=body, start=start, tail=ADDED.format(rows, "f32"))
    program = treadle.compile(text, target="sim")
    assert len(program.manifest.launches) == 1
    np.testing.assert_array_equal(program(x, bias)[0], fold(x, axis=1) + bias)  # type: ignore[operator]


def test_integers() -> None:
    x, bias = RNG.integers(-(2**31), 2**31, (3, 900)).astype(np.int32), np.zeros(3, np.int32)
    program = treadle.compile(reduction(3, 900, 4, body="arith.addi", start="0", kind="i32"), target="sim")
    np.testing.assert_array_equal(program(x, bias)[0], x.sum(1, dtype=np.int32))


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("text", [matmul(100, 90, 500, 7), reduction(5, 7001, 9, tail=ADDED.format(5, "f32"))], ids=["product", "sum"])
def test_proven_and_right_in_any_order(text: str, target: str) -> None:
    module = scheduled(read_source(text), target, CompileOptions(verify=False), None)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert prove(kernel, effort=16).is_proven
    if target == "gfx942":
        inputs = [op for op in module.walk() if isinstance(op, dispatch.InputOp)]
        arrays = [
            RNG.integers(-3, 4, [int(t.data) for t in op.shape]).astype("f2" if "f16" in str(op.result.type) else "f4") for op in inputs
        ]
        program = ScheduledProgram(module, "random", 3)
        program(*arrays)
        assert program.findings.report(()).ok, str(program.findings.report(()))


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_as_machine_code(target: str) -> None:
    x, bias = RNG.integers(-9, 10, (5, 801)).astype(np.float32), RNG.integers(-9, 10, 5).astype(np.float32)
    module = scheduled(read_source(reduction(5, 801, 3, tail=ADDED.format(5, "f32"))), target, CompileOptions(), None)
    (got,) = emulator.EmulatedProgram(module, target)(x, bias)
    np.testing.assert_array_equal(got, x.sum(1) + bias)


def refusals(text: str) -> tuple[int, str]:
    """How many launches there are, and why the last workgroup does not merge."""
    with remarks.collect_remarks() as log:
        module = scheduled(read_source(text), "sm_90a", CompileOptions(verify=False), None)
    launches = sum(isinstance(op, dispatch.LaunchOp) for op in module.walk())
    return launches, " ".join(remark.text for remark in log.remarks if remark.pass_name == MergePartsPass.name)


def test_sizes_of_the_runtime() -> None:
    launches, why = refusals(matmul(100, 90, 500, 7).replace("100", "?"))
    assert launches == 2 and "run time" in why
    launches, why = refusals(matmul(100, 90, 500, 7).replace("500", "?"))  # one launch more, for calls with one part
    assert launches == 3 and "run time" in why


def test_others_are_left_alone() -> None:
    module = load(matmul(64, 64, 256, 4).replace(", merge = last", ""))
    run_passes(module, tensor_passes(target_spec("sm_90a"), CompileOptions()))
    before = str(module)
    run_passes(module, [MergePartsPass()])
    assert str(module) == before


@pytest.mark.parametrize(
    ("count", "elements", "expected"), [(9, 1, 16), (2, 1, 2), (77, 2048, 4), (5, 8192, 1), (3, 100_000, 1), (64, 96, 64)]
)
def test_parts_that_are_loaded_together(count: int, elements: int, expected: int) -> None:
    """A power of two, no more than there are and than registers hold."""
    assert parts_at_once(count, elements) == expected
