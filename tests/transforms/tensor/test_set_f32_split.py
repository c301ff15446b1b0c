"""set-f32-split: the model's choice where a program asks for parts, and the user's for one operation."""

import pytest
from transforms.tensor.test_expand_f32_precision import BIG, expanded, launches, lowered, matmul

from treadle.analysis.operation_marks import F32_SPLIT, F32_SPLIT_IN
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


def placed(text: str, place: str) -> str:
    """The text with both attributes on its contraction."""
    return asked(text, '"bf16x6"').replace(f"{{{F32_SPLIT}", f'{{{F32_SPLIT_IN} = "{place}", {F32_SPLIT}', 1)


@pytest.mark.parametrize("sizes", [BIG, SMALL])
def test_a_user_says_where_operands_are_split(sizes: tuple[int, int, int]) -> None:
    for place, arrays in (("memory", 3), ("kernel", 1)):
        module, remarks = lowered(placed(matmul(*sizes), place), "ieee", place="")
        assert len(launches(module)) == arrays and (expanded(module) == []) == (place == "kernel")
        assert ("the kernel splits the operands itself" in remarks[0]) == (place == "kernel")


@pytest.mark.parametrize(("sizes", "arrays"), [((123, 456, 51234), 1), ((64, 4096, 4096), 1), ((8192, 8192, 8192), 3)])
def test_the_model_splits_in_memory_what_is_read_often(sizes: tuple[int, int, int], arrays: int) -> None:
    module, _ = lowered(matmul(*sizes, transposed=False), "bf16x6", place="")
    assert len(launches(module)) == arrays


def test_what_is_computed_is_split_where_it_is_computed() -> None:
    """A kernel brings what it splits by copies: operands that it would compute are left to the kernels that split in memory."""
    m, _, k = BIG
    text, kind = matmul(*BIG, transposed=False), f"tensor<{m}x{k}xf32>"
    assert expanded(lowered(text, "bf16x6", place="")[0]) == []
    squared = f"""  %sq = tensor.empty() : {kind}
  %xx = linalg.mul ins(%x, %x : {kind}, {kind}) outs(%sq : {kind}) -> {kind}
"""
    line = text.rindex("\n", 0, text.index("linalg.generic {")) + 1
    module, _ = lowered(text[:line] + squared + text[line:].replace("%x,", "%xx,", 1), "bf16x6", place="")
    assert len(expanded(module)) == 1


@pytest.mark.parametrize(
    ("place", "target", "message"),
    [
        ("nowhere", "sm_90a", "there is no place"),
        ("kernel", "gfx942", "kernels of gfx942 do not split operands into bf16 parts themselves"),
    ],
)
def test_places_that_cannot_be_had_are_refused(place: str, target: str, message: str) -> None:
    with pytest.raises(TreadleError, match=f"TR306.*{message}"):
        lowered(placed(matmul(*BIG), place), "ieee", target, place="")
