"""A target from outside, end to end: programs are compiled for it, proven, run on its device and compared with float64."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from targets import third_target
from targets.third_target import LANES, LOOM, LoomDevice

import treadle
from treadle import driver
from treadle.bench import families
from treadle.driver import Program
from treadle.machine import known_targets, lookup, registrations, target_spec
from treadle.options import CompileOptions
from treadle.runtime import device
from treadle.runtime.arrays import numpy_dtype
from treadle.sim.check import check
from treadle.targets import registry
from treadle.tools.main import invoke

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
    program = compiled(families.row_sums("f", "", rows, columns, "f32").text)
    assert right(program)


def test_random_programs() -> None:
    random = Random(11)
    for number in range(8):
        m, n, k = (random.randint(1, 150) for _ in range(3))
        text = (
            families.matmul("f", "", m, n, k, random.choice(["f32", "bf16"]), transposed=random.choice([True, False])).text
            if number % 4
            else families.softmax("f", "", m, n, "f32").text
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


def test_it_is_a_target_like_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert LOOM.name in known_targets() and target_spec(f"{LOOM.name}:oak") == LOOM
    assert invoke(["targets", "--json"]) == 0
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["architecture"] == LOOM.name)
    assert (row["target"], row["measured"], row["compute_units"]) == ("loom1:oak", False, 3)
    assert invoke(["explain", str(EXAMPLES / "linear_bias_gelu.mlir"), "--target", LOOM.name]) == 0
    assert "weave_8x8x4_bf16" in capsys.readouterr().out
    assert {one.kind: one.target for one in device.survey()}["loom"] == LOOM.name
    assert driver.target_of_device("loom") == LOOM.name
