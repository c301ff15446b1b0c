"""Text that is nested too deep is a user's error at the bracket that is one too many, in every construct."""

import pytest

from treadle.errors import TreadleError
from treadle.ir.nesting import MAX_DEPTH, too_deep_at
from treadle.ir.text import parse_module

FUNCTION = "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}\n"
DEEP = 300
TEXTS = {
    "modules": "module {\n" * DEEP + FUNCTION + "}\n" * DEEP,
    "regions": FUNCTION.replace("return", "%c = arith.constant true\n" + "scf.if %c {\n" * DEEP + "}\n" * DEEP + "return"),
    "attributes": f"module attributes {{x = {'[' * DEEP}1{']' * DEEP}}} {{\n{FUNCTION}}}",
    "dictionaries": f"module attributes {{x = {'{y = ' * DEEP}1{'}' * DEEP}}} {{\n{FUNCTION}}}",
    "types": FUNCTION.replace("%a: ", "%b: " + "tuple<" * DEEP + "f32" + ">" * DEEP + ", %a: "),
    "constants": FUNCTION.replace("return", f"%c = arith.constant dense<{'[' * DEEP}1.0{']' * DEEP}> : tensor<4xf32>\nreturn"),
    "maps": f"#m = affine_map<(d0) -> ({'(' * DEEP}d0{')' * DEEP})>\n{FUNCTION}",
    "signs": f"#m = affine_map<(d0) -> ({'-' * 20 * DEEP}d0)>\n{FUNCTION}",
    "locations": f'{FUNCTION.rstrip()} loc({"fused[" * DEEP}"a":1:1{"]" * DEEP})\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_refused(name: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse_module(TEXTS[name], "a.mlir")
    assert caught.value.code == "TR106"
    assert caught.value.location is not None
    assert caught.value.location.column > 1
    assert "recursion" not in caught.value.message


def test_what_is_not_nested() -> None:
    assert too_deep_at(FUNCTION * 100) is None
    assert too_deep_at("() -> " * 1000) is None
    assert too_deep_at('"' + "(" * 1000 + '"') is None
    assert too_deep_at("// " + "(" * 1000) is None
    assert too_deep_at("(" * MAX_DEPTH) is None
    assert too_deep_at("x\n" + "(" * (MAX_DEPTH + 1)) == MAX_DEPTH + 2


def test_depths_below_the_limit_are_parsed() -> None:
    depth = MAX_DEPTH - 8
    text = FUNCTION.replace("return", "%c = arith.constant true\n" + "scf.if %c {\n" * depth + "}\n" * depth + "return")
    assert parse_module(text, "a.mlir")
