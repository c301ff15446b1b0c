"""f32 operands of tf32 instructions are rounded, by whoever brings them; all other f32 arrays are copied as they are."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from treadle.bench.texts import Function
from treadle.driver.lowering import lower
from treadle.driver.sources import read_source
from treadle.options import CompileOptions, Precision


def text(m: int, n: int, k: int, residual: bool = False) -> str:
    f = Function("f")
    x, w = f.argument("x", (m, k), "f32"), f.argument("w", (n, k), "f32")
    y = f.contract("mk,nk->mn", x, w)
    if not residual:
        return f.text(y)
    r = f.argument("r", (m, n), "f32")
    return f.text(*f.elementwise("mn,mn->mn", [y, r], ["f32"], lambda b, t: [b.binary("arith.addf", t[0], t[1])]))


def compiled(source: str, precision: Precision = "tf32") -> tuple[list[str], str]:
    """The types of all tensor maps of the manifest, and the assembly."""
    found = lower(read_source(source), "sm_90a", CompileOptions(f32_precision=precision), None, texts=True)
    manifest = json.loads(found.files["manifest.json"])
    return [entry["dtype"] for entry in entries(manifest) if "box_dim" in entry], found.stages["asm"]


def entries(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        yield fields
        for inner in fields.values():
            yield from entries(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from entries(inner)


@pytest.mark.parametrize("residual", [False, True])
def test_copies_round(residual: bool) -> None:
    """Two maps of operands round; the result's, and a residual's, do not."""
    types, _ = compiled(text(256, 256, 128, residual))
    assert types.count("tf32") == 2
    assert set(types) <= {"tf32", "f32"}


def test_threads_round_once_an_element() -> None:
    types, assembly = compiled(text(100, 70, 33))
    assert types == [] and assembly.count("cvt.rn.tf32.f32") > 0


def test_exact_operands_are_not_rounded() -> None:
    types, assembly = compiled(text(256, 256, 128), "ieee")
    assert "tf32" not in types and "cvt.rn.tf32" not in assembly
