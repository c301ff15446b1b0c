"""Loops whose threads bring the operands: one wait for what a step stores, and code for the fewest registers where a tile would spill."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from targets.amd import emulator, programs

from treadle.bench.families import beside
from treadle.codegen.worker import LlvmJob
from treadle.errors import InternalError, KernelRejected
from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.amd import backend as amd
from treadle.targets.amd import register_use
from treadle.targets.amd.assembly import parse
from treadle.targets.amd.counters import Counters
from treadle.targets.amd.flow import natural_loops

RESIDUAL = {"gfx1100": (128, 128, 32), "gfx1201": (128, 128, 64)}
"""Tiles of two by two warps: LLVM's usual schedule of what follows the loop does not get into 256 registers."""


def _lowered(text: str, target: str, options: CompileOptions | None = None) -> builtin.ModuleOp:
    module = load(text)
    lower(module, target_spec(target), options or CompileOptions())
    return module


def _residual(target: str, m: int, n: int, k: int) -> builtin.ModuleOp:
    text = beside("residual", "test", "linear_residual", m, n, k, "bf16").text
    return _lowered(text, target, CompileOptions(tile=RESIDUAL[target], warps=(2, 2)))


@pytest.mark.parametrize("kind", ["f16", "i8"])
@pytest.mark.parametrize("target", ["gfx942", *RESIDUAL])
def test_a_step_waits_once_for_its_loads(target: str, kind: str) -> None:
    program = programs.matmul(1024, 1024, 4096, kind, "i32" if kind == "i8" else "f32", transposed="b")
    (kernel,) = emulator.compile_kernels(_lowered(program.text, target), target).values()
    listing = parse(kernel.assembly, kernel.symbol)
    counters = Counters(listing, own_store_counter=target != "gfx942")
    loop = max(natural_loops(listing), key=lambda body: sum(counters.kinds[at] == "matrix" for at in body))
    waits = sum("vector" in counters.waits_at(at) for at in loop)
    stores = sum(counters.kinds[at] == "local_store" for at in loop)
    assert 0 < 4 * waits <= stores


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("target", RESIDUAL)
def test_tiles_that_would_spill_are_right(target: str) -> None:
    m, n, k = 120, 104, 192
    module = _residual(target, m, n, k)
    compiled = emulator.compile_kernels(module, target)
    (kernel,) = compiled.values()
    assert register_use._FEWEST_REGISTERS.strip() in kernel.emitted.llvm_text
    rng = np.random.default_rng(5)
    kind = programs.DTYPES["bf16"]
    x, w, r = (rng.integers(-3, 4, size).astype(kind) for size in ((m, k), (n, k), (m, n)))
    expected = x.astype(np.float64) @ w.astype(np.float64).T + r.astype(np.float64)
    (found,) = emulator.EmulatedProgram(module, target, "shuffled", compiled)(x, w, r)
    assert (np.abs(found.astype(np.float64) - expected) <= np.abs(expected) / 64).all()


def test_a_failure_of_the_other_way_leaves_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = amd.compile_many

    def failing(jobs: Sequence[LlvmJob], seconds: float | None = None) -> list[Any]:
        if any(register_use._FEWEST_REGISTERS in job.text for job in jobs):
            assert seconds is not None, "what is only tried must not take minutes"
            raise InternalError("LLVM ended")
        return generate(jobs, seconds)

    monkeypatch.setattr(amd, "compile_many", failing)
    with pytest.raises(KernelRejected, match="registers do not hold the tile"):
        emulator.compile_kernels(_residual("gfx1201", 2048, 4096, 4096), "gfx1201")
