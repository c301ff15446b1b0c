"""Unterminated and odd string literals are refused in time linear in the text, and well-formed ones are read as before."""

import time

import pytest

from treadle.errors import TreadleError
from treadle.ir.linear_lexer import STRING_LITERAL
from treadle.ir.text import location_of, parse_module


@pytest.mark.parametrize("rest", ["a" * 200_000, "\\" * 200_001, '\\"' * 100_000, "\\0" * 100_000, "é" * 100_000 + "\n", "a\\n" * 60_000])
def test_an_unterminated_string(rest: str) -> None:
    start = time.process_time()
    with pytest.raises(TreadleError) as caught:
        parse_module('func.func @f() {\n  "' + rest, "a.mlir")
    assert caught.value.code == "TR101"
    assert str(caught.value.location) == "a.mlir:2:3"
    assert time.process_time() - start < 2


def test_string_literals() -> None:
    for text in ('""', '"a b"', r'"\"\\\n\t\0A"', '"é//"'):
        match = STRING_LITERAL.match(text + ' "')
        assert match is not None and match.group() == text
    for text in ('"a', '"a\n"', r'"\q"', r'"\"', '"\\'):
        assert STRING_LITERAL.match(text) is None


def test_many_aliases_of_locations_in_reverse_order() -> None:
    count = 2000
    lines = [f"#loc{n} = loc(fused[#loc{n + 1 if n % 9 else count}])" for n in range(count)] + [f'#loc{count} = loc("a":1:2)']
    start = time.process_time()
    module = parse_module("func.func @f() {\n  return\n} loc(#loc0)\n" + "\n".join(lines), "a.mlir")
    assert [str(location_of(op)) for op in module.body.block.ops] == ["a:1:2"]
    assert time.process_time() - start < 5
