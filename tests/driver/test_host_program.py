"""From dispatch.program to the manifest: buffers, strides, views, symbols, constants, checks and launch arguments."""

import struct
from dataclasses import replace

import pytest

from treadle.artifact import (
    Check,
    Dim,
    Kernel,
    KernelArg,
    Manifest,
    PointerValue,
    ScalarValue,
    TensorMap,
    TensorMapValue,
    TensorRecord,
)
from treadle.dialects import dispatch
from treadle.driver.host_program import HostProgram, LaunchedKernel, dtype_bytes, extent_bytes, row_major, size
from treadle.errors import InternalError
from treadle.ir.text import parse_module
from treadle.plan.expr import as_expr
from treadle.targets.interface import IndexParam, Param, PointerParam, TensorMapParam

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

TENSOR_MAP = TensorMap("f16", (as_expr("m"), as_expr("n")), (as_expr("2*m"),), (64, 128), (1, 1), "128B")
PARAMS: tuple[Param, ...] = (PointerParam(1), PointerParam(2), IndexParam(4), IndexParam(3), TensorMapParam(0, TENSOR_MAP, 32))
RECORD = Kernel(
    name="k0",
    symbol="linear_k0",
    binary="k0.cubin",
    block=(128, 1, 1),
    cluster=(1, 1, 1),
    shared_bytes=1024,
    kernarg_bytes=192,
    args=(KernelArg("pointer", 0), KernelArg("pointer", 8), KernelArg("i32", 16), KernelArg("i32", 20), KernelArg("tensor_map", 64)),
)
KERNEL = LaunchedKernel(RECORD, PARAMS, ("(m + 127) // 128", "n", "1"), ("m", "n"), 3)


def host(kernel: LaunchedKernel = KERNEL, text: str = TEXT) -> HostProgram:
    program = parse_module(text, "t.mlir").body.block.first_op
    assert isinstance(program, dispatch.ProgramOp)
    return HostProgram(program, [kernel], "sm_90a")


@pytest.fixture(name="manifest")
def fixture_manifest() -> Manifest:
    return host().manifest


def test_head(manifest: Manifest) -> None:
    assert (manifest.format, manifest.target, manifest.function) == (1, "sm_90a", "linear")
    assert manifest.dims == {"s0": Dim(0, 1), "s1": Dim(1, -1)}
    assert manifest.kernels == (RECORD,)


def test_what_is_written_reads_back(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_inputs_and_outputs(manifest: Manifest) -> None:
    x, y = manifest.inputs
    assert x == TensorRecord("x", "f16", (77, as_expr("s0")), (as_expr("s0"), 1), "b0")
    assert y.strides == (as_expr("s1"), 1)
    assert manifest.outputs == (TensorRecord("r0", "f16", (77, as_expr("2*s0")), (as_expr("2*s0"), 1), "b2"),)


def test_buffers(manifest: Manifest) -> None:
    buffers = {buffer.name: buffer for buffer in manifest.buffers}
    assert {name: buffer.role for name, buffer in buffers.items()} == {
        "b0": "input",
        "b1": "input",
        "c0": "constant",
        "c1": "constant",
        "b2": "output",
    }
    assert buffers["b0"].bytes == as_expr("154*s0")
    assert as_expr(buffers["b1"].bytes).evaluate({"s0": 3, "s1": 7}) == 4 * (2 * 7 + 4 + 1)
    assert buffers["c0"].bytes == 12
    assert buffers["b2"].bytes == as_expr("308*s0")


def test_constants() -> None:
    files = host().files
    assert struct.unpack("<3f", files["c0.bin"]) == (1.0, 2.0, 3.0)
    assert files["c1.bin"] == b"\1" * 5


def test_launch(manifest: Manifest) -> None:
    (launch,) = manifest.launches
    assert (launch.kernel, launch.grid) == ("k0", (as_expr("(s0 + 127) // 128"), 77, 1))
    m = TENSOR_MAP.with_sizes((as_expr("s0"), 77), (as_expr("2*s0"),))
    assert launch.args == (
        PointerValue("b2", as_expr("2*s0 + 6")),
        PointerValue("b2", as_expr("2*s0")),
        ScalarValue(77),
        ScalarValue(as_expr("s0")),
        TensorMapValue("b0", m, 32),
    )


def test_checks(manifest: Manifest) -> None:
    assert manifest.checks == (Check(as_expr("s1"), "<=", 4096, "too far apart"),)


def test_an_input_that_a_launch_writes_to_is_in_place() -> None:
    text = TEXT.replace("-> (%v", "-> (%x")
    inputs = host(text=text).manifest.inputs
    assert [record.in_place for record in inputs] == [True, False]
    assert not any(record.in_place for record in host().manifest.inputs)


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
