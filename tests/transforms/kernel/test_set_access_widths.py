"""set-access-widths on text."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle.dialects import tile
from treadle.transforms.kernel.set_access_widths import SetAccessWidthsPass


def widths(text: str) -> list[int]:
    module = lowered(text, SetAccessWidthsPass)
    return [op.vector.value.data for op in module.walk() if isinstance(op, tile.LoadOp | tile.StoreOp)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (kernel_texts.matmul(512, 512, 512), [8, 8, 4]),
        (kernel_texts.matmul(123, 456, 51234), [2, 8, 4]),
        (kernel_texts.matmul(123, 457, 51233), [1, 1, 1]),
        (kernel_texts.matmul(512, 512, 512, element="f32", instruction="fma", tile=(64, 64, 32)), [4, 4, 4]),
        (kernel_texts.matmul(123, 456, 51234, lda=51240), [2, 8, 4]),
        (kernel_texts.matmul(120, 456, 512, a_transposed=True), [8, 8, 4]),
        (kernel_texts.transpose(1000, 999, (32, 32)), [1, 4]),
    ],
)
def test_widths_follow_pitch_size_and_offset(text: str, expected: list[int]) -> None:
    assert widths(text) == expected


def test_offsets_without_known_divisors_give_scalar_accesses() -> None:
    text = kernel_texts.matmul(512, 512, 512).replace("%m0 = arith.muli %pm, %bm", "%m0 = arith.addi %pm, %bm")
    assert widths(text) == [8, 8, 4]  # rows: the pitch is what matters
    text = kernel_texts.matmul(512, 512, 512).replace("%n0 = arith.muli %pn, %bn", "%n0 = arith.addi %pn, %bn")
    assert widths(text) == [8, 1, 1]


def test_everything_else_is_left_alone() -> None:
    text = kernel_texts.matmul(123, 457, 51233)  # all widths stay 1
    before, after = lowered(text, None), lowered(text, SetAccessWidthsPass)
    assert str(before) == str(after)
    assert len(find(after, tile.LoadOp)) == 2
