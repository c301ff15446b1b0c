"""`tile.copy "cp_async"` of rows that begin anywhere: no copy of 4 bytes is aligned, so that 16 bytes at a time go through registers.

A thread loads the aligned 16 bytes that its own begin in, and the next ones where they reach into those: never a granule without a byte of
the array. Both are shifted into place, bytes outside of the view are made zero, and 16 bytes are stored to shared memory. As many loads as
registers hold are issued before the first shift, those of copies that stand together alike; all is stored ahead of the wait of their queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.codegen.llvm_text import I32, I64, Builder, Value, i32, i64, vector
from treadle.ir.core import Operation
from treadle.targets.nvidia.global_access import predicated_load
from treadle.targets.simt.context import KernelContext

GRANULE = 16
MOST_LOADED = 8
"""Pieces that a thread holds unshifted, with 8 registers each."""
_WORDS = vector(4, I32)
_QUIET = frozenset({"pipe.slot", "tile.view", "sync.commit"})


@dataclass(frozen=True, slots=True)
class _Loaded:
    """16 bytes on their way to `target`: the words around them, at which byte of those they begin, how many of them are no others'."""

    target: Value
    words: tuple[Value, ...]
    first: Value
    taken: Value


class ShiftedCopies:
    """What was loaded and is not stored yet."""

    def __init__(self) -> None:
        self._loaded: list[_Loaded] = []

    def load(self, ctx: KernelContext, address: Value, target: Value, row: Value, taken: Value, *, read_only: bool) -> None:
        """Load 16 bytes from any `address`, of which the first `taken` (i32, as in all rows) lie in the array if the `row` (i1) does."""
        if len(self._loaded) == MOST_LOADED:
            self.flush(ctx)
        b = ctx.b
        place = b.ptrtoint(address, I64)
        aligned = b.gep(address, b.sub(i64(0), b.and_(place, i64(GRANULE - 1))), flags="")
        first = b.trunc(b.and_(place, i64(GRANULE - 1)), I32)
        nothing = Value(_WORDS, "zeroinitializer")
        low = predicated_load(b, aligned, _WORDS, b.and_(row, b.icmp("sgt", taken, i32(0))), nothing, read_only=read_only, stays=True)
        reaches = b.and_(row, b.icmp("sgt", b.add(first, taken), i32(GRANULE)))
        high = predicated_load(b, b.gep(aligned, i64(GRANULE), flags=""), _WORDS, reaches, nothing, read_only=read_only, stays=True)
        words = tuple(b.extract(half, at) for half in (low, high) for at in range(4))
        self._loaded.append(_Loaded(target, words, first, taken))

    def flush(self, ctx: KernelContext) -> None:
        """Store what was loaded."""
        loaded, self._loaded = self._loaded, []
        for each in loaded:
            words = shifted(ctx.b, each.words, each.first)
            words = cut(ctx.b, words, each.taken) if each.taken.number != GRANULE else words
            ctx.b.store(ctx.b.build_vector(words), each.target, GRANULE)


def stands_among(op: Operation) -> bool:
    """Whether an operation may stand between copies whose loads are issued together."""
    return op.name == "tile.copy" or op.name.startswith("arith.") or op.name in _QUIET


def shifted(b: Builder, words: Sequence[Value], first: Value) -> list[Value]:
    """Four of eight words (i32), from byte `first` (i32, 0 to 15) on."""
    found = list(words)
    for step in (2, 1):
        moves = b.icmp("ne", b.and_(first, i32(4 * step)), i32(0))
        found = [b.select(moves, found[at + step], found[at]) for at in range(4 + step)]
    bits = b.shl(b.and_(first, i32(3)), i32(3))
    return [b.intrinsic("llvm.fshr.i32", I32, [found[at + 1], found[at], bits], pure=True) for at in range(4)]


def cut(b: Builder, words: Sequence[Value], taken: Value) -> list[Value]:
    """Words whose bytes from number `taken` (i32) on are zero."""
    found: list[Value] = []
    for at, word in enumerate(words):
        bits = b.sub(b.shl(taken, i32(3)), i32(32 * at))
        bits = b.intrinsic("llvm.smin.i32", I32, [b.intrinsic("llvm.smax.i32", I32, [bits, i32(0)], pure=True), i32(32)], pure=True)
        rest = b.trunc(b.shl(i64(-1), b.zext(bits, I64)), I32)
        found.append(b.and_(word, b.xor(rest, i32(-1))))
    return found
