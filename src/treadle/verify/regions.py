"""Pieces of memory: what two accesses have in common, to the byte, and what two warps of a team have in common, to the element."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Attribute, SSAValue
from treadle.ir.dialects import builtin
from treadle.layout.bits import Span, pack
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Box = tuple[tuple[int, int], ...]
"""First and last (exclusive) element along every dimension of the whole buffer, slots included."""


def element_bytes(element: Attribute) -> int:
    """Bytes of an element in memory; i1 takes one, index four."""
    match element:
        case builtin.IntegerType():
            return max(1, element.width.data // 8)
        case builtin.IndexType():
            return 4
        case _:
            width = getattr(element, "bitwidth", None)
            if not isinstance(width, int):
                raise InternalError(f"element type {element} has no width")
            return max(1, width // 8)


class Buffer:
    """A shared buffer: `first` is its byte offset (None: memory of its own), `size` its bytes. Compared by identity."""

    __slots__ = ("element_bytes", "first", "layout", "name", "size", "value")

    def __init__(self, value: SSAValue, layout: SharedLayout, element_bytes: int, first: int | None, name: str) -> None:
        self.value, self.layout, self.element_bytes, self.first, self.name = value, layout, element_bytes, first, name
        self.size = layout.size * element_bytes

    @staticmethod
    def of(alloc: tile.AllocOp) -> "Buffer":
        """The buffer that an operation allocates."""
        first = None if alloc.byte_offset is None else alloc.byte_offset.value.data
        layout = tile.shared_layout_of(alloc.result)
        name = f"%{alloc.result.name_hint}" if alloc.result.name_hint else "a buffer"
        return Buffer(alloc.result, layout, element_bytes(tile.memref_type(alloc.result).element_type), first, name)


class Region:
    """A box of a buffer, or of a global array (`buffer` is then the array's pointer). Interned: equal regions are the same object."""

    __slots__ = ("box", "buffer", "slots")

    def __init__(self, buffer: Buffer | SSAValue, box: Box, slots: tuple[int, ...] = ()) -> None:
        self.buffer, self.box, self.slots = buffer, box, slots

    def describe(self) -> str:
        """What messages call it."""
        if isinstance(self.buffer, Buffer):
            return self.buffer.name + (f", slot {', '.join(map(str, self.slots))}" if self.slots else "")
        return f"%{self.buffer.name_hint or 'array'} (global)"


def boxes_meet(one: Box, other: Box) -> bool:
    """Whether two boxes of one buffer have an element in common."""
    for (a, b), (c, d) in zip(one, other, strict=True):  # noqa: SIM110 - asked for every pair of regions: a generator takes twice as long
        if a >= d or c >= b:
            return False
    return True


def box_within(inner: Box, outer: Box) -> bool:
    """Whether `outer` holds all of `inner`."""
    for (a, b), (c, d) in zip(inner, outer, strict=True):  # noqa: SIM110 - the same
        if a < c or b > d:
            return False
    return True


def subtract(box: Box, taken: Box) -> list[Box]:
    """What is left of a box without another, as disjoint boxes."""
    if not boxes_meet(box, taken):
        return [box]
    left: list[Box] = []
    rest = list(box)
    for dim, ((first, last), (low, high)) in enumerate(zip(box, taken, strict=True)):
        if first < low:
            left.append((*rest[:dim], (first, low), *rest[dim + 1 :]))
        if high < last:
            left.append((*rest[:dim], (high, last), *rest[dim + 1 :]))
        rest[dim] = (max(first, low), min(last, high))
    return left


def is_covered(box: Box, parts: Sequence[Box]) -> bool:
    """Whether the union of `parts` holds all of `box`."""
    left = [box]
    for part in parts:
        if not boxes_meet(box, part):
            continue
        left = [piece for old in left for piece in subtract(old, part)]
        if not left:
            return True
    return False


class Overlaps:
    """Which regions have bytes in common, or hold one another; every pair is looked at once."""

    def __init__(self) -> None:
        self._inside: dict[tuple[Region, Region], bool] = {}
        self._met: dict[tuple[Region, Region], bool] = {}
        self._bytes: dict[Region, int] = {}

    def __call__(self, one: Region, other: Region) -> bool:
        """Whether two regions share a byte."""
        found = self._met.get((one, other))
        if found is None:
            found = self._met[one, other] = self._met[other, one] = one is other or self._meet(one, other)
        return found

    def within(self, inner: Region, outer: Region) -> bool:
        """Whether `outer` holds all of `inner`, a region of the same buffer."""
        found = self._inside.get((inner, outer))
        if found is None:
            found = self._inside[inner, outer] = inner is outer or box_within(inner.box, outer.box)
        return found

    def _meet(self, one: Region, other: Region) -> bool:
        a, b = one.buffer, other.buffer
        if a is b:
            return len(one.box) != len(other.box) or boxes_meet(one.box, other.box)
        if not isinstance(a, Buffer) or not isinstance(b, Buffer) or a.first is None or b.first is None:
            return False
        if a.first >= b.first + b.size or b.first >= a.first + a.size:
            return False
        return bool(self.bytes_of(one) & self.bytes_of(other))

    def bytes_of(self, region: Region) -> int:
        """The bytes of a region of shared memory, one bit each."""
        mask = self._bytes.get(region)
        if mask is None:
            buffer = region.buffer
            if not isinstance(buffer, Buffer):
                raise InternalError("bytes of a global array")
            size = buffer.layout.size
            if prod(last - first for first, last in region.box) == size:
                # Elements have places of their own: all of them fill the buffer.
                mask = self._bytes[region] = (1 << size * buffer.element_bytes) - 1 << (buffer.first or 0)
                return mask
            import numpy as np  # its import takes longer than most proofs, which do not need it

            axes = [np.arange(first, last, dtype=np.int64) for first, last in region.box]
            coordinates = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
            flags = np.zeros(size, dtype=np.uint8)
            flags[buffer.layout.offset_array(coordinates).reshape(-1)] = 1
            packed = np.packbits(np.repeat(flags, buffer.element_bytes), bitorder="little")
            mask = int.from_bytes(packed.tobytes(), "little") << (buffer.first or 0)
            self._bytes[region] = mask
        return mask


class Part(Record):
    """Which elements of a region each warp of a team touches: those of a register layout at `offsets`, or those of one kind of copy."""

    layout: TileLayout | None
    offsets: tuple[int, ...]
    kind: object = None


Warps = tuple[range, range]
"""Two sets of warps of a team."""


class Owners:
    """Which warps of a team have bytes in common in two accesses to shared memory, whatever their buffers and layouts."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], bool] = {}
        self._owners: dict[tuple[Region, TileLayout, bool], NDArray[np.uint64]] = {}

    def meet(
        self, one: Region, part: Part, writes: bool, other: Region, other_part: Part, other_writes: bool, between: Warps | None = None
    ) -> bool:
        """Whether two different warps of a team touch one byte. Parts of queued copies meet all but themselves. `between`: the first warp
        is one of these, the second one of those; None: any of the team.
        """
        key = (one, part, writes, other, other_part, other_writes, between)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._meet(one, part, writes, other, other_part, other_writes, between)
        return found

    def _meet(
        self, one: Region, part: Part, writes: bool, other: Region, other_part: Part, other_writes: bool, between: Warps | None
    ) -> bool:
        a, b = one.buffer, other.buffer
        if a is b and (found := warps_meet(part, writes, other_part, other_writes, between)) is not None:
            return found
        if not isinstance(a, Buffer) or not isinstance(b, Buffer) or part.layout is None or other_part.layout is None:
            return True
        first, last = max(a.first or 0, b.first or 0), min((a.first or 0) + a.size, (b.first or 0) + b.size)
        if first >= last:
            return False
        import numpy as np

        ours = self._of(one, a, part.layout, writes)[first - (a.first or 0) : last - (a.first or 0)]
        theirs = self._of(other, b, other_part.layout, other_writes)[first - (b.first or 0) : last - (b.first or 0)]
        if between is not None:
            ours, theirs = (bits & np.uint64(sum(1 << warp for warp in those)) for bits, those in zip((ours, theirs), between, strict=True))
        is_one_warp = (ours == theirs) & (ours & (ours - np.uint64(1)) == 0)
        return bool(np.any((ours != 0) & (theirs != 0) & ~is_one_warp))

    def _of(self, region: Region, buffer: Buffer, layout: TileLayout, writes: bool) -> "NDArray[np.uint64]":
        """For each byte of the buffer a set of warps, one bit each."""
        key = (region, layout, writes)
        found = self._owners.get(key)
        if found is None:
            import numpy as np

            corner = np.array([first for first, _ in region.box], dtype=np.int64)
            elements = np.zeros(buffer.layout.size, dtype=np.uint64)
            held = layout.coordinate_array().reshape(layout.num_warps, -1, layout.rank)
            for warp in _acting(layout, writes):
                coordinates = np.repeat(corner[None, :], held.shape[1], axis=0)
                coordinates[:, len(corner) - layout.rank :] += held[warp]
                elements[buffer.layout.offset_array(coordinates)] |= np.uint64(1 << warp)
            found = self._owners[key] = np.repeat(elements, buffer.element_bytes)
        return found


@lru_cache(maxsize=4096)
def warps_meet(one: Part, one_writes: bool, other: Part, other_writes: bool, between: Warps | None = None) -> bool | None:
    """Whether two different warps of a team have a common element in the two parts of one buffer; None where bytes must be compared.

    Of warps that hold the same elements the first one writes. `between`: as in `Owners.meet`.
    """
    if one.layout is None or other.layout is None:
        # How a copy deals out its elements is the emitter's; the same kind of copy deals the same way.
        return one.layout is not None or other.layout is not None or one.kind is None or one != other
    a, b = one.layout, other.layout
    if one.offsets != other.offsets or one.kind != other.kind or a.repeat != b.repeat or a.base_shape != b.base_shape:
        return None
    span = Span(pack(basis) for basis in (*a.register, *a.lane, *b.register, *b.lane) if any(basis))
    owners = [(warp, a.thread_key(0, warp)) for warp in _acting(a, one_writes)]
    others = [(warp, b.thread_key(0, warp)) for warp in _acting(b, other_writes)]
    if between is not None:
        owners = [(warp, key) for warp, key in owners if warp in between[0]]
        others = [(warp, key) for warp, key in others if warp in between[1]]
    return any(w != v and x ^ y in span for (w, x), (v, y) in product(owners, others))


def _acting(layout: TileLayout, writes: bool) -> list[int]:
    idle = sum(1 << bit for bit, basis in enumerate(layout.warp) if not any(basis))
    return [warp for warp in range(layout.num_warps) if not (writes and warp & idle)]
