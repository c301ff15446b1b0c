"""allocate-shared on text."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass


def offsets(text: str) -> list[int]:
    allocs = find(lowered(text, AllocateSharedPass), tile.AllocOp)
    assert all(op.byte_offset is not None for op in allocs)
    return [op.byte_offset.value.data for op in allocs if op.byte_offset is not None]


def test_operands_lie_side_by_side_and_the_epilogue_reuses_their_bytes() -> None:
    assert offsets(kernel_texts.matmul(512, 512, 512)) == [0, 16384]
    assert offsets(kernel_texts.matmul(512, 512, 512, out="f16")) == [0, 16384, 0]


def test_descriptor_buffers_are_aligned_for_their_swizzle() -> None:
    found = offsets(kernel_texts.matmul(512, 512, 512, tile=(64, 8, 64), warps=(4, 1)))
    assert found == [0, 8192]
    found = offsets(kernel_texts.matmul(512, 512, 512, tile=(64, 24, 16), warps=(4, 1)))
    assert all(at % 1024 == 0 for at in found)


def test_too_much_shared_memory_is_an_error_that_says_how_much() -> None:
    text = kernel_texts.matmul(512, 512, 512, tile=(256, 256, 256), warps=(8, 1))
    with pytest.raises(TreadleError) as error:
        lowered(text, AllocateSharedPass)
    assert error.value.code == "TR401"
    assert "262160 bytes" in error.value.message and "232448" in error.value.message


def test_kernels_without_buffers_are_left_alone() -> None:
    text = kernel_texts.transpose(100, 100, (32, 32))
    assert str(lowered(text, AllocateSharedPass)) == str(lowered(text, LowerLayoutConversionsPass))
