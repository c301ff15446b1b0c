"""Split reductions and grouped contractions on AMD: ragged parts as machine code, in the emulator."""

import numpy as np
import pytest
from generators.grouped_contractions import grouped_text
from targets.amd import emulator, programs

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


@needs_emulator
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_groups_of_different_sizes(target: str) -> None:
    rows, n, k = (13, 40, 3), 24, 33

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.concatenate([part @ own for part, own in zip(np.split(x, np.cumsum(rows)[:-1]), w, strict=True)])

    program = programs.Program(grouped_text(rows, n, k), (((sum(rows), k), "f16"), ((len(rows), k, n), "f16")), reference)
    module = programs.lowered(program.text, target)
    compiled = emulator.compile_kernels(module, target)
    assert len(compiled) == 1
    (found,) = emulator.EmulatedProgram(module, target, "shuffled", compiled)(*program.arrays())
    np.testing.assert_array_equal(found.astype(np.float64), program.expected())
