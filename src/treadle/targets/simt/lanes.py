"""Values of any width through 32-bit shuffles."""

from collections.abc import Callable

from treadle.codegen.llvm_text import I32, I64, Builder, Value, bit_width, i64

Shuffle = Callable[[Value], Value]


def through_lanes(b: Builder, value: Value, shuffle: Shuffle) -> Value:
    """`value` (1 to 64 bits) sent through a shuffle of i32."""
    width = bit_width(value.type)
    if width == 64:
        bits = b.bitcast(value, I64)
        low = b.zext(shuffle(b.trunc(bits, I32)), I64)
        high = b.zext(shuffle(b.trunc(b.lshr(bits, i64(32)), I32)), I64)
        return b.bitcast(b.or_(low, b.shl(high, i64(32))), value.type)
    whole = b.bitcast(value, f"i{width}")
    moved = shuffle(b.zext(whole, I32) if width < 32 else whole)
    return b.bitcast(b.trunc(moved, f"i{width}") if width < 32 else moved, value.type)
