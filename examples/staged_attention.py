"""Attention in four stages, one source for AMD GPUs and Hopper: while one group of warps multiplies, the other has the softmax, or copies.

`python examples/staged_attention.py` runs it on the simulator, and shows what became of the stages on both vendors. attention.py is the
same without stages, with masks, shared heads and logarithms of sums.
"""

import math
from typing import Any

import numpy as np

import treadle
import treadle.language as tl

TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
PASSES = ("fold-rings", "form-warp-pipeline", "verify-schedule")


@treadle.kernel
def attention(
    q: Any, k: Any, v: Any, o: Any, scale: float, D: tl.constexpr = 32, BM: tl.constexpr = 128, BN: tl.constexpr = 32,
    CAUSAL: tl.constexpr = False,
) -> None:  # fmt: skip
    """q, o [heads, queries, D]; k, v [heads, keys, D]. A step fills the slots of the next one. `CAUSAL`: query i sees the keys up to i."""
    tile, head, keys = tl.program_id(0), tl.program_id(1), k.shape[1]
    m = (tl.num_programs(0) - 1 - tile if CAUSAL else tile) * BM  # the tiles that see the most keys begin first
    end = tl.minimum(keys, m + BM) if CAUSAL else keys
    seen_by_all = tl.minimum(keys, m + 1) if CAUSAL else keys
    rows = tl.allocate_shared((BM, D), q.dtype)
    ring_k, ring_v = tl.allocate_shared((D, BN), k.dtype, slots=3), tl.allocate_shared((BN, D), v.dtype, slots=3)
    rows[0], ring_k[0], ring_v[0] = q[head, m : m + BM, 0:D], k[head, 0:BN, 0:D].T, v[head, 0:BN, 0:D]
    top, total, acc = tl.full((BM, 1), -1e30, tl.float32), tl.zeros((BM, 1)), tl.zeros((BM, D))
    lines, columns, in_bits = tl.arange(BM)[:, None] + m, tl.arange(BN)[None, :], scale * math.log2(math.e)
    for n in range(0, end, BN):
        i = n // BN
        with tl.warp_pipeline_stage("read K", priority=0):
            x = ring_k[i % 3]
            ring_k[(i + 1) % 3] = k[head, n + BN : n + 2 * BN, 0:D].T
        with tl.warp_pipeline_stage("scores", priority=1):
            scores = tl.dot(rows[0], x)
        with tl.warp_pipeline_stage("softmax, read V", priority=0):
            y = ring_v[i % 3]
            ring_v[(i + 1) % 3] = v[head, n + BN : n + 2 * BN, 0:D]
            if n + BN > seen_by_all:
                seen = (columns + n < keys) & (columns + n <= lines) if CAUSAL else columns + n < keys
                scores = tl.where(seen, scores, -math.inf)
            before, top = top, tl.maximum(top, tl.max(scores, 1, keep_dims=True))
            p, kept = tl.exp2(scores * in_bits - top * in_bits), tl.exp2((before - top) * in_bits)
            total = total * kept + tl.sum(p, 1, keep_dims=True)
            p, acc = p.to(v.dtype), acc * kept
        with tl.warp_pipeline_stage("values", priority=1):
            acc = tl.dot(p, y, acc)
    o[head, m : m + BM, 0:D] = acc / total


def operands(heads: int, queries: int, keys: int, width: int, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Queries, keys and values in f16, and an array for the result."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((heads, length, width)).astype(np.float16) for length in (queries, keys, keys))
    return q, k, v, np.zeros_like(q)


def expected(q: Any, k: Any, v: Any) -> Any:
    """The result in float64."""
    scores = np.exp(q.astype(np.float64) @ k.swapaxes(1, 2) / math.sqrt(q.shape[2]))
    return scores @ v / scores.sum(2, keepdims=True)


if __name__ == "__main__":
    q, k, v, o = operands(2, 140, 100, 32)
    attention[2, 2](q, k, v, o, 1 / math.sqrt(32), num_warps=8, target="sim")
    print("largest error:", np.abs(o - expected(q, k, v)).max())
    for target in TARGETS:
        trace = attention[2, 2].trace(q, k, v, o, 1 / math.sqrt(32), num_warps=8, target=target)
        print(target, *(remark.text for remark in trace.remarks if remark.pass_name in PASSES and remark.kind != "refusal"), sep="\n  ")
