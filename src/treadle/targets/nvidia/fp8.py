"""Conversions from and to 8-bit floats on sm_90a, two at a time."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import F32, I8, I16, I32, Builder, Value, vector
from treadle.ir.dialects import builtin
from treadle.targets.simt.casts import widen_to_f32
from treadle.targets.simt.small_floats import correct_overflow

FP8_PTX = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
"""The instructions' names of the types."""


def to_fp8(b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
    """Floats as `result`, the code of an 8-bit float; None for sources without an instruction."""
    if source not in ("f16", "bf16", "f32", "f64"):
        return None
    wide = [widen_to_f32(b, v, builtin.f32) for v in values]
    found: list[Value] = []
    for i in range(0, len(wide), 2):
        low, high = wide[i], wide[min(i + 1, len(wide) - 1)]
        text = f"cvt.rn.satfinite.{FP8_PTX[result]}x2.f32 $0, $1, $2;"
        pair = b.asm(text, "=h,f,f", [high, low], I16, side_effect=False, convergent=False)
        found += [b.trunc(pair, I8), b.trunc(b.lshr(pair, Value(I16, "8", 8)), I8)]
    return [correct_overflow(b, v, code, result) for v, code in zip(wide, found, strict=False)]


def from_fp8(b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value]:
    """8-bit floats as f16 or f32."""
    found: list[Value] = []
    for i in range(0, len(values), 2):
        low, high = values[i], values[min(i + 1, len(values) - 1)]
        pair = b.or_(b.zext(low, I16), b.shl(b.zext(high, I16), Value(I16, "8", 8)))
        text = f"cvt.rn.f16x2.{FP8_PTX[source]}x2 $0, $1;"
        both = b.bitcast(b.asm(text, "=r,h", [pair], I32, side_effect=False, convergent=False), vector(2, "half"))
        found += [b.extract(both, 0), b.extract(both, 1)]
    found = found[: len(values)]
    return found if result == "f16" else [b.fpext(v, F32) for v in found]


def cast_fp8(b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
    """Conversions to, and to f16 and f32 from, 8-bit floats; None for others."""
    if result in FP8_PTX:
        return to_fp8(b, values, source, result)
    return from_fp8(b, values, source, result) if source in FP8_PTX and result in ("f16", "f32") else None
