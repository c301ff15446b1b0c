"""A target from outside, end to end: programs are compiled for it, proven, run on its device and compared with float64."""

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from targets import third_target
from targets.third_target import LANES, LOOM, LoomBackend, LoomDevice, Workgroup

import treadle
from treadle import driver
from treadle.bench import families, reductions
from treadle.dialects.tile import KernelOp, shared_buffer_type, tile_of
from treadle.driver import Program
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.layout.shared_layout import row_major
from treadle.layout.tile_layout import blocked
from treadle.machine import known_targets, lookup, registrations, target_spec
from treadle.options import CompileOptions
from treadle.runtime import device
from treadle.runtime.arrays import numpy_dtype
from treadle.sim.check import check
from treadle.targets import registry
from treadle.tools.main import invoke
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.verify.check import prove

PLAIN = CompileOptions(tuned=False)
EXAMPLES = Path(__file__).parents[2] / "examples"
DYNAMIC = """
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %c : tensor<?x?xf32>
}
"""


@pytest.fixture(autouse=True, scope="module")
def loom() -> Iterator[None]:
    """The loom, for as long as this file's tests take."""
    tables: list[tuple[Any, str]] = [(lookup, "_rows"), (registrations, "_registered"), (registry, "_vendors"), (device, "_openers")]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in tables:
            patch.setattr(module, name, getattr(module, name).copy())
        third_target.register()
        yield
    device.open_device.cache_clear()
    registry._backend.cache_clear()


def right(program: Program, *shapes: tuple[int, ...]) -> bool:
    """Whether a program's results on random numbers are as near to those in float64 as its arithmetic allows."""
    generator = np.random.default_rng(7)
    sizes = shapes or [tuple(int(str(size)) for size in record.shape) for record in program.manifest.inputs]
    arrays = [generator.standard_normal(size).astype(numpy_dtype(r.dtype)) for size, r in zip(sizes, program.manifest.inputs, strict=True)]
    results = [check(got.numpy(), want) for got, want in zip(program(*arrays), program.reference(*arrays), strict=True)]
    return all(result.ok for result in results)


def compiled(source: str | Path) -> Program:
    return treadle.compile(source, target=LOOM.name, options=PLAIN)


@pytest.mark.parametrize("name", ["linear_bias_gelu", "softmax"])
def test_examples(name: str) -> None:
    program = compiled(EXAMPLES / f"{name}.mlir")
    assert program.device_name == LoomDevice.name and program.manifest.target == LOOM.name
    assert right(program)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_odd_products(dtype: str) -> None:
    program = compiled(families.matmul("f", "", 37, 53, 29, dtype).text)
    assert ("weave_8x8x4" in program.stages["schedule"]) == (dtype != "f64"), "its matrix instructions have no f64"
    assert "define void" in program.stages["llvm"] and "pthread_barrier_wait" in program.stages["asm"]
    assert right(program)


@pytest.mark.parametrize(("rows", "columns"), [(45, 77), (3, 1000), (130, 5)])
def test_reductions(rows: int, columns: int) -> None:
    program = compiled(reductions.row_sums("f", "", rows, columns, "f32").text)
    assert right(program)


def test_random_programs() -> None:
    random = Random(11)
    for number in range(8):
        m, n, k = (random.randint(1, 150) for _ in range(3))
        text = (
            families.matmul("f", "", m, n, k, random.choice(["f32", "bf16"]), transposed=random.choice([True, False])).text
            if number % 4
            else reductions.softmax("f", "", m, n, "f32").text
        )
        assert right(compiled(text)), f"{number}: {m} x {n} x {k}"


def test_runtime_sizes_and_other_layouts() -> None:
    program = compiled(DYNAMIC)
    assert right(program, (33, 21), (21, 70))
    assert right(program, (1, 5), (5, 9))


def test_workgroups_are_as_the_row_says() -> None:
    program = compiled(families.matmul("f", "", 200, 300, 64, "bf16").text)
    for kernel in program.manifest.kernels:
        assert kernel.block[0] % LANES == 0 and kernel.block[0] <= LOOM.max_threads_per_workgroup
        assert kernel.shared_bytes <= LOOM.shared_bytes_per_workgroup


