"""Attention within a sliding window: query i sees the `window` keys up to its own place. Keys that no row of a tile sees are not walked.

Run it: python examples/window_attention.py
"""

import math
from typing import Any

import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def attention(
    q: Any, k: Any, v: Any, o: Any, window: int, scale: float, D: tl.constexpr, BM: tl.constexpr = 128, BN: tl.constexpr = 128
) -> None:
    """q, o [batch, heads, length, D]; k, v [batch, shared heads, length, D]; window at least 1."""
    m, head, batch = tl.program_id(0) * BM, tl.program_id(1), tl.program_id(2)
    shared, length = head // (q.shape[1] // k.shape[1]), k.shape[2]
    begin, end = tl.maximum(m + 1, window) - window, tl.minimum(length, m + BM)  # what the first row sees first, the last row last
    rows, columns = tl.arange(BM)[:, None] + m, tl.arange(BN)[None, :]
    queries, in_bits = tl.load(q[batch, head, m : m + BM, 0:D]), scale * math.log2(math.e)
    top, total, acc = tl.full((BM, 1), -1e30, tl.float32), tl.zeros((BM, 1)), tl.zeros((BM, D))
    for n in range(begin // BN * BN, end, BN):
        scores = tl.dot(queries, k[batch, shared, n : n + BN, 0:D].T)
        if n + BN > m + 1 or n + window < m + BM:  # not all rows see all of these keys
            seen = (columns + n <= rows) & (rows < columns + (n + window))
            scores = tl.where(seen, scores, -math.inf)
        before, top = top, tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        p, kept = tl.exp2(scores * in_bits - top * in_bits), tl.exp2((before - top) * in_bits)
        total = total * kept + tl.sum(p, 1, keep_dims=True)
        acc = tl.dot(p.to(v.dtype), v[batch, shared, n : n + BN, 0:D], acc * kept)
    o[batch, head, m : m + BM, 0:D] = acc / total


def attend(q: Any, k: Any, v: Any, window: int, *, BM: int = 128, BN: int = 128, **options: Any) -> Any:
    """The result as a new NumPy array."""
    (batch, heads, length, width), o = q.shape, np.empty_like(q)
    attention[-(-length // BM), heads, batch](q, k, v, o, window, 1 / math.sqrt(width), width, BM, BN, **options)
    return o


def expected(q: Any, k: Any, v: Any, window: int) -> Any:
    """The result in float64."""
    length, group = q.shape[2], q.shape[1] // k.shape[1]
    scores = np.exp(q.astype(np.float64) @ k.repeat(group, 1).swapaxes(2, 3) / math.sqrt(q.shape[3]))
    scores *= np.tri(length) - np.tri(length, k=-window)
    return scores @ v.repeat(group, 1) / scores.sum(3, keepdims=True)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, 300, 64)).astype(np.float16) for heads in (4, 2, 2))
    print("largest error:", np.abs(attend(q, k, v, 50, BM=64, BN=64) - expected(q, k, v, 50)).max())
