"""Machine code for every AMD target, run in the emulator in three orders of the waves, against float64."""

from dataclasses import replace

import numpy as np
import pytest
from targets.amd import emulator, programs

from treadle.targets.registry import backend

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


REFUSED = {("maximum", "gfx1100"): emulator.VOP3_DPP}


def _check(program: programs.Program, target: str, scale: float = 1.0, **config: int) -> dict[str, int]:
    module = programs.lowered(program.text, target, **config)
    compiled = emulator.compile_kernels(module, target)
    expected = scale * program.expected()
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        assert found.shape == expected.shape
        error = np.abs(found.astype(np.float64) - expected)
        assert (error <= program.tolerance * np.abs(expected)).all(), f"waves {order}: error {error.max()} at {np.argmax(error)}"
    counts: dict[str, int] = {}
    for kernel in compiled.values():
        for mnemonic, count in kernel.facts.instructions.items():
            counts[mnemonic] = counts.get(mnemonic, 0) + count
    return counts


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program(name: str, target: str) -> None:
    if (name, target) in REFUSED:
        compiled = emulator.compile_kernels(programs.lowered(programs.PROGRAMS[name].text, target), target)
        assert REFUSED[name, target] in map(emulator.refusal, compiled.values())
        return
    counts = _check(programs.PROGRAMS[name], target)
    matrix = sum(count for mnemonic, count in counts.items() if mnemonic.startswith(("v_mfma", "v_wmma")))
    contraction = name.split("_", maxsplit=1)[0] in ("f16", "bf16", "i8", "f32")
    assert (matrix > 0) == (contraction and not (name == "f32" and target.startswith("gfx1")))


@needs_emulator
@pytest.mark.parametrize(("target", "kind"), [(t, k) for t, kinds in programs.FP8.items() for k in kinds])
def test_fp8(target: str, kind: str) -> None:
    scale = 4.0 if kind.endswith("FNUZ") else 1.0  # see the emulator's faults
    counts = _check(programs.matmul(50, 37, 75, kind, "f32"), target, scale)
    assert counts["v_mfma_f32_16x16x32_bf8_bf8" if "E5" in kind else "v_mfma_f32_16x16x32_fp8_fp8"]


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_several_warps(target: str) -> None:
    _check(programs.matmul(150, 140, 100, "f16", "f32", bias=True), target, tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2)


@needs_emulator
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_dropped_barrier_shows(target: str) -> None:
    program = programs.matmul(64, 64, 96, "f16", "f32")
    module = programs.lowered(program.text, target, tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2)
    (good,) = emulator.compile_kernels(module, target).values()
    text = good.emitted.llvm_text.replace("call void @llvm.amdgcn.s.barrier()", "call void @llvm.amdgcn.wave.barrier()")
    text = text.replace("declare void @llvm.amdgcn.s.barrier()", "declare void @llvm.amdgcn.wave.barrier()")
    bad = backend(target).assemble(replace(good.emitted, llvm_text=text))
    errors: list[float] = []
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, {good.symbol: bad})(*program.arrays())
        errors.append(float(np.nan_to_num(np.abs(found - program.expected()), nan=np.inf).max()))
    assert max(errors) > 1.0
