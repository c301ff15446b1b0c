"""Constants whose data stands behind the module."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle
from treadle.errors import TreadleError
from treadle.ir.text import parse_module, print_module

TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
}


def program(element: str, blob: str | None, *, key: str = "weights", shape: str = "3x5") -> str:
    kind = f"tensor<{shape}x{element}>"
    add = "arith.addi" if element.startswith("i") else "arith.addf"
    tail = "" if blob is None else f'{{-#\n  dialect_resources: {{\n    builtin: {{\n      {key}: "{blob}"\n    }}\n  }}\n#-}}\n'
    return f"""func.func @f(%x: {kind}) -> {kind} {{
  %c = arith.constant dense_resource<{key}> : {kind}
  %r = {add} %x, %c : {kind}
  return %r : {kind}
}}
{tail}"""


def blob_of(array: np.ndarray) -> str:
    return "0x" + (b"\x04\0\0\0" + array.tobytes()).hex().upper()


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("key", ["weights", "torch_tensor_3_5_torch.float32", '"a name-of any kind"'])
def test_data_is_read(element: str, key: str) -> None:
    rng = np.random.default_rng(2)
    data: Any
    x: Any
    data, x = (rng.integers(-50, 50, (3, 5)).astype(TYPES[element]) for _ in range(2))
    text = program(element, blob_of(data), key=key)
    for _ in range(2):  # names of one module mean nothing to the next
        (got,) = treadle.compile(text, target="sim")(x)
        assert np.array_equal(np.asarray(got), x + data)
        data = data + 1
        text = program(element, blob_of(data), key=key)


def test_it_prints_as_dense() -> None:
    text = program("i32", blob_of(np.arange(15, dtype=np.int32)))
    printed = print_module(parse_module(text, "a.mlir"))
    assert "dense_resource" not in printed
    assert "dense<" in printed
    assert print_module(parse_module(printed, "b.mlir")) == printed


REFUSED = [
    (None, "no resource of this name"),
    ("__elided__", "no string of hexadecimal digits"),
    ("0x0400000", "hexadecimal"),
    ("0xGG", "hexadecimal"),
    (blob_of(np.zeros(14, np.float32)), "holds 56 bytes"),
    (blob_of(np.zeros(16, np.float32)), "holds 64 bytes"),
    ("0x", "holds 0 bytes"),
]


@pytest.mark.parametrize(("blob", "words"), REFUSED)
def test_missing_data_is_refused(blob: str | None, words: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse_module(program("f32", blob), "a.mlir")
    assert caught.value.code == "TR105"
    assert words.removeprefix("no string of ") in caught.value.message
    assert str(caught.value.location) == "a.mlir:2:8"
