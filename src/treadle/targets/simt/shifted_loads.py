"""Wide loads of elements that begin anywhere (`tile.load .. shifted`): of aligned pieces, shifted into place.

A thread loads the aligned piece that its group begins in, and the next one where the group reaches into that: never a piece without an
element of the view, so that nothing is read of a page that the array has no part of. All loads of a tile are issued before the first is
shifted.
"""

from collections.abc import Callable, Sequence

from treadle.codegen.llvm_text import I32, I64, TRUE, Builder, Value, i32, i64, poison, vector
from treadle.layout.access import CoordinateGroup
from treadle.records import dataclass
from treadle.targets.simt.addresses import Access
from treadle.targets.simt.hooks import Reading
from treadle.targets.simt.types import WORD_BYTES, element_bytes, memory_type

Shift = Callable[[], Value]


@dataclass(frozen=True, slots=True)
class Group:
    """A thread's group of elements: where it begins, i1 that some of it lies in the view, and the bytes of it that do (i32)."""

    address: Value
    has_some: Value
    begin: Value
    end: Value


def group_of(access: Access, group: CoordinateGroup) -> Group:
    """What a group of an access reads."""
    ctx, size = access.ctx, element_bytes(access.view.element)
    b, count = ctx.b, access.plan.vector
    begin, end = i32(0), i32(count * size)
    if access.edge >= 0:
        first = access.coordinate(access.edge, group.coordinates[access.dims.index(access.edge)])
        room = b.sub(access.view.sizes[access.edge], first)
        most = ctx.index_constant(count)
        left = b.intrinsic(f"llvm.smin.{room.type}", room.type, [room, most], pure=True)
        end = b.mul(b.resize(left, I32), i32(size))
        if ctx.ranges.of(access.offsets[access.edge]).low < 0:
            missing = b.intrinsic(f"llvm.smax.{first.type}", first.type, [b.neg(first), ctx.index_constant(0)], pure=True)
            begin = b.mul(b.resize(missing, I32), i32(size))
    return Group(access.address(group), access.predicate(group), begin, end)


def begin_load(access: Access, group: Group, reading: Reading) -> Shift:
    """Issue the loads of one group; what gives its elements, of which those outside of the view are anything."""
    ctx, b = access.ctx, access.ctx.b
    size = access.plan.vector * element_bytes(access.view.element)
    words = size // WORD_BYTES
    kind = vector(words, I32) if words > 1 else I32
    place = b.trunc(b.ptrtoint(group.address, I64), I32)
    first = b.and_(place, i32(size - 1))
    aligned = _rounded_down(b, group.address, size)
    ahead = b.sub(i32(size), first)

    def load(address: Value, condition: Value) -> list[Value]:
        found = ctx.hooks.load_global(b, address, kind, size, None if condition.text == TRUE.text else condition, poison(kind), reading)
        return ctx.unpack(found)

    has_low = b.and_(group.has_some, b.icmp("slt", group.begin, ahead))
    low = load(aligned, group.has_some if group.begin.number == 0 else has_low)
    high = load(b.gep(aligned, i64(size), flags=""), b.and_(group.has_some, b.icmp("sgt", group.end, ahead)))

    def finish() -> Value:
        found = shifted(b, [*low, *high], first)
        whole = found[0] if words == 1 else b.build_vector(found)
        return b.bitcast(whole, vector(access.plan.vector, memory_type(access.view.element)))

    return finish


def _rounded_down(b: Builder, address: Value, size: int) -> Value:
    """The multiple of a power of two that an address follows."""
    space = address.type.partition("addrspace(")[2].rstrip(")") or "0"
    return b.intrinsic(f"llvm.ptrmask.p{space}.i64", address.type, [address, i64(-size)], pure=True)


def shifted(b: Builder, words: Sequence[Value], first: Value) -> list[Value]:
    """The first half of so many words (i32; a power of two), from byte `first` (i32, within that half) on."""
    found, count = list(words), len(words) // 2
    step = count // 2
    while step:
        moves = b.icmp("ne", b.and_(first, i32(WORD_BYTES * step)), i32(0))
        found = [b.select(moves, found[at + step], found[at]) for at in range(count + step)]
        step //= 2
    bits = b.shl(b.and_(first, i32(WORD_BYTES - 1)), i32(3))
    return [b.intrinsic("llvm.fshr.i32", I32, [found[at + 1], found[at], bits], pure=True) for at in range(count)]
