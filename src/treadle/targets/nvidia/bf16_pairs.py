"""f32 to bf16 and back, two elements at a time.

The instruction that rounds one element runs on a unit of few lanes, that for two does not. The two stay in one word: widening a half is a
shift or a mask, and whoever stores or multiplies the word finds it whole.
"""

from collections.abc import Sequence

from treadle.codegen.llvm_text import BF16, F32, I32, Value, i32, vector
from treadle.targets.simt.context import KernelContext

_PAIR = vector(2, BF16)


def bf16_pairs(ctx: KernelContext, values: Sequence[Value], source: str, result: str) -> list[Value] | None:
    """The elements in the other type; None for other types, an odd number of elements, and halves that do not lie in words."""
    pairs = list(zip(values[::2], values[1::2], strict=False))
    if len(values) % 2:
        return None
    if (source, result) == ("f32", "bf16"):
        return [half for pair in pairs for half in ctx.unpack(_rounded(ctx, *pair))]
    words = [ctx.vector_of(pair) for pair in pairs]
    if (source, result) != ("bf16", "f32"):
        return None
    found: list[Value] = []
    for word in words:
        if word is None:
            return None
        bits = ctx.b.bitcast(word, I32)
        found += [ctx.b.bitcast(ctx.b.shl(bits, i32(16)), F32), ctx.b.bitcast(ctx.b.and_(bits, i32(-1 << 16)), F32)]
    return found


def _rounded(ctx: KernelContext, low: Value, high: Value) -> Value:
    word = ctx.b.asm("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], I32, side_effect=False, convergent=False)
    return ctx.b.bitcast(word, _PAIR)
