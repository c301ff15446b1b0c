"""Attention of a few queries over keys and values that lie in pages, as servers of language models keep them: a table says in which pages
those of each sequence are, and each sequence has a length of its own.

Where BN keys of a step lie in one page, they are copied at once, several steps ahead; else rows are gathered by tiles of places.

Run it: python examples/paged_decode.py
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from decode import merge_parts, new, parts_of

import treadle
import treadle.language as tl


@treadle.kernel
def attend_to_part(
    q: Any,
    k: Any,
    v: Any,
    table: Any,
    lengths: Any,
    o: Any,
    lse: Any,
    part_length: int,
    scale: float,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
) -> None:
    """For q [batch, shared heads, rows, D], k and v [pages, PAGE, shared heads, D], table [batch, pages of a sequence], lengths [batch]; of
    part p, which begins with key p part_length: o [p, batch, shared heads, rows, D] and the logarithms of the sums, lse [p, batch, shared
    heads, rows], minus infinity for parts without keys.
    """
    part, shared, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, length = part * part_length, tl.index(lengths[batch])
    end, columns = tl.minimum(first + part_length, length), tl.arange(BN)[None, :]
    queries, in_bits = tl.load(q[batch, shared, 0:BM, 0:D]), scale * math.log2(math.e)
    top, total, acc = tl.full((BM, 1), -1e30, tl.float32), tl.zeros((BM, 1)), tl.zeros((BM, D))
    for n in range(first, end, BN):
        if PAGE % BN == 0:
            page, place = tl.index(table[batch, n // PAGE]), n % PAGE
            keys, values = k[page, place : place + BN, shared, 0:D], v[page, place : place + BN, shared, 0:D]
        else:
            places = tl.arange(BN) + n
            pages = table[batch, places // PAGE]
            keys, values = k[pages, places % PAGE, shared, 0:D], v[pages, places % PAGE, shared, 0:D]
        scores = tl.dot(queries, keys.T)
        if n + BN > end:
            scores = tl.where(columns + n < end, scores, -math.inf)
        before, top = top, tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        p, kept = tl.exp2(scores * in_bits - top * in_bits), tl.exp2((before - top) * in_bits)
        total = total * kept + tl.sum(p, 1, keep_dims=True)
        acc = tl.dot(p.to(v.dtype), values, acc * kept)
    o[part, batch, shared, 0:BM, 0:D] = acc / tl.maximum(total, 1e-30)
    lse[part, batch, shared, 0:BM] = tl.where(total > 0, top * scale + tl.log(total), -math.inf)[:, 0]


def keys_a_step(page: int) -> int:
    """BN: as many keys as can be copied at once, up to 128."""
    return next((keys for keys in (128, 64, 32, 16) if page % keys == 0), 64)


def decode(
    q: Any,
    k: Any,
    v: Any,
    table: Any,
    lengths: Any,
    empty: Callable[[tuple[int, ...], bool], Any] = new,
    *,
    units: int = 132,
    step: int = 0,
    **options: Any,
) -> Any:
    """The softmax of q k^T / sqrt(D), times v, for q [batch, heads, queries, D], all of which see the first keys of their sequence, k and v
    [pages, keys of a page, shared heads, D], table [batch, pages] and lengths [batch] of int32, none of them 0. Heads that share keys times
    queries are at most 64. All of a page's values are finite numbers. `empty(shape, is_wide)`: an array like q, or of float32.
    `step`: keys of a step, where it is not to be `keys_a_step`.
    """
    (batch, heads, queries, width), (page, shared) = q.shape, k.shape[1:3]
    rows, BN = heads // shared * queries, step or keys_a_step(page)
    parts, length = parts_of(batch * shared, table.shape[1] * page, units, max(BN, 128))
    found, lse = empty((parts, batch, shared, rows, width), True), empty((parts, batch, shared, rows), True)
    o, count, scale = empty((batch * heads * queries, width), False), 1 << (parts - 1).bit_length(), 1 / math.sqrt(width)
    given, sizes = (q.reshape(batch, shared, rows, width), k, v, table, lengths, found, lse, length, scale), (page, width, 64, BN)
    attend_to_part[parts, shared, batch](*given, *sizes, num_warps=4, num_stages=min(3 * 128 // BN, 12), **options)
    flat, logs = found.reshape(parts, batch * heads * queries, width), lse.reshape(parts, batch * heads * queries)
    merge_parts[batch * heads * queries](flat, logs, o, count, width, num_warps=4, **options)
    return o.reshape(q.shape)


def problem(rng: Any, batch: int, shared: int, group: int, page: int, lengths: Any, width: int) -> tuple[Any, ...]:
    """Random queries, pages in random order, and what decode is to find, in float64."""
    counts = [-(-length // page) for length in lengths]
    order, table = rng.permutation(sum(counts) + 3).astype(np.int32), np.zeros((batch, max(counts)), np.int32)
    q = rng.standard_normal((batch, shared * group, 1, width)).astype(np.float16)
    k, v = (rng.standard_normal((len(order), page, shared, width)).astype(np.float16) for _ in range(2))
    want, used = np.zeros(q.shape), 0
    for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        table[number, :count] = order[used : used + count]
        keys, values = (a[table[number, :count]].reshape(-1, shared, width)[:length].astype(np.float64) for a in (k, v))
        keys, values = (a.transpose(1, 0, 2).repeat(group, 0) for a in (keys, values))
        scores = np.exp(q[number].astype(np.float64) @ keys.swapaxes(1, 2) / math.sqrt(width))
        want[number], used = scores @ values / scores.sum(2, keepdims=True), used + count
    return q, k, v, table, np.array(lengths, np.int32), want


if __name__ == "__main__":
    *given, want = problem(np.random.default_rng(0), 2, 2, 4, 64, (700, 130), 64)
    print("largest error:", np.abs(decode(*given, units=12) - want).max())
