"""Attention in one kernel: softmax(scale Q K^T) V, of any lengths, with a softmax that goes along; groups of heads share K and V.

Run it: python examples/attention.py
"""

import math
from typing import Any

import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def attention(
    q: Any, k: Any, v: Any, o: Any, lse: Any, first: int, scale: float, causal: bool, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    STAGES: tl.constexpr = None,
) -> None:  # fmt: skip
    """q, o [batch, heads, queries, D]; k, v [batch, shared heads, keys, D]; lse [batch, heads, queries]: the logarithms of the sums.

    Where it is `causal`, query i sees the keys up to first + i. `STAGES`: "auto" cuts the loop into stages of groups of warps.
    """
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m = (tl.num_programs(0) - 1 - tile if causal else tile) * BM  # the tiles that see the most keys begin first
    shared, keys = head // (q.shape[1] // k.shape[1]), k.shape[2]
    end = tl.minimum(keys, first + m + BM) if causal else keys
    seen_by_all = tl.minimum(keys, first + m + 1) if causal else keys
    rows, columns = tl.arange(BM)[:, None] + (first + m), tl.arange(BN)[None, :]
    queries, in_bits = tl.load(q[batch, head, m : m + BM, 0:D]), scale * math.log2(math.e)
    top, total, acc = tl.full((BM, 1), -1e30, tl.float32), tl.zeros((BM, 1)), tl.zeros((BM, D))
    for n in tl.range(0, end, BN, stages=STAGES):
        scores = tl.dot(queries, k[batch, shared, n : n + BN, 0:D].T)
        if n + BN > seen_by_all:
            seen = (columns + n < keys) & (columns + n <= rows) if causal else columns + n < keys
            scores = tl.where(seen, scores, -math.inf)
        before, top = top, tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        p, kept = tl.exp2(scores * in_bits - top * in_bits), tl.exp2((before - top) * in_bits)
        total = total * kept + tl.sum(p, 1, keep_dims=True)
        acc = tl.dot(p.to(v.dtype), v[batch, shared, n : n + BN, 0:D], acc * kept)
    o[batch, head, m : m + BM, 0:D] = acc / total
    lse[batch, head, m : m + BM] = (top * scale + tl.log(total))[:, 0]


def attend(q: Any, k: Any, v: Any, *, causal: bool = False, first: int = 0, BM: int = 128, BN: int = 128, **options: Any) -> Any:
    """The result of `attention`, and the logarithms of the sums, as new NumPy arrays."""
    (batch, heads, queries, width), scale = q.shape, 1 / math.sqrt(q.shape[3])
    o, lse = np.empty(q.shape, q.dtype), np.empty(q.shape[:3], np.float32)
    grid = -(-queries // BM), heads, batch
    attention[grid](q, k, v, o, lse, first, scale, causal, width, BM, BN, **options)
    return o, lse


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, length, 64)).astype(np.float16) for heads, length in ((4, 77), (2, 93), (2, 93)))
    o, lse = attend(q, k, v, BM=64, BN=64)
    scores = q.astype(np.float64) @ k.repeat(2, 1).swapaxes(2, 3) / 8
    want = np.exp(scores) @ v.repeat(2, 1) / np.exp(scores).sum(3, keepdims=True)
    print("largest error:", np.abs(o - want).max(), np.abs(lse - np.log(np.exp(scores).sum(3))).max())
