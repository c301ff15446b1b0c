"""set-f32-split: the model's choice where a program asks for parts, and the user's for one operation."""

import pytest
from transforms.tensor.test_expand_f32_precision import BIG, expanded, launches, lowered, matmul

from treadle.analysis.operation_marks import F32_SPLIT
from treadle.errors import TreadleError
from treadle.options import Precision

SMALL = (33, 17, 45)


def asked(text: str, value: str) -> str:
    """The text with the attribute on its contraction."""
    return text.replace("linalg.generic {", f"linalg.generic {{{F32_SPLIT} = {value}, ", 1)


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16x3"])
def test_a_users_split_takes_the_place_of_the_programs(precision: Precision) -> None:
    """Where nothing is asked of the program, where another split is, and where the model would have refused."""
    for sizes in (BIG, SMALL):
        module, remarks = lowered(asked(matmul(*sizes), '"bf16x6"'), precision)
        (op,) = expanded(module)
        assert str(op.attributes["treadle.f32_parts"]) == '"bf16"'
        assert len(launches(module)) == 3
        assert remarks[0].startswith("decision: f32_precision=bf16x6: 6 products")


def test_a_user_keeps_one_contraction_whole() -> None:
    module, remarks = lowered(asked(matmul(*BIG), '"none"'), "3xtf32")
    assert expanded(module) == [] and remarks == []
    assert F32_SPLIT not in str(module)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (asked(matmul(*BIG), '"4xtf32"'), "sm_90a", "there is no split 4xtf32"),
        (asked(matmul(*BIG), "3 : i64"), "sm_90a", "there is no split 3"),
        (asked(matmul(*BIG, dtype="bf16"), '"3xtf32"'), "sm_90a", "no contraction of two f32 tensors"),
        (asked(matmul(*BIG), '"3xtf32"'), "gfx942", "gfx942 has no matrix instruction for tf32"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_its_line(text: str, target: str, message: str) -> None:
    with pytest.raises(TreadleError, match=f"TR306.*{message}") as caught:
        lowered(text, "ieee", target)
    assert caught.value.location is not None
    line = text.splitlines()[caught.value.location.line - 1]
    assert F32_SPLIT in line
