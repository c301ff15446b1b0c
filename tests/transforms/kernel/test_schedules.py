"""Whole schedules: every trace is ordered, every synchronisation is needed, every layout can be emitted."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.modules import random_module
from generators.tile_pipeline import find, lowered
from generators.tile_trace import SYNC, check_layouts, needless, problems

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import schedule_passes, tensor_passes, tile_passes
from treadle.transforms.kernel.insert_sync import InsertSyncPass

KERNELS = {
    "bulk": kernel_texts.matmul(512, 512, 512),
    "bulk, f16 out, bias": kernel_texts.matmul(512, 512, 512, out="f16", bias=True, b_transposed=True),
    "one ragged operand": kernel_texts.matmul(123, 456, 51234),
    "two ragged operands": kernel_texts.matmul(123, 457, 51233, out="f16"),
    "fma": kernel_texts.matmul(123, 456, 51234, element="f32", tile=(64, 64, 32), warps=(2, 2), instruction="fma"),
    "mfma": kernel_texts.matmul(
        512, 512, 512, tile=(128, 128, 32), warps=(2, 2), target="gfx942", instruction="mfma_16x16x16_f32_f16", out="f16"
    ),
    "reductions across warps": kernel_texts.row_softmax(100, 999, (1, 1024)),
}


def check(module: Operation) -> None:
    for kernel in find(module, tile.KernelOp):
        queued = target_spec(kernel.target.data).async_matrix
        check_layouts(kernel)
        for trips in range(4):
            assert problems(kernel, trips, queued=queued) == [], kernel.sym_name.data
        assert needless(kernel, queued=queued) == [], kernel.sym_name.data


@pytest.mark.parametrize("name", KERNELS)
def test_schedules_are_ordered_and_minimal(name: str) -> None:
    module = lowered(KERNELS[name], InsertSyncPass)
    check(module)
    assert any(isinstance(op, SYNC) for op in module.walk())


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 7, 8, 9])
def test_schedules_of_generated_modules(seed: int, target: str) -> None:
    module = parse_module(random_module(seed).text, "generated")
    spec = target_spec(target)
    run_passes(module, [*tensor_passes(), *tile_passes(spec, CompileOptions()), *schedule_passes()])
    check(module)
