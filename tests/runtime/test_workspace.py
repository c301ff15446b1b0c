"""Memory of a program's own: what kernels say of it, what host programs make of it, and what may not be left in it."""

from pathlib import Path

import numpy as np
import pytest
from generators.arrivals import split_sum, sum_arrays

import treadle
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.sim.faults import SimulationFault
from treadle.sim.program import SimProgram

EXAMPLE = Path(__file__).parents[2] / "examples" / "split_matmul.mlir"
OWN = split_sum().replace("in_place = array<i64: 1, 2>", "workspace = array<i64: 1, 2>")
PROGRAM = """
dispatch.program @sums attributes {dims = {n = array<i64: 0, 0>, m = array<i64: 0, 1>}} {
  %x = dispatch.input 0 "x" shape ["n", "m"] strides ["m", "1"] align 16 : !dispatch.buffer<f32>
  %parts = dispatch.alloc ["3", "n"] : !dispatch.buffer<f32>
  %counters = dispatch.alloc ["n"] counters : !dispatch.buffer<i32>
  %y = dispatch.alloc ["n"] : !dispatch.buffer<f32>
  dispatch.launch @split_sum(%x : !dispatch.buffer<f32>)
    -> (%parts, %counters, %y : !dispatch.buffer<f32>, !dispatch.buffer<i32>, !dispatch.buffer<f32>)
    symbols {rows = "n", columns = "m", parts = "3", chunk = "(m + 2) // 3"}
  dispatch.return %y : !dispatch.buffer<f32>
}
"""


@pytest.mark.parametrize(("m", "n", "k", "parts"), [(1, 1, 1, 1), (70, 90, 1000, 3), (64, 64, 64, 2), (33, 130, 700, 11)])
def test_a_kernel_with_a_workspace(m: int, n: int, k: int, parts: int) -> None:
    rng = np.random.default_rng(m)
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float16), rng.integers(-3, 4, (k, n)).astype(np.float16)
    program = treadle.compile(EXAMPLE, target="sim")
    assert [t.name for t in program.manifest.inputs] == ["a", "b", "parts", "steps"]
    for _ in range(2):
        (c,) = program(a, b, parts, -(-k // (64 * parts)))
        np.testing.assert_array_equal(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16))


def test_what_the_manifest_says_of_it() -> None:
    buffers = treadle.compile(OWN, target="sm_90a").manifest.buffers
    assert [(b.role, b.zero, b.kept) for b in buffers if b.role == "temporary"] == [("temporary", False, False), ("temporary", True, True)]


def test_a_host_program_with_counters() -> None:
    (x, *_), _ = sum_arrays(5, 700, 3)
    program = treadle.compile(split_sum() + PROGRAM, target="sim", function="sums")
    for _ in range(2):
        np.testing.assert_allclose(program(x)[0], x.astype(np.float64).sum(1), atol=1e-3)
    module = scheduled(read_source(split_sum() + PROGRAM), "gfx942", CompileOptions(), "sums")
    np.testing.assert_allclose(SimProgram(module)(x)[0], x.astype(np.float64).sum(1), atol=1e-3)


def test_counters_are_no_results() -> None:
    text = PROGRAM.replace("dispatch.return %y : !dispatch.buffer<f32>", "dispatch.return %counters : !dispatch.buffer<i32>")
    with pytest.raises(TreadleError, match="kept for other calls") as caught:
        treadle.compile(split_sum() + text, target="sim", function="sums")
    assert caught.value.code == "TR108"


def left_counting() -> str:
    """A program whose counters wait for nine arrivals more than there are."""
    text = (split_sum() + PROGRAM).replace("of %parts", "of %longer")
    text = text.replace("  %c0 = ", "  %c9 = arith.constant 9 : index\n  %c0 = ", 1)
    return text.replace("  %last = ", "  %longer = arith.addi %parts, %c9 : index\n  %last = ", 1)


def test_counters_that_are_left_counting() -> None:
    (x, *_), _ = sum_arrays(5, 700, 3)
    with pytest.raises(TreadleError, match="leave counters that are not zero"):
        treadle.compile(left_counting(), target="sim", function="sums")(x)
    module = scheduled(read_source(left_counting()), "gfx942", CompileOptions(verify=False), "sums")
    with pytest.raises(SimulationFault, match="leave counters that are not zero"):
        SimProgram(module)(x)


def test_a_workspace_is_of_outputs() -> None:
    with pytest.raises(TreadleError, match="workspace names outputs"):
        treadle.compile(OWN.replace("array<i64: 1, 2>", "array<i64: 0>"), target="sim")
