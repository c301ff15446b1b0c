"""Families of workloads: functions from sizes and types to `Workload` records, with their MLIR text."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from treadle.bench.texts import Body, Function
from treadle.bench.workload import TensorSpec, Workload
from treadle.options import CHOICES, CompileOptions

_USUAL = CompileOptions()
OUTPUT_TYPES = {"f8E4M3FN": "bf16", "f8E5M2": "bf16", "i8": "i32"}


def matmul(
    name: str, group: str, m: int, n: int, k: int, dtype: str, *, transposed: bool = True, options: CompileOptions = _USUAL
) -> Workload:
    """X @ w.T with w (N, K) as linear layers keep it, or x @ w with w (K, N) where not `transposed`."""
    result = OUTPUT_TYPES.get(dtype, dtype)
    letters = "nk" if transposed else "kn"

    def write(rows: int, columns: int) -> str:
        f = Function("matmul")
        x = f.argument("x", (rows, k), dtype)
        w = f.argument("w", (columns, k) if transposed else (k, columns), dtype)
        return f.text(f.cast(f.contract(f"mk,{letters}->mn", x, w), result))

    promoted = options.fp8_accumulation == "promoted"
    quantised = {"f8E4M3FN": "scaled_mm_promoted" if promoted else "scaled_mm", "i8": "int_mm"}
    words = [getattr(options, option) for option in CHOICES if getattr(options, option) != getattr(_USUAL, option)]
    peer = quantised.get(dtype, "linear" if transposed else "matmul")
    weight = TensorSpec("w", (n, k), dtype, columns=0) if transposed else TensorSpec("w", (k, n), dtype, columns=1)
    return Workload(
        name,
        group,
        f"{m}x{n}x{k} {' '.join([dtype, *words])}, w {'(N,K)' if transposed else '(K,N)'}",
        (TensorSpec("x", (m, k), dtype, rows=0), weight),
        (TensorSpec("y", (m, n), result, rows=0, columns=1),),
        m,
        n,
        2 * m * n * k,
        peer,
        write,
        options,
    )


Epilogue = Callable[[Body, list[str]], Sequence[str]]


def _gelu(body: Body, taken: list[str]) -> Sequence[str]:
    return [body.gelu_tanh(body.binary("arith.addf", taken[0], taken[1]))]


def _bias(body: Body, taken: list[str]) -> Sequence[str]:
    return [body.binary("arith.addf", taken[0], taken[1])]


def _silu_two(body: Body, taken: list[str]) -> Sequence[str]:
    return [taken[0], body.silu(taken[0])]


EPILOGUES: dict[str, tuple[Epilogue, bool, int]] = {
    "linear_bias_gelu": (_gelu, True, 1),
    "linear_bias": (_bias, True, 1),
    "linear_silu_two": (_silu_two, False, 2),
}
"""Name (also the peer's): the scalar function, whether it takes a bias, how many outputs it has."""


def epilogue(name: str, group: str, kind: str, m: int, n: int, k: int, dtype: str) -> Workload:
    """A linear layer followed by one of `EPILOGUES` in the same program."""
    scalar, has_bias, outputs = EPILOGUES[kind]

    def write(rows: int, columns: int) -> str:
        f = Function(kind)
        x, w = f.argument("x", (rows, k), dtype), f.argument("w", (columns, k), dtype)
        bias = [f.argument("bias", (columns,), dtype)] if has_bias else []
        y = f.contract("mk,nk->mn", x, w)
        return f.text(*f.elementwise("mn,n->mn" if bias else "mn->mn", [y, *bias], [dtype] * outputs, scalar))

    inputs = (TensorSpec("x", (m, k), dtype, rows=0), TensorSpec("w", (n, k), dtype, columns=0))
    bias = (TensorSpec("bias", (n,), dtype, columns=0),) if has_bias else ()
    made = tuple(TensorSpec(f"y{i}", (m, n), dtype, rows=0, columns=1) for i in range(outputs))
    title = f"{kind.replace('_', '+')} {m}x{n}x{k} {dtype}"
    return Workload(name, group, title, inputs + bias, made, m, n, 2 * m * n * k, kind, write)


def _residual(body: Body, taken: list[str], dtype: str) -> str:
    product = body.cast(body.cast(taken[0], dtype), "f32")
    return body.binary("arith.addf", product, body.cast(taken[1], "f32"))


def _gate(body: Body, taken: list[str], dtype: str) -> str:
    product = body.cast(body.cast(taken[0], dtype), "f32")
    gate = body.cast(body.cast(body.silu(body.cast(taken[1], "f32")), dtype), "f32")
    return body.binary("arith.mulf", product, gate)


BESIDE: dict[str, Callable[[Body, list[str], str], str]] = {"linear_residual": _residual, "linear_gate": _gate}
"""What a matrix of the result's shape does to a product: name (also the peer's) and scalar function, rounded where PyTorch rounds."""


def beside(name: str, group: str, kind: str, m: int, n: int, k: int, dtype: str) -> Workload:
    """A linear layer and a matrix (M, N) that is read beside it, as `BESIDE` says: x @ w.T + r, or (x @ w.T) * silu(r)."""

    def write(rows: int, columns: int) -> str:
        f = Function(kind)
        x, w, r = (f.argument(a, size, dtype) for a, size in (("x", (rows, k)), ("w", (columns, k)), ("r", (rows, columns))))
        y = f.contract("mk,nk->mn", x, w)
        return f.text(*f.elementwise("mn,mn->mn", [y, r], [dtype], lambda body, taken: [BESIDE[kind](body, taken, dtype)]))

    inputs = (
        TensorSpec("x", (m, k), dtype, rows=0),
        TensorSpec("w", (n, k), dtype, columns=0),
        TensorSpec("r", (m, n), dtype, rows=0, columns=1),
    )
    title = f"{kind.replace('_', '+')} {m}x{n}x{k} {dtype}"
    return Workload(name, group, title, inputs, (TensorSpec("y", (m, n), dtype, rows=0, columns=1),), m, n, 2 * m * n * k, kind, write)


def gated(name: str, group: str, m: int, n: int, k: int, dtype: str, *, outputs: int = 1) -> Workload:
    """silu(x @ wg.T) * (x @ wu.T): two matmuls that share an operand. With three outputs the two products are returned as well."""

    def write(rows: int, columns: int) -> str:
        f = Function("gated")
        x, wg, wu = (f.argument(a, (size, k), dtype) for a, size in (("x", rows), ("wg", columns), ("wu", columns)))
        gate, up = f.contract("mk,nk->mn", x, wg), f.contract("mk,nk->mn", x, wu)

        def combine(body: Body, taken: list[str]) -> Sequence[str]:
            product = body.binary("arith.mulf", body.silu(taken[0]), taken[1])
            return [product] if outputs == 1 else [*taken, product]

        return f.text(*f.elementwise("mn,mn->mn", [gate, up], [dtype] * outputs, combine))

    weights = tuple(TensorSpec(w, (n, k), dtype, columns=0) for w in ("wg", "wu"))
    made = tuple(TensorSpec(f"y{i}", (m, n), dtype, rows=0, columns=1) for i in range(outputs))
    title = f"silu(x Wg)*(x Wu) {m}x{n}x{k} {dtype}, {outputs} output{'s' if outputs > 1 else ''}"
    peer = "gated" if outputs == 1 else "gated_three"
    return Workload(name, group, title, (TensorSpec("x", (m, k), dtype, rows=0), *weights), made, m, n, 4 * m * n * k, peer, write)


def row_scaled(name: str, group: str, m: int, n: int, k: int, dtype: str) -> Workload:
    """(X @ w.T) * sx * sw with a scale for each row of x (M, K) and of w (N, K), in bf16."""

    def write(rows: int, columns: int) -> str:
        f = Function("row_scaled")
        x, w = f.argument("x", (rows, k), dtype), f.argument("w", (columns, k), dtype)
        sx, sw = f.argument("sx", (rows,), "f32"), f.argument("sw", (columns,), "f32")

        def scale(body: Body, taken: list[str]) -> Sequence[str]:
            return [body.binary("arith.mulf", body.binary("arith.mulf", taken[0], taken[1]), taken[2])]

        return f.text(*f.elementwise("mn,m,n->mn", [f.contract("mk,nk->mn", x, w), sx, sw], ["bf16"], scale))

    inputs = (
        TensorSpec("x", (m, k), dtype, rows=0),
        TensorSpec("w", (n, k), dtype, columns=0),
        TensorSpec("sx", (m,), "f32", rows=0),
        TensorSpec("sw", (n,), "f32", columns=0),
    )
    made = (TensorSpec("y", (m, n), "bf16", rows=0, columns=1),)
    title = f"{m}x{n}x{k} {dtype}, scales of rows and columns"
    return Workload(name, group, title, inputs, made, m, n, 2 * m * n * k, "scaled_mm_rows", write)


BLOCK = 128


def block_scaled(name: str, group: str, m: int, n: int, k: int, dtype: str) -> Workload:
    """X @ w.T in bf16, with scales of 1 x 128 of x (M, K), stored (K / 128, M), and of 128 x 128 of w (N, K), stored (N / 128, K / 128)."""

    def write(rows: int, columns: int) -> str:
        f = Function("block_scaled")
        blocks = k // BLOCK
        x, w = f.argument("x", (rows, k), dtype), f.argument("w", (columns, k), dtype)
        sx, sw = f.argument("sx", (blocks, rows), "f32"), f.argument("sw", (columns // BLOCK, blocks), "f32")
        x3 = f.expand(x, "[0], [1, 2]", (rows, blocks, BLOCK))
        w4 = f.expand(w, "[0, 1], [2, 3]", (columns // BLOCK, BLOCK, blocks, BLOCK))
        y = f.cast(f.contract_scaled("mkc,bnkc,km,bk->mbn", x3, w4, sx, sw), "bf16")
        return f.text(f.collapse(y, "[0], [1, 2]", (rows, columns)))

    # A sample of columns would not be whole blocks: all of them are compared.
    inputs = (
        TensorSpec("x", (m, k), dtype, rows=0),
        TensorSpec("w", (n, k), dtype),
        TensorSpec("sx", (k // BLOCK, m), "f32", rows=1),
        TensorSpec("sw", (n // BLOCK, k // BLOCK), "f32"),
    )
    made = (TensorSpec("y", (m, n), "bf16", rows=0),)
    title = f"{m}x{n}x{k} {dtype}, scales of 1x128 and 128x128 blocks"
    return Workload(name, group, title, inputs, made, m, n, 2 * m * n * k, "scaled_mm_blocks", write)


def batch_matmul(name: str, group: str, batch: int, m: int, n: int, k: int, dtype: str) -> Workload:
    """X (B, M, K) @ w (B, K, N)."""

    def write(rows: int, columns: int) -> str:
        f = Function("batch_matmul")
        x, w = f.argument("x", (batch, rows, k), dtype), f.argument("w", (batch, k, columns), dtype)
        return f.text(f.cast(f.contract("bmk,bkn->bmn", x, w), dtype))

    inputs = (TensorSpec("x", (batch, m, k), dtype, rows=1), TensorSpec("w", (batch, k, n), dtype, columns=2))
    made = (TensorSpec("y", (batch, m, n), dtype, rows=1, columns=2),)
    return Workload(name, group, f"{batch} x {m}x{n}x{k} {dtype}", inputs, made, m, n, 2 * batch * m * n * k, "matmul", write)


def titled(workload: Workload, title: str) -> Workload:
    """The workload under another title."""
    return replace(workload, title=f"{title}: {workload.title}")