ROWS, SIDE = 77, 16
RING = str(shared_buffer_type([3, SIDE, SIDE], builtin.f32, row_major((SIDE, SIDE), (1, 0)).stacked(3)))
SLOT = str(shared_buffer_type([SIDE, SIDE], builtin.f32, row_major((SIDE, SIDE), (1, 0))))
# Threads hold what others have copied: neighbours along rows, the copies' neighbours lie along columns.
TILE = str(tile_of([SIDE, SIDE], builtin.f32, blocked([SIDE, SIDE], [0, 1], 1, LANES, 4)))
VIEW = f"memref<{ROWS}x{SIDE}xf32, strided<[{SIDE}, 1]>>"
BY_FERRY = f"""
"tile.kernel"() <{{symbols = [], grid = ["1", "1", "1"], num_warps = 4 : i64, target = "{LOOM.name}", arg_align = array<i64: 16, 16>,
                  output_count = 1 : i64, sym_name = "twice"}}> ({{
^bb0(%x: !tile.ptr<f32>, %y: !tile.ptr<f32>):
  %vx = tile.view %x offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<f32> -> {VIEW}
  %vy = tile.view %y offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<f32> -> {VIEW}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %side = arith.constant {SIDE} : index
  %trips = arith.constant {-(-ROWS // SIDE)} : index
  %ring = tile.alloc : {RING}
  %first = pipe.slot %ring[%c0] : {RING} -> {SLOT}
  tile.copy %vx[%c0, %c0] dims array<i64: 0, 1>, %first path "ferry" : {VIEW}, {SLOT}
  %second = pipe.slot %ring[%c1] : {RING} -> {SLOT}
  tile.copy %vx[%side, %c0] dims array<i64: 0, 1>, %second path "ferry" : {VIEW}, {SLOT}
  scf.for %i = %c0 to %trips step %c1 {{
    %next = arith.addi %i, %c2 : index
    %row = arith.muli %next, %side : index
    %into = arith.remui %next, %c3 : index
    %from = arith.remui %i, %c3 : index
    %filled = pipe.slot %ring[%into] : {RING} -> {SLOT}
    tile.copy %vx[%row, %c0] dims array<i64: 0, 1>, %filled path "ferry" : {VIEW}, {SLOT}
    %read = pipe.slot %ring[%from] : {RING} -> {SLOT}
    %value = tile.local_load %read array<i64: 0, 0> : {SLOT} -> {TILE}
    %sum = arith.addf %value, %value : {TILE}
    %at = arith.muli %i, %side : index
    tile.store %sum, %vy[%at, %c0] dims array<i64: 0, 1> vector 1 : i64 : {TILE}, {VIEW}
  }}
  tile.return
}}) : () -> ()
"""


def doubled(*, synchronised: bool) -> bool:
    """Whether a kernel that copies two trips ahead, by the ferry, doubles every element."""
    module = parse_module(BY_FERRY, "ferry.mlir")
    if synchronised:
        run_passes(module, [OrderIssuePass(), InsertSyncPass()])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert prove(kernel).is_proven == synchronised
    overlaps = 'sync.wait "ferry" pending 1' in print_module(module)
    assert overlaps == synchronised, "the next trip's copy is in flight while this one's is used"
    made = LoomBackend(LOOM).assemble(LoomBackend(LOOM).emit(kernel))
    loom = LoomDevice()  # holds the code
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(loom.function(made.symbol, made.binary))
    x, y = np.random.default_rng(3).standard_normal((ROWS, SIDE)).astype(np.float32), np.zeros((ROWS, SIDE), np.float32)
    Workgroup(made.emitted.block[0], made.emitted.shared_bytes).run(function, (x.ctypes.data, y.ctypes.data), (0, 0, 0))
    return bool((y == x + x).all())


def test_its_queue_is_waited_for_and_nothing_arrives_without() -> None:
    assert doubled(synchronised=True)
    assert not doubled(synchronised=False)


def test_it_is_a_target_like_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert LOOM.name in known_targets() and target_spec(f"{LOOM.name}:oak") == LOOM
    assert invoke(["targets", "--json"]) == 0
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["architecture"] == LOOM.name)
    assert (row["target"], row["measured"], row["compute_units"]) == ("loom1:oak", False, 3)
    assert invoke(["explain", str(EXAMPLES / "linear_bias_gelu.mlir"), "--target", LOOM.name]) == 0
    assert "weave_8x8x4_bf16" in capsys.readouterr().out
    assert {one.kind: one.target for one in device.survey()}["loom"] == LOOM.name
    assert driver.target_of_device("loom") == LOOM.name
    assert device.default_device(f"{LOOM.name}:oak") is device.open_device("loom"), "programs for a product run on all of its architecture"
