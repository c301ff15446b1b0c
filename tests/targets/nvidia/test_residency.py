"""Workgroups that share a unit: by the config, or by the tiles that rows hold at barriers; nothing is spilled for it."""

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.bench.calibration import workload_of
from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.targets.nvidia.residency import held_registers, resident_workgroups
from treadle.targets.registry import backend

TARGET = "sm_90a"


@treadle.kernel(target="sim")
def centred(x: Any, y: Any, BLOCK: tl.constexpr = 1024) -> None:
    row = tl.program_id(0)
    values = x[row, 0:BLOCK]
    values = values - tl.sum(values, axis=0) / x.shape[1]
    y[row, 0:BLOCK] = values * tl.rsqrt(tl.sum(values * values, axis=0))


@treadle.kernel(target="sim")
def doubled(x: Any, y: Any, BLOCK: tl.constexpr = 1024) -> None:
    row = tl.program_id(0)
    y[row, 0:BLOCK] = x[row, 0:BLOCK] * 2.0


def lowered(kernel: Any, block: int, warps: int) -> tile.KernelOp:
    x = np.zeros((4, block), np.float32)
    form, _, _ = kernel[4]._resolved((x, x.copy()), {"BLOCK": block}, warps, 4)
    module = scheduled(read_source(build(kernel.function, form).module, "tile"), TARGET, CompileOptions(), None)
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


@pytest.mark.parametrize(
    ("block", "warps", "held", "resident"), [(1024, 4, 8, 10), (4096, 8, 16, 5), (8192, 8, 32, 4), (16384, 8, 64, 2), (16384, 32, 16, 1)]
)
def test_rows_that_barriers_part(block: int, warps: int, held: int, resident: int) -> None:
    kernel = lowered(centred, block, warps)
    assert held_registers(kernel) == held
    assert resident_workgroups(kernel, target_spec(TARGET)) == resident
    found = backend(TARGET).assemble(backend(TARGET).emit(kernel))
    assert f".minnctapersm {resident}\n" in found.assembly
    assert found.facts.spill_bytes == 0 and found.facts.registers <= 65536 // (32 * warps * resident)


def test_what_waits_for_nobody() -> None:
    """Neither rows of one warp nor elementwise kernels hold anything at a barrier."""
    for kernel in (lowered(centred, 1024, 1), lowered(doubled, 4096, 8)):
        assert held_registers(kernel) == 0 and resident_workgroups(kernel, target_spec(TARGET)) == 1


def test_streams_share_a_unit_as_modelled() -> None:
    """Without a bound the tools give each thread of this kernel so many registers that one workgroup fits instead of two."""
    options = CompileOptions(form="streaming", tile=(2, 2, 1024), warps=(8, 1), num_stages=4, split_reduction="off", tuned=False)
    (kernel,) = treadle.compile(workload_of("gemm-f16-nt-2x4544x6144").text, TARGET, options=options).manifest.kernels
    assert kernel.facts["spill_bytes"] == 0 and kernel.facts["registers"] <= 65536 // (32 * 8 * 2)
