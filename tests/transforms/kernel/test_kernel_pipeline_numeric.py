"""Every pass of the kernel pipeline keeps the values: the simulator gives the same results before and after each, and they are right."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import ORDER, find, lowered
from numpy.typing import NDArray

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.passes import run_passes
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel

Array = NDArray[Any]
RNG = np.random.default_rng(11)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def run(module: Operation, inputs: list[Array], out_shape: tuple[int, ...], dtype: str) -> Array:
    (kernel,) = find(module, tile.KernelOp)
    out = np.full(out_shape, np.nan, dtype=dtype)
    flat = out.reshape(-1)
    pointers = [Pointer(np.ascontiguousarray(x).reshape(-1)) for x in inputs]
    TileKernel(kernel).launch([*pointers, Pointer(flat)], ())
    return flat.reshape(out_shape)


def doubled_transpose(x: Array) -> Array:
    return np.ascontiguousarray(2 * x.T)


def softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def product(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


Case = tuple[str, list[Array], Callable[..., Array], tuple[int, ...], str]


def matmul_case(
    m: int, n: int, k: int, *, element: str = "f16", dtype: str = "float16", out_dtype: str = "float32", **options: Any
) -> Case:
    text = kernel_texts.matmul(m, n, k, element=element, **options)
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
    inputs: list[Array] = [np.ascontiguousarray(a.T) if options.get("a_transposed") else a]
    inputs.append(np.ascontiguousarray(b.T) if options.get("b_transposed") else b)
    expected = product(a, b)
    if options.get("bias"):
        bias = normal(n)
        inputs.append(bias)
        expected = expected + bias
    return text, inputs, lambda *_: expected, (m, n), out_dtype


MFMA: dict[str, Any] = {"target": "gfx942", "instruction": "mfma_16x16x16_f32_f16", "warps": (2, 2)}
FMA: dict[str, Any] = {"element": "f32", "dtype": "float32", "instruction": "fma", "warps": (2, 2), "tile": (32, 64, 16)}
X = normal(13, 999)
CASES: dict[str, Case] = {
    "bulk copies": matmul_case(136, 72, 136, tile=(64, 64, 64)),
    "ragged pitch": matmul_case(123, 136, 65, tile=(64, 64, 64)),
    "nothing aligned, f16 out, bias": matmul_case(63, 131, 65, tile=(64, 128, 64), bias=True, out="f16", out_dtype="float16"),
    "both transposed": matmul_case(120, 72, 72, tile=(64, 64, 64), a_transposed=True, b_transposed=True),
    "fma": matmul_case(33, 65, 35, bias=True, **FMA),
    "mfma": matmul_case(70, 65, 33, tile=(64, 64, 32), bias=True, **MFMA),
    "mfma transposed": matmul_case(70, 65, 33, tile=(32, 64, 32), a_transposed=True, b_transposed=True, **MFMA),
    "softmax": (kernel_texts.row_softmax(13, 999, (4, 1024)), [X], softmax, (13, 999), "float32"),
    "softmax across warps": (kernel_texts.row_softmax(13, 999, (1, 1024)), [X], softmax, (13, 999), "float32"),
    "transpose": (kernel_texts.transpose(13, 999, (32, 64)), [X], doubled_transpose, (999, 13), "float32"),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_kept_by_every_pass(name: str) -> None:
    text, inputs, reference, shape, dtype = CASES[name]
    module = lowered(text, None)
    before = run(module, inputs, shape, dtype)
    expected = reference(*inputs)
    scale = np.abs(expected).max()
    assert np.abs(before.astype(np.float64) - expected).max() <= (2e-3 if dtype == "float16" else 2e-6) * scale * 8
    for last in ORDER:
        run_passes(module, [last()])
        after = run(module, inputs, shape, dtype)
        difference = np.abs(after.astype(np.float64) - before.astype(np.float64)).max()
        assert difference <= (1e-3 if dtype == "float16" else 2e-6) * scale, last.name
