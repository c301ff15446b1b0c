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
]
"""The second has as many steps as stages on some targets, so that its steady loop makes one trip and is no loop of the code."""


def _lowered(program: programs.Program, target: str, stages: int) -> builtin.ModuleOp:
    module = load(program.text)
    lower(module, target_spec(target), CompileOptions(pipeline_stages=stages))
    return module


@pytest.mark.parametrize("stages", [0, 2, 3])
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_they_pass_the_audit(number: int, target: str, stages: int) -> None:
    module = _lowered(RAGGED[number], target, stages)
    pipelined = any(isinstance(op, scf.ForOp) and "pipelined" in op.attributes for op in module.walk())
    assert pipelined or number == 1
    assert emulator.compile_kernels(module, target)


@pytest.mark.parametrize("target", programs.TARGETS)
def test_each_barrier_has_a_wait_of_its_own(target: str) -> None:
    """LLVM drops the wait of a release fence in a loop that it has not yet followed back to its start."""
    (kernel,) = emulator.compile_kernels(_lowered(RAGGED[0], target, 2), target).values()
    code = parse(kernel.assembly, kernel.symbol, kernel.emitted.expected.sources).instructions
    barriers = [at for at, one in enumerate(code) if one.mnemonic in ("s_barrier", "s_barrier_signal")]
    assert barriers
    assert {code[at - 1].mnemonic for at in barriers} == {"s_wait_dscnt" if target.startswith("gfx12") else "s_waitcnt"}


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_they_are_right(number: int, target: str, stages: int) -> None:
    program = RAGGED[number]
    module = _lowered(program, target, stages)
    compiled = emulator.compile_kernels(module, target)
    expected = program.expected()
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        assert (np.abs(found.astype(np.float64) - expected) <= program.tolerance * np.abs(expected)).all()
