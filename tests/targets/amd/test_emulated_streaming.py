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
    "integers": programs.matmul(4, 40, 96, "i8", "i32", transposed="b"),
}


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_streaming(name: str, target: str) -> None:
    program = CASES[name]
    module = load(program.text)
    lower(module, target_spec(target), CompileOptions(form="streaming"))
    compiled = emulator.compile_kernels(module, target)
    for kernel in compiled.values():
        assert not any(mnemonic.startswith(("v_mfma", "v_wmma")) for mnemonic in kernel.facts.instructions)
    if refused := next(filter(None, map(emulator.refusal, compiled.values())), ""):
        assert refused == emulator.OWN_ADDRESS and target.startswith("gfx9")
        pytest.skip(f"the emulator cannot judge it: {refused}")
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        np.testing.assert_array_equal(found.astype(np.float64), program.expected(), err_msg=f"waves {order}")
