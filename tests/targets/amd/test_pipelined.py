"""Pipelined loops of ragged contractions on every AMD target: they pass the audit, and are right in the emulator."""

import numpy as np
import pytest
from targets.amd import emulator, programs

from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin, scf
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.amd.assembly import parse

RAGGED = [
    # Stores at the end of a step pend at the first barrier of the next one, behind a branch around loads.
    programs.matmul(65, 40, 100, "f32", "f32"),
    programs.matmul(65, 80, 96, "bf16", "f32"),
    programs.matmul(77, 83, 301, "f16", "f32", transposed="b"),
    # Bytes that come in whole vectors along another axis than they are multiplied along, and bytes that come one by one.
    programs.matmul(32, 48, 416, "i8", "i32", transposed="a"),
    programs.matmul(33, 35, 401, "i8", "i32"),
    # 8-bit floats that no target has an instruction for, and those that some have.
    programs.matmul(48, 64, 336, "f8E4M3FN", "f32", transposed="b"),
    programs.matmul(33, 31, 201, "f8E5M2FNUZ", "f32"),
]
EIGHT_BITS = 5
"""The second has as many steps as stages on some targets, so that its steady loop makes one trip and is no loop of the code."""


def _lowered(program: programs.Program, target: str, stages: int) -> builtin.ModuleOp:
    module = load(program.text)
    lower(module, target_spec(target), CompileOptions(pipeline_stages=stages))
    return module


@pytest.mark.parametrize("stages", [-1, 0, 2, 3])
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_they_pass_the_audit(number: int, target: str, stages: int) -> None:
    module = _lowered(RAGGED[number], target, stages)
    pipelined = any(isinstance(op, scf.ForOp) and "pipelined" in op.attributes for op in module.walk())
    assert pipelined or number == 1
    assert emulator.compile_kernels(module, target)


@pytest.mark.parametrize("transposed", ["", "b"])
@pytest.mark.parametrize("target", programs.TARGETS)
def test_loads_two_steps_ahead_are_not_moved_between_registers(target: str, transposed: str) -> None:
    """In a trip of one step they were: a move waits for the load."""
    program = programs.matmul(32, 35, 208, "f8E4M3FN", "f32", transposed=transposed)
    assert emulator.compile_kernels(_lowered(program, target, 3), target)


@pytest.mark.parametrize("target", programs.TARGETS)
def test_each_barrier_has_a_wait_of_its_own(target: str) -> None:
    """LLVM drops the wait of a release fence in a loop that it has not yet followed back to its start."""
    (kernel,) = emulator.compile_kernels(_lowered(RAGGED[0], target, 2), target).values()
    code = parse(kernel.assembly, kernel.symbol, kernel.emitted.expected.sources).instructions
    barriers = [at for at, one in enumerate(code) if one.mnemonic in ("s_barrier", "s_barrier_signal")]
    assert barriers
    assert {code[at - 1].mnemonic for at in barriers} == {"s_wait_dscnt" if target.startswith("gfx12") else "s_waitcnt"}


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("stages", [-1, 2, 3])
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_they_are_right(number: int, target: str, stages: int) -> None:
    program = RAGGED[number]
    module = _lowered(program, target, stages)
    compiled = emulator.compile_kernels(module, target)
    if target == "gfx1201" and number == EIGHT_BITS:
        with pytest.raises(NotImplementedError, match="WMMA on 8-bit floats"):
            emulator.EmulatedProgram(module, target, "forward", compiled)(*program.arrays())
        return
    expected = program.expected()
    if target == "gfx942" and "FNUZ" in program.text:
        expected *= 4  # see the emulator's faults
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        assert (np.abs(found.astype(np.float64) - expected) <= program.tolerance * np.abs(expected)).all()
