"""Arrays that a kernel reads and writes: nothing that is emitted may take them for constant, and barriers order them."""

import pytest
from hazards.kernels import kernel_of
from hazards.programs_global import elementwise, fenced_copy, transposed
from hazards.schedules import ROWS_LAYOUT, WAVE_ROWS

from treadle.targets.registry import backend

TARGETS = ("sm_90a", "gfx942", "gfx1100", "gfx1201")


def emitted(text: str, target: str) -> str:
    rows = WAVE_ROWS if target.startswith("gfx9") else ROWS_LAYOUT
    text = text.replace("sm_90a", target).replace(ROWS_LAYOUT, rows)
    return backend(target).emit(kernel_of(text)).llvm_text


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_is_not_constant(target: str) -> None:
    text = emitted(elementwise().replace("output_count = 1", "output_count = 0"), target)  # the array counts as an input
    assert "readonly" not in text and "invariant.load" not in text and "ld.global.nc" not in text


@pytest.mark.parametrize("target", TARGETS[1:])
def test_barriers_order_global_memory_where_it_is_read_back(target: str) -> None:
    text = emitted(transposed(between="  sync.barrier"), target)
    assert 'fence syncscope("workgroup") release' in text
    assert "amdgpu-synchronize-as" not in text


def test_the_fence_for_global_arrays() -> None:
    assert "fence.proxy.async.global;" in emitted(fenced_copy('  sync.fence "async_global"', "  sync.barrier"), "sm_90a")
