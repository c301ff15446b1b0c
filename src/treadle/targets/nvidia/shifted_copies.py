"""`tile.copy "cp_async"` through registers: of rows that begin anywhere, where no copy of 4 bytes is aligned, and of f32 rounded to tf32.

A thread loads the aligned 16 bytes that its own begin in, and the next ones where they reach into those: never a granule without a byte of
the array. Both are shifted into place, bytes outside of the view are made zero, and 16 bytes are stored to shared memory. What is rounded
is loaded as it lies. As many loads as registers hold are issued before the first of them is waited for, those of copies that stand together
alike; all is stored ahead of the wait of their queue.
"""

from collections.abc import Callable, Sequence

from treadle.codegen.llvm_text import F32, I32, I64, Builder, Value, i32, i64, vector
from treadle.ir.core import Operation
from treadle.records import dataclass
from treadle.targets.nvidia.global_access import predicated_load
from treadle.targets.nvidia.tf32 import rounded
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.hooks import Reading
from treadle.targets.simt.shifted_loads import shifted

GRANULE = 16
MOST_LOADED = 112
"""Words that a thread holds: 14 pieces, with their addresses nearly all registers of a producer. One piece more is waited for apart."""
_WORDS = vector(4, I32)
_QUIET = frozenset({"pipe.slot", "tile.view", "tile.lookup", "sync.commit"})


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A piece on its way to `target`: what was loaded for it, and what makes the words to be stored of that."""

    target: Value
    words: tuple[Value, ...]
    finish: Callable[[KernelContext, Sequence[Value]], Sequence[Value]]


class ShiftedCopies:
    """What was loaded and is not stored yet."""

    def __init__(self) -> None:
        self._loaded: list[_Loaded] = []

    def load(self, ctx: KernelContext, address: Value, target: Value, row: Value, taken: Value, *, reading: Reading) -> None:
        """Load 16 bytes from any `address`, of which the first `taken` (i32, as in all rows) lie in the array if the `row` (i1) does."""
        self._make_room(ctx, 8)
        b = ctx.b
        place = b.ptrtoint(address, I64)
        aligned = b.gep(address, b.sub(i64(0), b.and_(place, i64(GRANULE - 1))), flags="")
        first = b.trunc(b.and_(place, i64(GRANULE - 1)), I32)
        nothing = Value(_WORDS, "zeroinitializer")
        has_low = b.and_(row, b.icmp("sgt", taken, i32(0)))
        low = predicated_load(b, aligned, _WORDS, has_low, nothing, reading, stays=True)
        has_high = b.and_(row, b.icmp("sgt", b.add(first, taken), i32(GRANULE)))
        high = predicated_load(b, b.gep(aligned, i64(GRANULE), flags=""), _WORDS, has_high, nothing, reading, stays=True)

        def finish(ctx: KernelContext, words: Sequence[Value]) -> Sequence[Value]:
            found = shifted(ctx.b, words, first)
            return found if taken.number == GRANULE else cut(ctx.b, found, taken)

        words = tuple(b.extract(half, at) for half in (low, high) for at in range(4))
        self._loaded.append(_Loaded(target, words, finish))

    def load_rounded(
        self, ctx: KernelContext, address: Value, target: Value, row: Value, taken: Value, width: int, *, reading: Reading
    ) -> None:
        """Load `width` aligned bytes of f32, to be rounded to tf32; `row` and `taken` as for `load`."""
        self._make_room(ctx, width // 4)
        b = ctx.b
        kind = I32 if width == 4 else vector(width // 4, I32)
        nothing = i32(0) if width == 4 else Value(kind, "zeroinitializer")
        inside = b.and_(row, b.icmp("sgt", taken, i32(0)))
        found = predicated_load(b, address, kind, inside, nothing, reading, stays=True)
        words = (found,) if width == 4 else tuple(b.extract(found, at) for at in range(width // 4))

        def finish(ctx: KernelContext, words: Sequence[Value]) -> Sequence[Value]:
            is_whole = width == 4 or taken.number == width
            kept = words if is_whole else cut(ctx.b, words, taken)
            return [ctx.b.bitcast(value, I32) for value in rounded(ctx, [ctx.b.bitcast(word, F32) for word in kept])]

        self._loaded.append(_Loaded(target, words, finish))

    def flush(self, ctx: KernelContext) -> None:
        """Store what was loaded."""
        loaded, self._loaded = self._loaded, []
        for each in loaded:
            words = each.finish(ctx, each.words)
            ctx.b.store(words[0] if len(words) == 1 else ctx.b.build_vector(words), each.target, 4 * len(words))

    def _make_room(self, ctx: KernelContext, words: int) -> None:
        if sum(len(each.words) for each in self._loaded) + words > MOST_LOADED:
            self.flush(ctx)


def stands_among(op: Operation) -> bool:
    """Whether an operation may stand between copies whose loads are issued together."""
    return op.name == "tile.copy" or op.name.startswith("arith.") or op.name in _QUIET


def cut(b: Builder, words: Sequence[Value], taken: Value) -> list[Value]:
    """Words whose bytes from number `taken` (i32) on are zero."""
    found: list[Value] = []
    for at, word in enumerate(words):
        bits = b.sub(b.shl(taken, i32(3)), i32(32 * at))
        bits = b.intrinsic("llvm.smin.i32", I32, [b.intrinsic("llvm.smax.i32", I32, [bits, i32(0)], pure=True), i32(32)], pure=True)
        rest = b.trunc(b.shl(i64(-1), b.zext(bits, I64)), I32)
        found.append(b.and_(word, b.xor(rest, i32(-1))))
    return found
