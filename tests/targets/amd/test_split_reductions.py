"""Split reductions and grouped contractions on AMD: ragged parts as machine code, in the emulator."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from generators.grouped_contractions import grouped_text, routed_text
from targets.amd import emulator, programs

from treadle.ir.dialects import builtin
from treadle.sim.element_types import storage_dtype

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


def split(program: programs.Program, attribute: str) -> programs.Program:
    """The same program with its first generic split."""
    text = program.text.replace("linalg.generic {", f"linalg.generic {{treadle.split_reduction = {attribute}, ", 1)
    assert text != program.text
    return programs.Program(text, program.inputs, program.reference)


CASES = {
    "f32": split(programs.matmul(13, 21, 33, "f32", "f32", bias=True), '#dispatch.split<r0 = "5" step 7>'),
    "f16": split(programs.matmul(37, 50, 300, "f16", "f32"), '#dispatch.split<r0 = "4" step 32>'),
    "sum": split(programs.row_reduction(3, 1037, "sum"), '#dispatch.split<r0 = "5" step 64>'),
    "maximum": split(programs.row_reduction(3, 1037, "maximum"), "7 : i64"),
}


@needs_emulator
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("name", CASES)
def test_split(name: str, target: str) -> None:
    program = CASES[name]
    module = programs.lowered(program.text, target)
    compiled = emulator.compile_kernels(module, target)
    assert len(compiled) == 2
    expected = program.expected()
    for order in ("forward", "shuffled"):
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        error = np.abs(found.astype(np.float64) - expected)
        assert (error <= program.tolerance * np.maximum(np.abs(expected), 1)).all(), f"waves {order}: error {error.max()}"


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    element = {"f16": builtin.f16, "bf16": builtin.bf16, "f32": builtin.f32}[dtype]
    return rng.standard_normal(shape).astype(storage_dtype(element))


def expected(x: np.ndarray, w: np.ndarray, ends: Sequence[int], y: np.ndarray) -> np.ndarray:
    """The groups' rows of a product; all other rows are those of y."""
    found = y.astype(np.float64)
    for group, (low, high) in enumerate(pairwise(ends)):
        found[low:high] = x[low:high].astype(np.float64) @ w[group].astype(np.float64)
    return found


@needs_emulator
@pytest.mark.parametrize("rows", [(13, 40, 3), (0, 70, 0, 1, 33), (13, 0, 40, 3, 1, 0, 35, 2, 0, 1, 1, 7, 33, 0, 0, 5, 1, 64, 2, 9, 31, 1)])
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
def test_groups_of_different_sizes(target: str, rows: tuple[int, ...]) -> None:
    n, k = 24, 33

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.concatenate([part @ own for part, own in zip(np.split(x, np.cumsum(rows)[:-1]), w, strict=True)])

    program = programs.Program(grouped_text(rows, n, k), (((sum(rows), k), "f16"), ((len(rows), k, n), "f16")), reference)
    module = programs.lowered(program.text, target)
    compiled = emulator.compile_kernels(module, target)
    (kernel,) = compiled.values()
    assert ("@table0 =" in kernel.emitted.llvm_text) == (len(rows) > 16)
    (found,) = emulator.EmulatedProgram(module, target, "shuffled", compiled)(*program.arrays())
    np.testing.assert_array_equal(found.astype(np.float64), program.expected())


@needs_emulator
@pytest.mark.parametrize(("target", "dtype", "index"), [("gfx942", "bf16", "i64"), ("gfx1100", "f16", "i32"), ("gfx1201", "f16", "i64")])
def test_groups_that_the_runtime_knows(target: str, dtype: str, index: str) -> None:
    """One program, several tables: empty groups, one row, rows of no group, numbers that leave the array."""
    rows, n, k = 70, 24, 33
    program = programs.Program(routed_text(rows, 4, n, k, dtype, index=index), (), lambda: np.zeros(0))
    module = programs.lowered(program.text, target)
    compiled = emulator.compile_kernels(module, target)
    rng = np.random.default_rng(5)
    x, w, y = (numbers(rng, shape, dtype) for shape in ((rows, k), (4, k, n), (rows, n)))
    for table in ([0, 0, 1, 40, 70], [3, 36, 36, 37, 60], [0, 70, 70, 70, 70], [9, 9, 9, 9, 9], [50, 99, -7, 70, 2**31 - 1]):
        ends = np.array(table, np.int64 if index == "i64" else np.int32)
        (found,) = emulator.EmulatedProgram(module, target, "shuffled", compiled)(x, w, ends, y)
        if table[1] <= rows:
            want = expected(x, w, table, y)
            assert np.abs(found.astype(np.float64) - want).max() <= 0.02 * np.abs(want).max()
