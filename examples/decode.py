"""Attention of a few queries over many keys, as when a model writes word by word: workgroups share the keys of a head, a second kernel
merges what they found. All query heads that share keys are rows of one tile, so that keys and values are read once.

Run it: python examples/decode.py
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def attend_to_part(
    q: Any, k: Any, v: Any, o: Any, lse: Any, length: int, scale: float, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
) -> None:
    """For q [batch, shared heads, rows, D], k and v [batch, shared heads, keys, D]; of part p, which begins with key p length:
    o [p, batch, shared heads, rows, D] and the logarithms of the sums, lse [p, batch, shared heads, rows].
    """
    part, shared, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = part * length
    end, columns = tl.minimum(first + length, k.shape[2]), tl.arange(BN)[None, :]
    queries, in_bits = tl.load(q[batch, shared, 0:BM, 0:D]), scale * math.log2(math.e)
    top, total, acc = tl.full((BM, 1), -1e30, tl.float32), tl.zeros((BM, 1)), tl.zeros((BM, D))
    for n in range(first, end, BN):
        scores = tl.dot(queries, k[batch, shared, n : n + BN, 0:D].T)
        if n + BN > end:
            scores = tl.where(columns + n < end, scores, -math.inf)
        before, top = top, tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        p, kept = tl.exp2(scores * in_bits - top * in_bits), tl.exp2((before - top) * in_bits)
        total = total * kept + tl.sum(p, 1, keep_dims=True)
        acc = tl.dot(p.to(v.dtype), v[batch, shared, n : n + BN, 0:D], acc * kept)
    o[part, batch, shared, 0:BM, 0:D] = acc / total
    lse[part, batch, shared, 0:BM] = (top * scale + tl.log(total))[:, 0]


@treadle.kernel
def merge_parts(parts: Any, lse: Any, o: Any, P: tl.constexpr, D: tl.constexpr) -> None:
    """Of parts [P or fewer, rows, D] and lse [P or fewer, rows], o [rows, D]: a part weighs as much as its exponentials sum up to."""
    row, there = tl.program_id(0), tl.arange(P) < lse.shape[0]
    logs = tl.where(there, lse[0:P, row], -math.inf)
    weights = tl.exp(logs - tl.max(logs, 0, keep_dims=True))[:, None]
    o[row, 0:D] = tl.sum(parts[0:P, row, 0:D] * weights, 0) / tl.sum(weights, 0)


def parts_of(heads: int, keys: int, units: int, BN: int) -> tuple[int, int]:
    """How many parts the keys of each of so many heads are cut into, and their length: so that all units end together, after few rounds."""
    steps = -(-keys // BN)

    def clocks(parts: int) -> int:
        return -(-heads * parts // units) * (-(-steps // parts) + 4)

    each = -(-steps // min(range(1, min(steps, 64) + 1), key=clocks))
    return -(-steps // each), each * BN


def new(shape: tuple[int, ...], is_wide: bool) -> Any:
    """A NumPy array."""
    return np.empty(shape, np.float32 if is_wide else np.float16)


def decode(
    q: Any,
    k: Any,
    v: Any,
    empty: Callable[[tuple[int, ...], bool], Any] = new,
    *,
    units: int = 132,
    BN: int = 128,
    **options: Any,
) -> Any:
    """The softmax of q k^T / sqrt(D), times v, for q [batch, heads, queries, D], all of which see all keys; heads that share keys times
    queries are at most 64. `empty(shape, is_wide)`: an array like q, or of float32.
    """
    (batch, heads, queries, width), (shared, keys) = q.shape, k.shape[1:3]
    rows, (parts, length) = heads // shared * queries, parts_of(batch * shared, keys, units, BN)
    found, lse = empty((parts, batch, shared, rows, width), True), empty((parts, batch, shared, rows), True)
    o, count, scale = empty((batch * heads * queries, width), False), 1 << (parts - 1).bit_length(), 1 / math.sqrt(width)
    grouped = q.reshape(batch, shared, rows, width)
    attend_to_part[parts, shared, batch](grouped, k, v, found, lse, length, scale, width, 64, BN, num_warps=4, num_stages=3, **options)
    flat, logs = found.reshape(parts, batch * heads * queries, width), lse.reshape(parts, batch * heads * queries)
    merge_parts[batch * heads * queries](flat, logs, o, count, width, num_warps=4, **options)
    return o.reshape(q.shape)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, length, 64)).astype(np.float16) for heads, length in ((8, 1), (2, 700), (2, 700)))
    o = decode(q, k, v, units=12, BN=64)
    scores = np.exp(q.astype(np.float64) @ k.repeat(4, 1).swapaxes(2, 3) / 8)
    print("largest error:", np.abs(o - scores @ v.repeat(4, 1) / scores.sum(3, keepdims=True)).max())
