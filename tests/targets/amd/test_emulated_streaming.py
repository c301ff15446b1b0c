"""Contractions that stream their large operand through registers, as machine code for every AMD target in the emulator."""

import numpy as np
import pytest
from targets.amd import emulator, programs

from treadle.frontends.mlir import load
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")

CASES = {
    "one row": programs.matmul(1, 100, 264, "f16", "f32", transposed="b"),
    "three rows, ragged": programs.matmul(3, 37, 72, "f16", "f32", transposed="b", bias=True),
    "odd length": programs.matmul(2, 24, 133, "bf16", "f32", transposed="b"),
    "rows side by side": programs.matmul(1, 96, 77, "f16", "f32"),
    "rows of three bytes": programs.matmul(51, 3, 16, "i8", "i32", transposed="a"),  # two of them at once, at odd addresses
    "integers": programs.matmul(4, 40, 96, "i8", "i32", transposed="b"),
}


def _check(program: programs.Program, target: str, options: CompileOptions) -> None:
    module = load(program.text)
    lower(module, target_spec(target), options)
    compiled = emulator.compile_kernels(module, target)
    for kernel in compiled.values():
        assert not any(mnemonic.startswith(("v_mfma", "v_wmma")) for mnemonic in kernel.facts.instructions)
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        np.testing.assert_array_equal(found.astype(np.float64), program.expected(), err_msg=f"waves {order}")


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_streaming(name: str, target: str) -> None:
    _check(CASES[name], target, CompileOptions(form="streaming"))


@needs_emulator
@pytest.mark.parametrize("ring", [1, 2])
@pytest.mark.parametrize("target", programs.TARGETS)
def test_parts_of_a_row_in_several_warps(target: str, ring: int) -> None:
    wave = 64 if target.startswith("gfx9") else 32
    _check(
        programs.matmul(2, 24, 4 * wave + 2, "bf16", "f32", transposed="b"),
        target,
        CompileOptions(form="streaming", tile=(2, 1, 4 * wave), num_stages=ring, warps=(4, 1)),
    )
