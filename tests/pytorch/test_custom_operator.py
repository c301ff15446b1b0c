"""`treadle.op`: programs, functions and kernels as operators of PyTorch, on the host, by PyTorch's own checks."""

from pathlib import Path
from typing import Any

import pytest

import treadle
import treadle.language as tl
from treadle.errors import TreadleError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
EXAMPLES = Path(__file__).parents[2] / "examples"


@treadle.kernel(target="sim")
def softmax_kernel(x: Any, y: Any, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0)
    values = tl.load(x[row, 0:BLOCK], other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    y[row, 0:BLOCK] = e / tl.sum(e, axis=0)


def softmax(x: Any) -> Any:
    y = torch.empty_like(x)
    softmax_kernel[x.shape[0]](x.detach(), y, BLOCK=128)
    return y


softmax.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}  # PyTorch may be missing where types are checked


def softmax_of_doubles(x: Any) -> Any:
    return torch.ops.treadle_tests.compiled_softmax(x * 2) + 1


def double_in_place(x: Any) -> None:
    torch.ops.treadle_tests.scale_(x, 2)


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def gradient(ctx: Any, grad: Any) -> Any:
    (y,) = ctx.saved_tensors
    return y * (grad - (grad * y).sum(1, keepdim=True))


def test_a_function_that_launches_kernels() -> None:
    operator = treadle.op(softmax, "treadle_tests::softmax", backward=gradient, setup_context=keep)
    x = torch.randn(5, 77, requires_grad=True)
    torch.testing.assert_close(operator(x), torch.softmax(x, 1))
    torch.library.opcheck(operator, (x,))
    torch.manual_seed(0)
    weight = torch.randn(5, 77)
    (ours,) = torch.autograd.grad((operator(x) * weight).sum(), x)
    (want,) = torch.autograd.grad((torch.softmax(x, 1) * weight).sum(), x)
    torch.testing.assert_close(ours, want)


def test_it_is_seen_by_torch_compile() -> None:
    treadle.op(softmax, "treadle_tests::compiled_softmax", backward=gradient, setup_context=keep)
    compiled = torch.compile(softmax_of_doubles, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 6):
        x = torch.randn(rows, 50)
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, 1) + 1)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_program(dtype: str) -> None:
    text = (EXAMPLES / "row_softmax.mlir").read_text(encoding="utf-8")
    if dtype == "bf16":
        text = f"""
        func.func @double(%x: tensor<?x8x{dtype}>) -> tensor<?x8x{dtype}> {{
          %y = arith.addf %x, %x : tensor<?x8x{dtype}>
          return %y : tensor<?x8x{dtype}>
        }}"""
    operator = treadle.op(treadle.compile(text, target="sim"), f"treadle_tests::program_{dtype}")
    x = torch.randn(4, 8).to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    want = x + x if dtype == "bf16" else torch.softmax(x, 1)
    torch.testing.assert_close(operator(x), want)
    torch.library.opcheck(operator, (x,), test_utils=("test_schema", "test_faketensor"))


@treadle.kernel(target="sim")
def scale(x: Any, by: int, BLOCK: tl.constexpr = 64) -> None:
    start = tl.program_id(0) * BLOCK
    x[start : start + BLOCK] *= by


def test_a_kernel_that_changes_an_array() -> None:
    operator = treadle.op(scale[2], "treadle_tests::scale_", schema="(Tensor(a!) x, int by) -> ()")
    x = torch.randn(100)
    want = x * 3
    operator(x, 3)
    torch.testing.assert_close(x, want)
    compiled = torch.compile(double_in_place, backend="aot_eager", fullgraph=True)
    compiled(x)
    torch.testing.assert_close(x, want * 2)


def bare(x):  # pyright: ignore
    return x  # pyright: ignore


def test_what_no_operator_can_be_made_of() -> None:
    with pytest.raises(TreadleError, match="TR738: kernel 'scale': an operator launches it: give it a grid"):
        treadle.op(scale)
    with pytest.raises(TreadleError, match="TR738: kernel 'scale': its operator needs a schema"):
        treadle.op(scale[1])
    with pytest.raises(TreadleError, match=r"TR738: kernel 'bare': its operator's schema cannot be read off \(x\)"):
        treadle.op(bare)
