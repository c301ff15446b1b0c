"""Workloads that reduce: sums of rows and columns, softmax, layer normalisation, the place of the largest of a row. Arithmetic in f32."""

from collections.abc import Callable

from treadle.bench.texts import Function, Value
from treadle.bench.workload import TensorSpec, Workload

Family = Callable[[str, str, int, int, str], Workload]
EPSILON = 1e-5
"""What layer normalisation adds to the variance: PyTorch's default."""


def row_sums(name: str, group: str, m: int, n: int, dtype: str) -> Workload:
    """Sums of the rows of (M, N), in f32."""

    def write(rows: int, columns: int) -> str:
        f = Function("row_sums")
        return f.text(f.reduce_rows(f.argument("x", (rows, columns), dtype), "arith.addf", "0.000000e+00"))

    inputs, made = (TensorSpec("x", (m, n), dtype, rows=0),), (TensorSpec("y", (m,), "f32", rows=0),)
    return Workload(name, group, f"row sums of {m}x{n} {dtype}", inputs, made, m, n, m * n, "row_sums", write)


def softmax(name: str, group: str, m: int, n: int, dtype: str) -> Workload:
    """Softmax over the rows of (M, N): maximum, exponentials, sum, quotient, in f32."""

    def write(rows: int, columns: int) -> str:
        f = Function("softmax")
        x = f.argument("x", (rows, columns), dtype)
        top = f.reduce_rows(x, "arith.maximumf", "0xFF800000")
        (e,) = f.elementwise("mn,m->mn", [x, top], ["f32"], lambda b, t: [b.unary("math.exp", b.binary("arith.subf", t[0], t[1]))])
        total: Value = f.reduce_rows(e, "arith.addf", "0.000000e+00")
        return f.text(*f.elementwise("mn,m->mn", [e, total], [dtype], lambda b, t: [b.binary("arith.divf", t[0], t[1])]))

    inputs, made = (TensorSpec("x", (m, n), dtype, rows=0),), (TensorSpec("y", (m, n), dtype, rows=0),)
    return Workload(name, group, f"softmax of {m}x{n} {dtype}", inputs, made, m, n, 5 * m * n, "softmax", write)


def column_sums(name: str, group: str, m: int, n: int, dtype: str) -> Workload:
    """Sums of the columns of (M, N), in f32."""

    def write(_: int, columns: int) -> str:
        f = Function("column_sums")
        return f.text(f.reduce(f.argument("x", (m, columns), dtype), "mn->n", "arith.addf", "0.000000e+00"))

    inputs, made = (TensorSpec("x", (m, n), dtype, columns=1),), (TensorSpec("y", (n,), "f32", columns=0),)
    return Workload(name, group, f"column sums of {m}x{n} {dtype}", inputs, made, m, n, m * n, "column_sums", write)


def layer_norm(name: str, group: str, m: int, n: int, dtype: str) -> Workload:
    """(x - mean) / sqrt(variance + EPSILON) * weight + bias over the rows of (M, N)."""

    def write(rows: int, columns: int) -> str:
        f = Function("layer_norm")
        x, weight, bias = (
            f.argument("x", (rows, columns), dtype),
            f.argument("weight", (columns,), dtype),
            f.argument("bias", (columns,), dtype),
        )
        total = f.reduce_rows(x, "arith.addf", "0.000000e+00")
        (mean,) = f.elementwise("m->m", [total], ["f32"], lambda b, t: [b.binary("arith.mulf", t[0], b.constant(1 / columns))])
        (far,) = f.elementwise("mn,m->mn", [x, mean], ["f32"], lambda b, t: [b.binary("arith.subf", t[0], t[1])])
        (square,) = f.elementwise("mn->mn", [far], ["f32"], lambda b, t: [b.binary("arith.mulf", t[0], t[0])])
        squares = f.reduce_rows(square, "arith.addf", "0.000000e+00")
        (scale,) = f.elementwise(
            "m->m",
            [squares],
            ["f32"],
            lambda b, t: [
                b.unary("math.rsqrt", b.binary("arith.addf", b.binary("arith.mulf", t[0], b.constant(1 / columns)), b.constant(EPSILON)))
            ],
        )
        return f.text(
            *f.elementwise(
                "mn,m,n,n->mn",
                [far, scale, weight, bias],
                [dtype],
                lambda b, t: [b.binary("arith.addf", b.binary("arith.mulf", b.binary("arith.mulf", t[0], t[1]), t[2]), t[3])],
            )
        )

    given = TensorSpec("x", (m, n), dtype, rows=0), TensorSpec("weight", (n,), dtype), TensorSpec("bias", (n,), dtype)
    made = (TensorSpec("y", (m, n), dtype, rows=0),)
    return Workload(name, group, f"layer norm of {m}x{n} {dtype}", given, made, m, n, 8 * m * n, "layer_norm", write)


def argmax(name: str, group: str, m: int, n: int, dtype: str) -> Workload:
    """Where the largest element of each row of (M, N) is, the first of equal ones."""

    def write(rows: int, columns: int) -> str:
        f = Function("argmax")
        return f.text(f.largest_places(f.argument("x", (rows, columns), dtype)))

    inputs, made = (TensorSpec("x", (m, n), dtype, rows=0),), (TensorSpec("y", (m,), "i32", rows=0),)
    return Workload(name, group, f"argmax of the rows of {m}x{n} {dtype}", inputs, made, m, n, m * n, "argmax", write)


FAMILIES: dict[str, Family] = {
    "rowsums": row_sums,
    "colsums": column_sums,
    "softmax": softmax,
    "layernorm": layer_norm,
    "argmax": argmax,
}
"""By what names of workloads begin with."""
