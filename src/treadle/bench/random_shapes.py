"""Random workloads, each determined by sample, seed and number: they tell whether speed is a property of the compiler or of listed shapes.

No constant may be fitted on a seed that is reported. `FITTING_SEEDS` are for fitting, all others for checking.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Final

from treadle.bench.convolutions import DTYPES as CONVOLVED
from treadle.bench.named_shapes import LAYOUTS, gemm_name

FITTING_SEEDS: Final = (1, 2, 95, 96, 97)
STEPS: Final = ((128, 0.30), (64, 0.25), (8, 0.25), (1, 0.20))
"""What the sizes of a shape are rounded up to multiples of, and how often."""
CHANNEL_STEPS: Final = (64, 32, 8, 1)
"""What channels of images are rounded up to multiples of, each as often."""
QUANTISED_STEP: Final = 16
"""The library's products of 8-bit elements take no other sizes."""


@dataclass(frozen=True, slots=True)
class RandomChoice:
    """What may be drawn: element types, and layouts as in `named_shapes` (none: the sample's own)."""

    dtypes: tuple[str, ...] = ("bf16", "f16")
    layouts: tuple[str, ...] = ()


def _log_uniform(draw: random.Random, low: int, high: int) -> int:
    return min(high, int(exp(draw.uniform(log(low), log(high + 1)))))


def _rounded(draw: random.Random, sizes: Sequence[int], dtype: str) -> list[int]:
    (step,) = draw.choices([step for step, _ in STEPS], [part for _, part in STEPS])
    step = max(step, QUANTISED_STEP) if dtype in ("f8E4M3FN", "i8") else step
    return [-(-size // step) * step for size in sizes]


def _layouts(draw: random.Random, choice: RandomChoice, dtype: str) -> str:
    """A transposed in one of four, B given as (N, K) in three of four: what frameworks bring."""
    mine = draw.choices(LAYOUTS, (3, 9, 1, 3))[0]
    if dtype in ("f8E4M3FN", "i8"):
        return "nt"
    return draw.choice(choice.layouts) if choice.layouts else mine


def _contraction(draw: random.Random, choice: RandomChoice) -> str:
    while True:
        dtype = draw.choice(choice.dtypes)
        sizes = (_log_uniform(draw, 16, 16384), _log_uniform(draw, 64, 20000), _log_uniform(draw, 64, 20000))
        m, n, k = _rounded(draw, sizes, dtype)
        layouts = _layouts(draw, choice, dtype)
        if 2e8 < 2 * m * n * k < 3e12:
            return gemm_name(dtype, layouts, (m, n, k))


def _skinny(draw: random.Random, choice: RandomChoice) -> str:
    dtype = draw.choice(choice.dtypes)
    m = _log_uniform(draw, 1, 64)
    n, k = _rounded(draw, (_log_uniform(draw, 256, 20000), _log_uniform(draw, 256, 20000)), dtype)
    return gemm_name(dtype, "nt" if not choice.layouts else _layouts(draw, choice, dtype), (m, n, k))


def _batched(draw: random.Random, choice: RandomChoice) -> str:
    while True:
        dtype = draw.choice(choice.dtypes)
        batch = _log_uniform(draw, 2, 256)
        m, n, k = _rounded(draw, [_log_uniform(draw, 16, 2048) for _ in range(3)], dtype)
        layouts = _layouts(draw, choice, dtype)
        if 2e8 < 2 * batch * m * n * k < 3e11:
            return gemm_name(dtype, layouts, (batch, m, n, k))


def _epilogues(draw: random.Random, choice: RandomChoice) -> str:
    return f"{_contraction(draw, choice)}-{draw.choice(('bias', 'gelu', 'silu'))}"


def _long(draw: random.Random, choice: RandomChoice) -> str:
    while True:
        dtype = draw.choice(choice.dtypes)
        m, n = _log_uniform(draw, 1, 1024), _log_uniform(draw, 1, 1024)
        k = _log_uniform(draw, 4096, 2_000_000)
        if draw.random() < 0.25 and dtype in ("f16", "bf16", "f32"):
            return f"{draw.choice(('rowsums', 'rowsums', 'softmax'))}-{dtype}-{m}x{k}"
        if dtype in ("f8E4M3FN", "i8"):
            m, n, k = _rounded(draw, (m, n, k), dtype)
        layouts = _layouts(draw, choice, dtype)
        if (m + n) * k < 1 << 30:
            return gemm_name(dtype, layouts, (m, n, k))


def _convolutions(draw: random.Random, choice: RandomChoice) -> str:
    while True:
        dtype = draw.choice([dtype for dtype in choice.dtypes if dtype in CONVOLVED] or CONVOLVED)
        batch, kernel, stride = _log_uniform(draw, 1, 32), draw.randint(1, 7), draw.choice((1, 2))
        height, width = (max(kernel, _log_uniform(draw, 7, 512)) for _ in range(2))
        step = draw.choice(CHANNEL_STEPS)
        channels, filters = (min(2048, -(-_log_uniform(draw, 3, 2048) // step) * step) for _ in range(2))
        flop = 2 * batch * (height // stride) * (width // stride) * filters * channels * kernel * kernel
        if 2e8 < flop < 1e12 and batch * height * width * max(channels, filters) < 1 << 29:
            pad = f"-p{kernel // 2}" if kernel % 2 == 0 else ""
            return f"conv-{dtype}-{batch}x{height}x{width}x{channels}-{filters}-k{kernel}{f'-s{stride}' if stride > 1 else ''}{pad}"


SAMPLES: Final[dict[str, Callable[[random.Random, RandomChoice], str]]] = {
    "contractions": _contraction,
    "skinny": _skinny,
    "batched": _batched,
    "epilogues": _epilogues,
    "long": _long,
    "convolutions": _convolutions,
}
"""`contractions`: M 16..16384, N and K 64..20000, log-uniform, 2e8 < 2 M N K < 3e12. `skinny`: M 1..64. `batched`: 2..256 products.
`epilogues`: contractions with one. `long`: K 4,096..2,000,000, M and N 1..1024, a quarter of them row sums and softmaxes.
`convolutions`: images with channels last of sides 7..512, channels and filters 3..2048, windows of 1..7, strides 1 and 2,
2e8 < operations < 1e12.
"""


def random_names(sample: str, count: int, seed: int, choice: RandomChoice) -> list[str]:
    """The names of a sample's first `count` workloads; a longer sample of the same seed begins with these."""
    return [SAMPLES[sample](random.Random(f"{sample} {seed} {number}"), choice) for number in range(count)]
