"""Tensor programs for the tests on AMD, with exact inputs and float64 references."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from generators import elementwise_programs

from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "i8": np.int8,
    "i32": np.int32,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


@dataclass(frozen=True)
class Program:
    """MLIR text, the shapes and element types of its inputs, and what it computes (float64 in, float64 out)."""

    text: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    reference: Callable[..., np.ndarray]
    tolerance: float = 0.0

    def arrays(self) -> list[np.ndarray]:
        """Small whole numbers: every sum of products is exact in every type used."""
        rng = np.random.default_rng(3)
        return [rng.integers(-3, 4, shape).astype(np.float32).astype(DTYPES[kind]) for shape, kind in self.inputs]

    def expected(self) -> np.ndarray:
        """The right result in float64."""
        return self.reference(*(a.astype(np.float64) for a in self.arrays()))


def lowered(text: str, target: str, **config: int) -> builtin.ModuleOp:
    """A module after insert-sync, with the tile configuration of contractions given, and loops that overlap nothing, or chosen."""
    module = load(text)
    spec = target_spec(target)
    if not config:
        lower(module, spec, CompileOptions())
        return module
    m, n, k, warps_m, warps_n = (config.get(name, 0) for name in ("tile_m", "tile_n", "tile_k", "warps_m", "warps_n"))
    lower(module, spec, CompileOptions(tile=(m, n, k), warps=(warps_m, warps_n), pipeline_stages=1))
    return module


def matmul(m: int, n: int, k: int, kind: str, result: str, *, transposed: str = "", bias: bool = False) -> Program:
    """result[m, n] = a b (+ bias[n]); `transposed` holds "a" and "b" for operands stored the other way round."""
    a = (k, m) if "a" in transposed else (m, k)
    b = (n, k) if "b" in transposed else (k, n)
    ta, tb = (f"tensor<{s[0]}x{s[1]}x{kind}>" for s in (a, b))
    tc = f"tensor<{m}x{n}x{result}>"
    extend = "arith.extsi" if kind.startswith("i") else "arith.extf"
    mul, add, zero = ("arith.muli", "arith.addi", "0") if result.startswith("i") else ("arith.mulf", "arith.addf", "0.0")
    widen = f"""
        %xw = {extend} %x : {kind} to {result}
        %yw = {extend} %y : {kind} to {result}"""
    x, y = ("%xw", "%yw") if kind != result else ("%x", "%y")
    maps = f"""affine_map<(d0, d1, d2) -> {"(d2, d0)" if "a" in transposed else "(d0, d2)"}>,
        affine_map<(d0, d1, d2) -> {"(d1, d2)" if "b" in transposed else "(d2, d1)"}>, affine_map<(d0, d1, d2) -> (d0, d1)>"""
    tail = f"return %r : {tc}"
    if bias:
        tail = f"""%s = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
            affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
            ins(%r, %bias : {tc}, tensor<{n}x{result}>) outs(%e : {tc}) {{
          ^bb0(%p: {result}, %q: {result}, %o: {result}):
            %t = {add} %p, %q : {result}
            linalg.yield %t : {result}
          }} -> {tc}
          return %s : {tc}"""
    text = f"""func.func @program(%a: {ta}, %b: {tb}{f", %bias: tensor<{n}x{result}>" if bias else ""}) -> {tc} {{
      %z = arith.constant {zero} : {result}
      %e = tensor.empty() : {tc}
      %f = linalg.fill ins(%z : {result}) outs(%e : {tc}) -> {tc}
      %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}
          ins(%a, %b : {ta}, {tb}) outs(%f : {tc}) {{
        ^bb0(%x: {kind}, %y: {kind}, %acc: {result}):{widen if kind != result else ""}
        %m = {mul} {x}, {y} : {result}
        %u = {add} %acc, %m : {result}
        linalg.yield %u : {result}
      }} -> {tc}
      {tail}
    }}"""

    def reference(p: np.ndarray, q: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        product = (p.T if "a" in transposed else p) @ (q.T if "b" in transposed else q)
        return product + rest[0] if rest else product

    inputs = ((a, kind), (b, kind), *((((n,), result),) if bias else ()))
    return Program(text, inputs, reference)


def row_reduction(rows: int, columns: int, op: str) -> Program:
    """result[i] = sum or maximum over j of x[i, j], f32."""
    t = f"tensor<{rows}x{columns}xf32>"
    combine, start = ("arith.addf", "0.0") if op == "sum" else ("arith.maximumf", "0xFF800000")
    text = f"""func.func @program(%x: {t}) -> tensor<{rows}xf32> {{
      %z = arith.constant {start} : f32
      %e = tensor.empty() : tensor<{rows}xf32>
      %f = linalg.fill ins(%z : f32) outs(%e : tensor<{rows}xf32>) -> tensor<{rows}xf32>
      %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
          iterator_types = ["parallel", "reduction"]}} ins(%x : {t}) outs(%f : tensor<{rows}xf32>) {{
        ^bb0(%v: f32, %acc: f32):
        %u = {combine} %acc, %v : f32
        linalg.yield %u : f32
      }} -> tensor<{rows}xf32>
      return %r : tensor<{rows}xf32>
    }}"""

    def reference(x: np.ndarray) -> np.ndarray:
        return x.sum(1) if op == "sum" else x.max(1)

    return Program(text, (((rows, columns), "f32"),), reference)


def exponential(rows: int, columns: int) -> Program:
    """exp(x) + y, f32, with y broadcast along rows."""
    t = f"tensor<{rows}x{columns}xf32>"
    text = f"""func.func @program(%x: {t}, %y: tensor<{columns}xf32>) -> {t} {{
      %e = tensor.empty() : {t}
      %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
          affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
          ins(%x, %y : {t}, tensor<{columns}xf32>) outs(%e : {t}) {{
        ^bb0(%v: f32, %w: f32, %o: f32):
        %p = math.exp %v : f32
        %s = arith.addf %p, %w : f32
        linalg.yield %s : f32
      }} -> {t}
      return %r : {t}
    }}"""

    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(x) + y

    return Program(text, (((rows, columns), "f32"), ((columns,), "f32")), reference, tolerance=4e-6)


def functions(count: int, result: str) -> Program:
    """Hyperbolic tangents, square roots, exponentials, quotients and logarithms in f32, in sums (f32) or products alone (bf16)."""
    lines = [
        "%one = arith.constant 1.0 : f32",
        "%two = arith.constant 2.0 : f32",
        "%xx = arith.mulf %x, %x : f32",
        "%w = arith.addf %two, %xx : f32",
        "%q = math.sqrt %w : f32",
        "%n = arith.negf %x : f32",
        "%p = math.exp %n : f32",
        "%d = arith.addf %one, %p : f32",
        "%v = arith.divf %q, %d : f32",
        "%l = math.log %w : f32",
        "%t = math.tanh %l : f32",
        "%r0 = math.rsqrt %w : f32",
        "%s = arith.mulf %t, %r0 : f32",
        "%k = arith.divf %s, %l : f32",
        f"%y = arith.{'mulf' if result == 'bf16' else 'addf'} %k, %v : f32",
    ]

    def reference(x: np.ndarray) -> np.ndarray:
        w = 2 + x * x
        first, second = np.tanh(np.log(w)) / np.sqrt(w) / np.log(w), np.sqrt(w) / (1 + np.exp(-x))
        return first * second if result == "bf16" else first + second

    tolerance = 1.125 * 2.0**-8 if result == "bf16" else 2e-6
    return Program(elementwise_programs.program(lines, result, count), (((count,), "f32"),), reference, tolerance)


PROGRAMS: dict[str, Program] = {
    "elementwise": exponential(13, 77),
    "functions_precise": functions(515, "f32"),
    "functions_rounded": functions(515, "bf16"),
    "sum": row_reduction(37, 203, "sum"),
    "sum_long": row_reduction(3, 5001, "sum"),
    "maximum": row_reduction(5, 1000, "maximum"),
    "f16_bias": matmul(77, 203, 45, "f16", "f32", bias=True),
    "f16_small": matmul(33, 17, 100, "f16", "f32"),
    "f16_long": matmul(40, 24, 333, "f16", "f32"),
    "f16_even": matmul(128, 128, 96, "f16", "f32"),
    "f16_transposed_a": matmul(70, 50, 90, "f16", "f32", transposed="a"),
    "f16_transposed_b": matmul(70, 50, 90, "f16", "f32", transposed="b"),
    "f16_transposed_both": matmul(33, 65, 47, "f16", "f32", transposed="ab"),
    "bf16": matmul(77, 61, 45, "bf16", "f32", bias=True),
    "i8": matmul(77, 61, 145, "i8", "i32"),
    "f32": matmul(45, 53, 39, "f32", "f32", bias=True),
}

FP8: dict[str, tuple[str, ...]] = {
    "gfx942": ("f8E4M3FNUZ", "f8E5M2FNUZ"),
    "gfx950": ("f8E4M3FN", "f8E5M2"),
}
