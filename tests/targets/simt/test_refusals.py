"""Operations without code: one error at the user's line, on every target."""

import pytest

import treadle
from treadle.errors import TreadleError


def text(op: str, element: str) -> str:
    return f"""func.func @f(%x: tensor<7xELEMENT>) -> tensor<7xELEMENT> {{
  %0 = {op} %x{", %x" if op == "math.ipowi" else ""} : tensor<7xELEMENT>
  return %0 : tensor<7xELEMENT>
}}""".replace("ELEMENT", element)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize(
    ("op", "element", "hint"), [("math.acosh", "f64", "f32"), ("math.atan", "f64", "f32"), ("math.ipowi", "i32", "express")]
)
def test_refused_at_the_users_line(op: str, element: str, hint: str, target: str) -> None:
    with pytest.raises(TreadleError) as caught:
        treadle.compile(text(op, element), target=target)
    assert caught.value.code == "TR301"
    assert caught.value.location is not None
    assert caught.value.location.line == 2
    assert (op in caught.value.message, hint in caught.value.fix) == (True, True)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("op", ["cbrt", "atan", "acosh"])
def test_elementary_functions_compile(op: str, element: str) -> None:
    assert treadle.compile(text(f"math.{op}", element), target="gfx1100").binaries
