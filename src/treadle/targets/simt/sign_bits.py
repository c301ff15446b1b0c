"""The sign of one float on another, by its bits.

LLVM moves a rounding to f16 from behind `llvm.copysign` to its operand, and then finds no instruction for an f16 with the sign of an f32
(scalars on gfx11 and gfx12).
"""

from treadle.codegen.llvm_text import Builder, Value, integer

_WIDTHS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def copy_sign(b: Builder, x: Value, sign: Value) -> Value:
    """|x| with the sign of `sign`, which is of the same type."""
    width = _WIDTHS[x.type]
    kind, top = f"i{width}", 1 << (width - 1)
    magnitude = b.and_(b.bitcast(x, kind), integer(kind, top - 1))
    return b.bitcast(b.or_(magnitude, b.and_(b.bitcast(sign, kind), integer(kind, top))), x.type)
