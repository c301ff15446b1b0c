"""From dispatch.program to the manifest: buffers, strides, views, symbols, constants, checks and launch arguments."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from treadle.dialects import dispatch
from treadle.driver.host_program import Argument, HostProgram, KernelRecord, dtype_bytes, extent_bytes, row_major, size
from treadle.errors import InternalError
from treadle.ir.text import parse_module
from treadle.plan.expr import as_expr, parse

TEXT = """
dispatch.program @linear attributes {dims = {s0 = array<i64: 0, 1>, s1 = array<i64: 1, -1>}} {
  %x = dispatch.input 0 "x" shape ["77", "s0"] strides ["s0", "1"] align 16 : !dispatch.buffer<f16>
  %y = dispatch.input 1 "y" shape ["s0", "5"] strides ["s1", "1"] align 4 : !dispatch.buffer<f32>
  %c = dispatch.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : !dispatch.buffer<f32>
  %k = dispatch.constant dense<true> : tensor<5xi1> : !dispatch.buffer<i1>
  dispatch.check "s1" "<=" "4096", "too far apart"
  %t = dispatch.alloc ["77", "2*s0"] : !dispatch.buffer<f16>
  %v = dispatch.view %t offset "s0" shape ["77", "s0"] strides ["2*s0", "1"] : !dispatch.buffer<f16> to !dispatch.buffer<f16>
  %w = dispatch.view %v offset "3" shape ["7"] strides ["1"] : !dispatch.buffer<f16> to !dispatch.buffer<f16>
  dispatch.launch @k0(%x, %w : !dispatch.buffer<f16>, !dispatch.buffer<f16>) -> (%v : !dispatch.buffer<f16>) symbols {m = "s0", n = "77"}
  dispatch.return %t : !dispatch.buffer<f16>
}
"""

TENSOR_MAP = {"dtype": "f16", "global_dim": ["m", "n"], "global_stride_bytes": ["2*m"], "box_dim": [64, 128], "swizzle": "128B"}
KERNEL = KernelRecord(
    name="k0",
    symbol="linear_k0",
    binary="k0.cubin",
    block=(128, 1, 1),
    cluster=(1, 1, 1),
    shared_bytes=1024,
    kernarg_bytes=192,
    arguments=(
        Argument("pointer", 1, 0),
        Argument("pointer", 2, 8),
        Argument("i32", 4, 16),
        Argument("i32", 3, 20),
        Argument("tensor_map", 0, 64, TENSOR_MAP, 32),
    ),
    grid=("(m + 127) // 128", "n", "1"),
    symbols=("m", "n"),
    pointer_count=3,
)


def host(kernel: KernelRecord = KERNEL) -> HostProgram:
    program = parse_module(TEXT, "t.mlir").body.block.first_op
    assert isinstance(program, dispatch.ProgramOp)
    return HostProgram(program, {"k0": kernel}, "sm_90a")


@pytest.fixture(name="manifest")
def fixture_manifest() -> dict[str, Any]:
    return host().manifest


def same(left: object, right: object) -> bool:
    """Equal as expressions, however they are spelt."""
    return parse(str(left)) == parse(str(right))


def test_head(manifest: dict[str, Any]) -> None:
    assert (manifest["format"], manifest["target"], manifest["function"]) == (1, "sm_90a", "linear")
    assert manifest["dims"] == {"s0": {"input": 0, "axis": 1}, "s1": {"input": 1, "axis": -1}}


def test_inputs_and_outputs(manifest: dict[str, Any]) -> None:
    x, y = manifest["inputs"]
    assert x == {"name": "x", "dtype": "f16", "shape": [77, "s0"], "strides": ["s0", 1], "buffer": "b0"}
    assert y["strides"] == ["s1", 1]
    (result,) = manifest["outputs"]
    assert (result["dtype"], result["buffer"], result["shape"][0]) == ("f16", "b2", 77)
    assert same(result["shape"][1], "2*s0")
    assert same(result["strides"][0], "2*s0")


def test_buffers(manifest: dict[str, Any]) -> None:
    buffers = {buffer["name"]: buffer for buffer in manifest["buffers"]}
    assert {name: buffer["role"] for name, buffer in buffers.items()} == {
        "b0": "input",
        "b1": "input",
        "c0": "constant",
        "c1": "constant",
        "b2": "output",
    }
    assert same(buffers["b0"]["bytes"], "154*s0")
    assert parse(buffers["b1"]["bytes"]).evaluate({"s0": 3, "s1": 7}) == 4 * (2 * 7 + 4 + 1)
    assert buffers["c0"]["bytes"] == 12
    assert same(buffers["b2"]["bytes"], "308*s0")


def test_constants() -> None:
    files = host().files
    assert struct.unpack("<3f", files["c0.bin"]) == (1.0, 2.0, 3.0)
    assert files["c1.bin"] == b"\1" * 5


def test_launch(manifest: dict[str, Any]) -> None:
    (launch,) = manifest["launches"]
    assert launch["kernel"] == "k0"
    assert same(launch["grid"][0], "(s0 + 127) // 128")
    assert launch["grid"][1:] == [77, 1]
    w, v, n, m, tensor_map = launch["args"]
    assert w["buffer"] == "b2"
    assert same(w["byte_offset"], "2*s0 + 6")
    assert same(v["byte_offset"], "2*s0")
    assert (n, m) == ({"value": 77}, {"value": "s0"})
    described = tensor_map["tensor_map"]
    assert (described["buffer"], described["byte_offset"], described["global_dim"]) == ("b0", 32, ["s0", 77])
    assert same(described["global_stride_bytes"][0], "2*s0")
    assert described["box_dim"] == [64, 128]


def test_checks(manifest: dict[str, Any]) -> None:
    assert manifest["checks"] == [{"left": "s1", "relation": "<=", "right": 4096, "message": "too far apart"}]


def test_a_launch_that_does_not_fit_its_kernel_is_internal() -> None:
    with pytest.raises(InternalError, match="takes 2 pointers"):
        host(replace(KERNEL, pointer_count=2))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("f64", 8), ("f32", 4), ("bf16", 2), ("f16", 2), ("f8E4M3FN", 1), ("f8E5M2FNUZ", 1), ("i1", 1), ("i8", 1), ("i64", 8), ("index", 8)],
)
def test_dtype_bytes(dtype: str, expected: int) -> None:
    assert dtype_bytes(dtype) == expected


def test_extents() -> None:
    shape = tuple(map(as_expr, (3, 5)))
    assert size(extent_bytes(shape, row_major(shape), "f32")) == 60
    assert size(extent_bytes(shape, (as_expr(8), as_expr(1)), "f32")) == 4 * (2 * 8 + 4 + 1)
    assert size(extent_bytes(shape, (as_expr(0), as_expr(1)), "f16")) == 10
    assert size(extent_bytes((), (), "f64")) == 8
