"""The suite: named workloads, in the order of the report."""

import fnmatch
from collections.abc import Iterable, Sequence
from functools import lru_cache

from treadle import errors
from treadle.bench.convolutions import named_convolution
from treadle.bench.families import batch_matmul, beside, block_scaled, epilogue, gated, matmul, row_scaled, titled
from treadle.bench.named_shapes import named_workload
from treadle.bench.reductions import row_sums, softmax
from treadle.bench.workload import Workload
from treadle.errors import TreadleError
from treadle.options import CompileOptions, Precision

LLAMA_3_8B = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
"""N and K of the linear layers of Llama-3-8B; gate and up as one matrix."""

SDXL = {
    "geglu1280": (2048, 10240, 1280),
    "proj1280": (2048, 1280, 1280),
    "ff1280": (2048, 1280, 5120),
    "geglu640": (8192, 5120, 640),
    "ff640": (8192, 640, 2560),
}
"""M, N, K of linear layers of SDXL for two images of 1024 x 1024 (2 x 1024 and 2 x 4096 tokens)."""

F32_PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "3xtf32", "bf16x6")
"""Of the same f32 matmul; the peer of all but tf32 is f32 without it."""

SDXL_CONVOLUTIONS = (
    "conv-f16-2x64x64x640-640-k3",
    "conv-f16-2x128x128x320-320-k3",
    "conv-f16-2x32x32x1280-1280-k3",
    "conv-f16-2x64x64x320-640-k3",
    "conv-f16-2x64x64x320-640-k1",
    "conv-f16-2x128x128x320-320-k3-s2",
    "conv-f16-2x64x64x640-640-k3-s2",
    "conv-f16-2x128x128x4-320-k3",
)
"""Of the UNet of SDXL, for two images of 1024 x 1024."""

MLP = (4096, 14336, 5120)
"""M, N, K of the MLP whose pieces are measured."""


def _rows() -> Iterable[Workload]:
    for size in (2048, 4096, 8192):
        yield matmul(f"square-{size}-nk", "square", size, size, size, "bf16")
        yield matmul(f"square-{size}-kn", "square", size, size, size, "bf16", transposed=False)
    for layer, (n, k) in LLAMA_3_8B.items():
        yield titled(matmul(f"llama3-8b-prefill-2048-{layer}", "prefill", 2048, n, k, "f16"), layer)
    for tokens in (1, 16):
        for layer, (n, k) in LLAMA_3_8B.items():
            yield titled(matmul(f"llama3-8b-decode-{tokens}-{layer}", "decode", tokens, n, k, "f16"), layer)
    for layer, (m, n, k) in SDXL.items():
        yield titled(matmul(f"sdxl-{layer}", "sdxl", m, n, k, "f16"), layer)
    yield from (workload for name in SDXL_CONVOLUTIONS if (workload := named_convolution(name)) is not None)
    yield matmul("k512", "small-k", 8192, 8192, 512, "bf16")
    yield epilogue("linear-bias-gelu", "epilogue", "linear_bias_gelu", 8192, 8192, 4096, "bf16")
    for size in ((2048, 4096, 4096), (4096, 4096, 4096), (8192, 640, 640)):
        shape = "x".join(map(str, size))
        yield beside(f"linear-residual-{shape}", "epilogue", "linear_residual", *size, "bf16")
        yield beside(f"linear-gate-{shape}", "epilogue", "linear_gate", *size, "bf16")
    yield gated("swiglu", "epilogue", 4096, 14336, 4096, "bf16")
    yield matmul("mlp-forward", "mlp", *MLP, "bf16")
    yield epilogue("mlp-bias", "mlp", "linear_bias", *MLP, "bf16")
    yield epilogue("mlp-silu", "mlp", "linear_silu_two", *MLP, "bf16")
    yield gated("mlp-horizontal-3", "mlp", *MLP, "bf16", outputs=3)
    yield gated("mlp-horizontal-1", "mlp", *MLP, "bf16")
    yield batch_matmul("mlp-batch", "mlp", 8, 2048, 2048, 2048, "bf16")
    fp8 = (8192, 8192, 8192, "f8E4M3FN")
    yield matmul("fp8-8192", "quantised", *fp8)
    yield matmul("fp8-8192-promoted", "quantised", *fp8, options=CompileOptions(fp8_accumulation="promoted"))
    yield row_scaled("fp8-8192-rows", "quantised", *fp8)
    yield block_scaled("fp8-8192-blocks", "quantised", *fp8)
    yield matmul("int8-2048x10240x1280", "quantised", 2048, 10240, 1280, "i8")
    for precision in F32_PRECISIONS:
        options = CompileOptions(f32_precision=precision)
        yield matmul(f"f32-4096-{precision}", "f32", 4096, 4096, 4096, "f32", options=options)
    yield matmul("ragged-123x456x51234-f32", "ragged", 123, 456, 51234, "f32", transposed=False)
    tf32 = CompileOptions(f32_precision="tf32")
    yield matmul("ragged-123x456x51234-tf32", "ragged", 123, 456, 51234, "f32", transposed=False, options=tf32)
    yield matmul("ragged-123x456x51234-bf16", "ragged", 123, 456, 51234, "bf16", transposed=False)
    yield matmul("ragged-1000x1000x4099-bf16", "ragged", 1000, 1000, 4099, "bf16")
    yield matmul("ragged-128x512x50001-bf16", "ragged", 128, 512, 50001, "bf16", transposed=False)
    yield row_sums("row-sums-56088x77", "reduction", 56088, 77, "f32")
    yield row_sums("row-sums-8192x8192", "reduction", 8192, 8192, "f32")
    yield softmax("softmax-8192x8192-bf16", "reduction", 8192, 8192, "bf16")
    yield softmax("softmax-32768x1000-f32", "reduction", 32768, 1000, "f32")


@lru_cache(maxsize=1)
def suite() -> tuple[Workload, ...]:
    """All workloads."""
    return tuple(_rows())


def choose(names: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads of these names, groups, or patterns (`square-*`), in the suite's order; all where none is given. Raises TR821.

    Names that say their whole workload (`named_shapes`) give it, behind those of the suite.
    """
    if not names:
        return suite()
    others = {name: workload for name in names if (workload := named_workload(name)) is not None}
    for name in names:
        if name not in others and not any(_matches(workload, name) for workload in suite()):
            raise TreadleError(errors.UNKNOWN_WORKLOAD, name=name)
    return tuple(workload for workload in suite() if any(_matches(workload, name) for name in names)) + tuple(others.values())


def find(name: str) -> Workload | None:
    """The workload of exactly this name: of the suite, or one that its name says."""
    return next((workload for workload in suite() if workload.name == name), None) or named_workload(name)


def _matches(workload: Workload, pattern: str) -> bool:
    return pattern == workload.group or fnmatch.fnmatchcase(workload.name, pattern)
