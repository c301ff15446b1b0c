"""The same computations in Triton, which the examples are measured against. Needs Triton and PyTorch with a GPU."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


def vector_add(x, y, out):
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)


@triton.jit
def softmax_kernel(x, y, stride, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=4):
        at = tl.arange(0, BLOCK)
        values = tl.load(x + row * stride + at, at < columns, -float("inf"))
        e = tl.exp(values - tl.max(values, 0))
        tl.store(y + row * stride + at, e / tl.sum(e, 0), at < columns)


def softmax(x, y):
    rows, columns = x.shape
    grid = min(rows, torch.cuda.get_device_properties(0).multi_processor_count * 8)
    softmax_kernel[(grid,)](x, y, x.stride(0), rows, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)


def configs():
    sizes = (
        (128, 256, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (64, 256, 32, 4, 4),
        (128, 128, 32, 4, 4),
        (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4),
    )
    return [triton.Config({"BM": m, "BN": n, "BK": k, "BAND": 8}, num_stages=stages, num_warps=warps) for m, n, k, stages, warps in sizes]


@triton.autotune(configs(), key=["m", "n", "k"])
@triton.jit
def matmul_kernel(a, b, c, m, n, k, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr):
    number, rows, columns = tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN)
    i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, BAND)
    at_m, at_n, at_k = (i * BM + tl.arange(0, BM)) % m, (j * BN + tl.arange(0, BN)) % n, tl.arange(0, BK)
    left, right = a + at_m[:, None] * sa + at_k[None, :], b + at_k[:, None] * sb + at_n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        rest = k - step * BK
        acc = tl.dot(tl.load(left, at_k[None, :] < rest, 0.0), tl.load(right, at_k[:, None] < rest, 0.0), acc)
        left += BK
        right += BK * sb
    acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    row, column = i * BM + tl.arange(0, BM)[:, None], j * BN + tl.arange(0, BN)[None, :]
    tl.store(c + row * sc + column, acc.to(c.dtype.element_ty), (row < m) & (column < n))


def matmul(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
        a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0)
    )


@triton.autotune(configs(), key=["m", "n", "k"])
@triton.jit
def swiglu_kernel(x, gate, up, y, m, n, k, sx, sw, sy, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr):
    number, rows, columns = tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN)
    i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, BAND)
    at_m, at_n, at_k = (i * BM + tl.arange(0, BM)) % m, (j * BN + tl.arange(0, BN)) % n, tl.arange(0, BK)
    left, place = x + at_m[:, None] * sx + at_k[None, :], at_k[:, None] * sw + at_n[None, :]
    first, second = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        rest = k - step * BK
        part = tl.load(left, at_k[None, :] < rest, 0.0)
        first = tl.dot(part, tl.load(gate + place, at_k[:, None] < rest, 0.0), first)
        second = tl.dot(part, tl.load(up + place, at_k[:, None] < rest, 0.0), second)
        left += BK
        place += BK * sw
    row, column = i * BM + tl.arange(0, BM)[:, None], j * BN + tl.arange(0, BN)[None, :]
    result = first * tl.sigmoid(first) * second
    tl.store(y + row * sy + column, result.to(y.dtype.element_ty), (row < m) & (column < n))


def swiglu(x, gate, up, y):
    (m, k), n = x.shape, gate.shape[1]
    swiglu_kernel[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
        x, gate, up, y, m, n, k, x.stride(0), gate.stride(0), y.stride(0)
    )


@triton.jit
def layer_norm_kernel(x, weight, bias, y, mean, rstd, stride, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * stride + at, inside, 0.0).to(tl.float32)
    average = tl.sum(values, 0) / columns
    centred = tl.where(inside, values - average, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + eps)
    tl.store(mean + row, average)
    tl.store(rstd + row, scale)
    result = centred * scale * tl.load(weight + at, inside, 0.0) + tl.load(bias + at, inside, 0.0)
    tl.store(y + row * stride + at, result.to(y.dtype.element_ty), inside)


def layer_norm(x, weight, bias, y, mean, rstd):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    layer_norm_kernel[(rows,)](
        x, weight, bias, y, mean, rstd, x.stride(0), columns, 1e-5, BLOCK=block, num_warps=min(max(block // 256, 1), 8)
    )


@triton.autotune(configs(), key=["n", "k", "rows", "groups"])
@triton.jit
def grouped_kernel(
    a, b, ends, c, rows, groups, n, k, sa, sg, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr
):
    group = tl.program_id(2)
    first, last = tl.load(ends + group), tl.load(ends + group + 1)
    start = first + tl.program_id(1) * BM
    if start < last:
        row, column, at_k = start + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
        left = a + (row % rows)[:, None] * sa + at_k[None, :]
        right = b + group * sg + at_k[:, None] * sb + (column % n)[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(k, BK)):
            rest = k - step * BK
            acc = tl.dot(tl.load(left, at_k[None, :] < rest, 0.0), tl.load(right, at_k[:, None] < rest, 0.0), acc)
            left += BK
            right += BK * sb
        inside = (row < last)[:, None] & (column < n)[None, :]
        tl.store(c + row[:, None] * sc + column[None, :], acc.to(c.dtype.element_ty), inside)


@functools.cache
def longest_run(ends):
    return int(ends.diff().max())  # read back once: it would hold up every call


def grouped_matmul(a, b, ends, c):
    (rows, k), (groups, _, n) = a.shape, b.shape
    most = longest_run(ends)
    grouped_kernel[lambda meta: (triton.cdiv(n, meta["BN"]), triton.cdiv(most, meta["BM"]), groups)](
        a, b, ends, c, rows, groups, n, k, a.stride(0), b.stride(0), b.stride(1), c.stride(0)
    )


@triton.jit
def dropout_kernel(x, y, n, seed, p, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n)
    tl.store(y + at, tl.where(tl.rand(seed, at) > p, values / (1 - p), 0.0), at < n)


def dropout(x, y):
    dropout_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 123, 0.3, BLOCK=1024)


def attention_configs():
    sizes = ((128, 128, 3, 8), (128, 64, 3, 8), (128, 64, 4, 4), (64, 64, 3, 4), (128, 128, 2, 8), (64, 128, 3, 4))
    return [triton.Config({"BM": m, "BN": n}, num_stages=stages, num_warps=warps) for m, n, stages, warps in sizes]


@triton.jit
def attention_steps(
    queries, acc, total, top, k, v, head, begin, end, rows, length, in_bits, MASKED: tl.constexpr, D: tl.constexpr, BN: tl.constexpr
):
    for n in tl.range(begin, end, BN):
        n = tl.multiple_of(n, BN)
        keys, columns = k.load([head * length + n, 0]), n + tl.arange(0, BN)
        scores = tl.dot(queries, keys.T) * in_bits
        if MASKED:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1e6)
        higher = tl.maximum(top, tl.max(scores, 1))
        p, kept = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
        total, top = total * kept + tl.sum(p, 1), higher
        acc = tl.dot(p.to(v.dtype), v.load([head * length + n, 0]), acc * kept[:, None])
    return acc, total, top


@triton.autotune(attention_configs(), key=["length", "D", "CAUSAL"])
@triton.jit
def attention_kernel(q, k, v, o, lse, length, heads, scale, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m, head = tl.program_id(0) * BM, tl.program_id(1)
    rows_of_all, in_bits = heads * length, scale * 1.4426950408889634
    keys = tl.make_tensor_descriptor(k, [rows_of_all, D], [D, 1], [BN, D])
    values = tl.make_tensor_descriptor(v, [rows_of_all, D], [D, 1], [BN, D])
    asked = tl.make_tensor_descriptor(q, [rows_of_all, D], [D, 1], [BM, D])
    result = tl.make_tensor_descriptor(o, [rows_of_all, D], [D, 1], [BM, D])
    queries, rows = asked.load([head * length + m, 0]), m + tl.arange(0, BM)
    acc, total, top = tl.zeros((BM, D), tl.float32), tl.zeros((BM,), tl.float32), tl.full((BM,), -float("inf"), tl.float32)
    if CAUSAL:
        acc, total, top = attention_steps(queries, acc, total, top, keys, values, head, 0, m, rows, length, in_bits, False, D, BN)
        acc, total, top = attention_steps(queries, acc, total, top, keys, values, head, m, m + BM, rows, length, in_bits, True, D, BN)
    else:
        acc, total, top = attention_steps(queries, acc, total, top, keys, values, head, 0, length, rows, length, in_bits, False, D, BN)
    result.store([head * length + m, 0], (acc / total[:, None]).to(o.dtype.element_ty))
    tl.store(lse + head * length + rows, (top + tl.log2(total)) * 0.6931471805599453)


def attention(q, k, v, o, lse, causal):
    batch, heads, length, width = q.shape
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    attention_kernel[lambda meta: (length // meta["BM"], batch * heads)](
        q, k, v, o, lse, length, batch * heads, width**-0.5, CAUSAL=causal, D=width
    )


PEERS = {
    "attention": attention,
    "vector_add": vector_add,
    "softmax": softmax,
    "matmul": matmul,
    "swiglu": swiglu,
    "layer_norm": layer_norm,
    "grouped_matmul": grouped_matmul,
    "dropout": dropout,
}
