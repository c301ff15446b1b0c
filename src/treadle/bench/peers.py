"""The peers: each workload in PyTorch, eager (cuBLAS, cuDNN and its own kernels) and through torch.compile.

PyTorch is imported when a peer is made, never with this module.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from treadle import errors
from treadle.bench.named_shapes import EPILOGUES, LAYOUTS
from treadle.bench.reductions import EPSILON
from treadle.bench.workload import Workload
from treadle.errors import TreadleError

EAGER, COMPILED = "torch", "torch.compile"
PEERS = (EAGER, COMPILED)
Peer = Callable[..., Any]


def require_torch() -> None:
    """Raises TR611 where PyTorch is not installed; imports nothing."""
    if find_spec("torch") is None:
        raise TreadleError(errors.BENCH_NEEDS, what="PyTorch", reason="it is not installed")


def functions() -> dict[str, Peer]:
    """The function of each name that a workload may have as `peer`; arguments as the workload's inputs."""
    torch: Any = import_module("torch")
    f: Any = torch.nn.functional

    def linear(x: Any, w: Any) -> Any:
        return f.linear(x, w)

    def scaled(x: Any, w: Any, scale_a: Any, scale_b: Any, *, fast: bool) -> Any:
        return torch._scaled_mm(x, w.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)

    def scaled_mm(x: Any, w: Any) -> Any:
        one = torch.ones((), device=x.device)
        return scaled(x, w, one, one, fast=True)

    def scaled_mm_promoted(x: Any, w: Any) -> Any:
        one = torch.ones((), device=x.device)
        return scaled(x, w, one, one, fast=False)

    def scaled_mm_rows(x: Any, w: Any, sx: Any, sw: Any) -> Any:
        return scaled(x, w, sx.unsqueeze(1), sw.unsqueeze(0), fast=True)

    def scaled_mm_blocks(x: Any, w: Any, sx: Any, sw: Any) -> Any:
        return scaled(x, w, sx.t(), sw.t(), fast=False)

    def int_mm(x: Any, w: Any) -> Any:
        return torch._int_mm(x, w.t())

    def linear_bias(x: Any, w: Any, bias: Any) -> Any:
        return f.linear(x, w, bias)

    def linear_bias_gelu(x: Any, w: Any, bias: Any) -> Any:
        return f.gelu(f.linear(x, w, bias), approximate="tanh")

    def linear_silu_two(x: Any, w: Any) -> Any:
        y = f.linear(x, w)
        return y, f.silu(y)

    def linear_residual(x: Any, w: Any, r: Any) -> Any:
        return f.linear(x, w) + r

    def linear_gate(x: Any, w: Any, r: Any) -> Any:
        return f.linear(x, w) * f.silu(r)

    def gated(x: Any, wg: Any, wu: Any) -> Any:
        return f.silu(f.linear(x, wg)) * f.linear(x, wu)

    def gated_three(x: Any, wg: Any, wu: Any) -> Any:
        gate, up = f.linear(x, wg), f.linear(x, wu)
        return gate, up, f.silu(gate) * up

    named = (linear, scaled_mm, scaled_mm_promoted, scaled_mm_rows, scaled_mm_blocks, int_mm, linear_bias, linear_bias_gelu)
    more = (linear_silu_two, linear_residual, linear_gate, gated, gated_three)
    return {function.__name__: function for function in (*named, *more)} | {"matmul": torch.matmul} | _reductions(torch) | _products(torch)


def _reductions(torch: Any) -> dict[str, Peer]:
    f: Any = torch.nn.functional

    def row_sums(x: Any) -> Any:
        return x.sum(dim=-1)

    def column_sums(x: Any) -> Any:
        return x.sum(dim=0)

    def softmax(x: Any) -> Any:
        return f.softmax(x, dim=-1)

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        return f.layer_norm(x, weight.shape, weight, bias, EPSILON)

    def argmax(x: Any) -> Any:
        return x.argmax(dim=-1)

    return {function.__name__: function for function in (row_sums, column_sums, softmax, layer_norm, argmax)}


def _products(torch: Any) -> dict[str, Peer]:
    """Products by how their operands are stored and what follows them, as `named_shapes` names them."""
    f: Any = torch.nn.functional
    after: dict[str, Callable[[Any], Any]] = {"gelu": lambda y: f.gelu(y, approximate="tanh"), "silu": f.silu}

    def product(layouts: str, epilogue: str) -> Peer:
        def function(x: Any, w: Any, *bias: Any) -> Any:
            y = torch.matmul(x if layouts[0] == "n" else x.mT, w if layouts[1] == "n" else w.mT)
            return y + bias[0] if bias else after[epilogue](y) if epilogue else y

        return function

    names = {f"product_{layouts}": (layouts, "") for layouts in LAYOUTS}
    names |= {f"product_{layouts}_{epilogue}": (layouts, epilogue) for layouts in LAYOUTS for epilogue in EPILOGUES}
    return {name: product(*kind) for name, kind in names.items()}


def convolution_peer(torch: Any, name: str) -> Peer:
    """A convolution of `bench/convolutions.py` by its numbers: step, spread, zeros on each side, and what follows. Images and filters have
    channels last, which their permuted views tell the library.
    """
    step, spread, pad, *tail = name.removeprefix("convolution_").split("_")

    def function(x: Any, w: Any, *bias: Any) -> Any:
        image, weights = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
        added = bias[0].to(x.dtype) if bias else None
        y = torch.nn.functional.conv2d(image, weights, added, int(step), int(pad), int(spread))
        return (torch.nn.functional.silu(y) if tail == ["silu"] else y).permute(0, 2, 3, 1)

    return function


def function_of(name: str) -> Peer:
    """The function that a workload has as `peer`."""
    return convolution_peer(import_module("torch"), name) if name.startswith("convolution_") else functions()[name]


def make_peer(kind: str, workload: Workload) -> Peer:
    """The peer `EAGER` or `COMPILED` of a workload; returns one tensor or a tuple of them."""
    torch: Any = import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = workload.options.f32_precision == "tf32"
    torch.backends.cudnn.benchmark = True  # the fastest of the library's convolutions for the shape
    function = function_of(workload.peer)
    if kind == EAGER:
        return function
    torch._dynamo.reset()  # the compiled function of one workload must not be taken for the next one's
    return torch.compile(function, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
