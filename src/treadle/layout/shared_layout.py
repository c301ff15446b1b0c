"""`SharedLayout`: where in a shared-memory buffer each element of a tile lies.

Offsets count elements. Swizzles are XOR bases; those of `swizzled` are the ones that NVIDIA's tensor copies and matrix instructions
use (PTX ISA, "Shared Memory Matrix Layout"): 16-byte chunks exchanged by the bits of the row.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from treadle.errors import InternalError
from treadle.layout.bits import Coordinates, Span, combine, log2_exact, pack, power_of_two_part, unpack
from treadle.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bases = tuple[Coordinates, ...]
CHUNK_BYTES = 16
LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """Map offset (in elements) -> coordinates, one to one.

    `offset` holds one basis for each bit of the offset within the base tile; coordinates are the XOR of the bases of the set bits.
    Base tiles (`repeat[d]` of them along dimension `d`) follow one another in the order of `repeat_order`. Raises `InternalError`
    where the bases do not reach every element of the base tile once.
    """

    offset: Bases
    repeat: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that the map is one to one."""
        if not self.repeat or any(count < 1 for count in self.repeat):
            raise InternalError(f"shared layout with repeat {self.repeat}")
        if any(len(basis) != self.rank or any(value < 0 for value in basis) for basis in self.offset):
            raise InternalError(f"shared layout of rank {self.rank} with bases {self.offset}")
        needed = sum(log2_exact(side) for side in self.base_shape)
        if len(self.offset) != needed or Span(map(pack, self.offset)).rank != needed:
            raise InternalError(f"shared layout does not reach each element of {self.base_shape} once: {self.to_lists()}")

    @property
    def rank(self) -> int:
        """Number of dimensions of the buffer."""
        return len(self.repeat)

    @property
    def base_shape(self) -> Coordinates:
        """Sides of the base tile, powers of two."""
        return _reach(self.offset, len(self.repeat))

    @property
    def base_size(self) -> int:
        """Elements of a base tile."""
        return 1 << len(self.offset)

    @property
    def shape(self) -> Coordinates:
        """Sides of the buffer."""
        return tuple(side * count for side, count in zip(self.base_shape, self.repeat, strict=True))

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return prod(self.repeat) * self.base_size

    def stacked(self, count: int) -> "SharedLayout":
        """`count` of these buffers as slots of a new leading dimension, one whole slot after the other."""
        return _with_slots(self, count)

    def slot(self, dims: int = 1) -> "SharedLayout":
        """The layout of one slot: the opposite of `stacked`, `dims` times. Raises `InternalError` where leading dimensions are no slots."""
        return _without_slots(self, dims)

    @property
    def repeat_order(self) -> tuple[int, ...]:
        """Dimensions in the order in which base tiles follow one another, slowest first.

        The last two places belong to the dimension of the first offset bit and to the one that the offset enters next: column blocks
        come one after the other, each of them whole. All other dimensions (slots, batches) are slower, in row-major order.
        """
        entered: list[int] = []
        for basis in self.offset:
            entered.extend(axis for axis, value in enumerate(basis) if value and axis not in entered)
        entered = entered[:2]
        return (*(axis for axis in range(self.rank) if axis not in entered), *entered)

    def repeat_strides(self) -> Coordinates:
        """Elements between neighbouring base tiles along each dimension."""
        strides = [0] * self.rank
        step = self.base_size
        for axis in reversed(self.repeat_order):
            strides[axis] = step
            step *= self.repeat[axis]
        return tuple(strides)

    def offset_of(self, coordinates: Sequence[int]) -> int:
        """The offset of an element; raises `InternalError` outside the buffer."""
        if len(coordinates) != self.rank or any(not 0 <= at < side for at, side in zip(coordinates, self.shape, strict=True)):
            raise InternalError(f"element {tuple(coordinates)} of a buffer of shape {self.shape}")
        parts = [divmod(at, side) for at, side in zip(coordinates, self.base_shape, strict=True)]
        within, _ = Span(map(pack, self.offset)).split(pack([rest for _, rest in parts]))
        return within + sum(tile * stride for (tile, _), stride in zip(parts, self.repeat_strides(), strict=True))

    def offset_array(self, coordinates: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Offsets of many elements: `[..., rank]` to `[...]`. Elements outside the buffer are not looked for."""
        import numpy as np

        span = Span(map(pack, self.offset))
        result = np.zeros(coordinates.shape[:-1], dtype=np.int64)
        for axis, side in enumerate(self.base_shape):
            for bit in range(log2_exact(side)):
                result ^= (coordinates[..., axis] >> bit & 1) * span.split(pack(_unit(self.rank, axis, 1 << bit)))[0]
        for axis, (side, stride) in enumerate(zip(self.base_shape, self.repeat_strides(), strict=True)):
            result += coordinates[..., axis] // side * stride
        return result

    def coords_of(self, offset: int) -> Coordinates:
        """The element at an offset; raises `InternalError` outside the buffer."""
        if not 0 <= offset < self.size:
            raise InternalError(f"offset {offset} of a buffer of {self.size} elements")
        tile, within = divmod(offset, self.base_size)
        corner = [0] * self.rank
        for axis in reversed(self.repeat_order):
            tile, at = divmod(tile, self.repeat[axis])
            corner[axis] = at * self.base_shape[axis]
        key = combine([pack(basis) for basis in self.offset], within)
        return tuple(at + value for at, value in zip(corner, unpack(key, self.rank), strict=True))

    def to_lists(self) -> list[list[list[int]] | list[int]]:
        """`[offset, repeat]` as nested lists, the canonical text form."""
        return [[list(basis) for basis in self.offset], list(self.repeat)]


def _unit(rank: int, axis: int, value: int) -> Coordinates:
    return tuple(value if d == axis else 0 for d in range(rank))


def _check(shape: Sequence[int], order: Sequence[int]) -> None:
    if sorted(order) != list(range(len(shape))) or any(side < 1 for side in shape):
        raise InternalError(f"shared layout of {tuple(shape)} in order {tuple(order)}")


def _stacked(shape: Sequence[int], dims: Sequence[int], sides: Sequence[int]) -> tuple[Bases, tuple[int, ...]]:
    """Bases of a base tile that enters `dims` one after the other for `sides[dim]` elements each, and the repeats to fill `shape`."""
    rank = len(shape)
    bases = tuple(_unit(rank, dim, 1 << bit) for dim in dims for bit in range(log2_exact(sides[dim])))
    return bases, tuple(side // base for side, base in zip(shape, sides, strict=True))


def row_major(shape: Sequence[int], order: Sequence[int]) -> SharedLayout:
    """Dense, no swizzle; `order` lists the dimensions, fastest first. Raises `InternalError` where `dense` has no layout."""
    layout = dense(shape, order)
    if layout is None:
        raise InternalError(f"dense layout of {tuple(shape)} in order {tuple(order)}")
    return layout


def dense(shape: Sequence[int], order: Sequence[int]) -> SharedLayout | None:
    """`row_major`; None for orders that repeats cannot follow: sides that are no powers of two, and slow dimensions out of turn."""
    _check(shape, order)
    layout = SharedLayout(*_stacked(shape, order, _dense_sides(shape, order)))
    stepping = [dim for dim in layout.repeat_order if layout.repeat[dim] > 1]
    return layout if stepping == [dim for dim in reversed(order) if layout.repeat[dim] > 1] else None


def _dense_sides(shape: Sequence[int], order: Sequence[int], together: int = 1) -> list[int]:
    """Sides of the base tile: powers of two until a dimension repeats; the first `together` dimensions are in it in any case.

    A repeated dimension is slower than all bits of the base tile, so dimensions slower than it must repeat as well.
    """
    sides = [1] * len(shape)
    for place, dim in enumerate(order):
        sides[dim] = power_of_two_part(shape[dim])
        if place + 1 >= together and any(sides[done] != shape[done] for done in order[: place + 1]):
            break
    return sides


def _xor_rows(plain: Bases, column: int, row: int, pairs: Sequence[tuple[int, int]]) -> Bases:
    """XOR column bit into each row bit: for `(row value, column value)` the bases of that row also move along the column."""
    changed: list[Coordinates] = []
    for basis in plain:
        extra = sum(column_value for row_value, column_value in pairs if basis[row] == row_value)
        changed.append(tuple(value ^ extra if axis == column else value for axis, value in enumerate(basis)))
    return tuple(changed)


def swizzled(shape: Sequence[int], order: Sequence[int], element_bytes: int, row_bytes: int) -> SharedLayout:
    """The 32, 64 and 128-byte swizzles of tensor copies and warpgroup matrix instructions; `order` fastest first.

    A row of `row_bytes` holds 16-byte chunks. Chunk bits 0-2 ^= row bits 0-2 (128 bytes), chunk bits 0-1 ^= row bits 1-2 (64 bytes),
    chunk bit 0 ^= row bit 2 (32 bytes). A wider tile is several column blocks one after the other, each of `rows` x `row_bytes`. The
    buffer must be aligned to 8 x `row_bytes`. Raises `InternalError` where the inner extent is not a multiple of `row_bytes`.
    """
    _check(shape, order)
    if row_bytes not in (32, 64, 128) or log2_exact(element_bytes) < 0 or len(shape) < 2:
        raise InternalError(f"{row_bytes}-byte swizzle of {tuple(shape)} with {element_bytes}-byte elements")
    column, row = order[0], order[1]
    width = row_bytes // element_bytes
    if shape[column] % width:
        raise InternalError(f"{row_bytes}-byte swizzle needs an inner extent that is a multiple of {width}, got {shape[column]}")
    rank = len(shape)
    rows = power_of_two_part(shape[row])
    if rows < 8 and rows != shape[row]:
        raise InternalError(f"{row_bytes}-byte swizzle of {shape[row]} rows: a power of two or a multiple of 8 is needed")
    sides = [1] * rank
    sides[column], sides[row] = width, rows
    if rows == shape[row]:
        # Whole column blocks, and what is slower still, are powers of two: they can be bits of the base tile.
        sides[column] = power_of_two_part(shape[column])
        whole = sides[column] == shape[column]
        for dim in order[2:]:
            if not whole:
                break
            sides[dim] = power_of_two_part(shape[dim])
            whole = sides[dim] == shape[dim]
    block = [width if dim == column else side for dim, side in enumerate(sides)]
    inner, _ = _stacked(shape, (column, row), block)
    blocks = tuple(_unit(rank, column, width << bit) for bit in range(log2_exact(sides[column] // width)))
    outer, _ = _stacked(shape, order[2:], sides)
    repeat = tuple(side // base for side, base in zip(shape, sides, strict=True))
    chunk = CHUNK_BYTES // element_bytes
    chunk_bits = log2_exact(row_bytes // CHUNK_BYTES)
    pairs = [(1 << (3 - chunk_bits + bit), chunk << bit) for bit in range(chunk_bits)]
    return SharedLayout(_xor_rows(inner, column, row, pairs) + blocks + outer, repeat)


def xor_swizzled(shape: Sequence[int], order: Sequence[int], vector_elements: int, per_phase: int, max_phase: int) -> SharedLayout:
    """Row-major with vectors of a row exchanged: vector index ^= (row // `per_phase`) % `max_phase`; `order` fastest first.

    All three parameters are powers of two, and a row holds at least `vector_elements * max_phase` elements in its power-of-two part
    (rows that are longer by an odd factor become column blocks). Raises `InternalError` otherwise.
    """
    _check(shape, order)
    plain = SharedLayout(*_stacked(shape, order, _dense_sides(shape, order, together=2)))
    if any(log2_exact(value) < 0 for value in (vector_elements, per_phase, max_phase)) or len(shape) < 2:
        raise InternalError(f"xor swizzle of {tuple(shape)} with ({vector_elements}, {per_phase}, {max_phase})")
    column, row = order[0], order[1]
    if vector_elements * max_phase > plain.base_shape[column]:
        raise InternalError(f"xor swizzle over {vector_elements * max_phase} elements in rows of {plain.base_shape[column]}")
    rows = plain.base_shape[row]
    if rows < per_phase * max_phase and rows != shape[row]:
        raise InternalError(f"xor swizzle with a period of {per_phase * max_phase} rows over {shape[row]} rows")
    pairs = [(per_phase << bit, vector_elements << bit) for bit in range(log2_exact(max_phase))]
    return SharedLayout(_xor_rows(plain.offset, column, row, pairs), plain.repeat)


def line_swizzled(shape: Sequence[int], order: Sequence[int], element_bytes: int, per_phase: int) -> SharedLayout | None:
    """Row-major with the 16-byte chunks of a 128-byte line exchanged, which may hold several rows: the bits of a chunk in its line ^= those
    of row // `per_phase`; `order` fastest first. Rows that are `per_phase` apart, up to 8 of them, are then in different banks.

    None where rows are longer than a line or hold no whole chunks, where they are no powers of two, or too few.
    """
    _check(shape, order)
    column, row = order[0], order[1]
    chunk, line = CHUNK_BYTES // element_bytes, LINE_BYTES // element_bytes
    width, rows = shape[column], power_of_two_part(shape[row])
    if log2_exact(width) < 0 or not chunk <= width <= line or rows < per_phase * (LINE_BYTES // CHUNK_BYTES) or per_phase * width < line:
        return None
    plain = SharedLayout(*_stacked(shape, order, _dense_sides(shape, order, together=2)))
    chunks = plain.offset[log2_exact(chunk) : log2_exact(line)]
    changed: list[Coordinates] = []
    for basis in plain.offset:
        extra = next((c for bit, c in enumerate(chunks) if basis[row] == per_phase << bit), _unit(len(shape), column, 0))
        changed.append(tuple(a ^ b for a, b in zip(basis, extra, strict=True)))
    return SharedLayout(tuple(changed), plain.repeat)


@lru_cache(maxsize=256)
def _reach(offset: Bases, rank: int) -> Coordinates:
    reach = [0] * rank
    for basis in offset:
        for axis, value in enumerate(basis):
            reach[axis] |= value
    return tuple(1 << value.bit_length() for value in reach)


@lru_cache(maxsize=256)
def _with_slots(layout: SharedLayout, count: int) -> SharedLayout:
    return SharedLayout(tuple((0, *basis) for basis in layout.offset), (count, *layout.repeat))


@lru_cache(maxsize=256)
def _without_slots(layout: SharedLayout, dims: int) -> SharedLayout:
    if any(any(basis[:dims]) for basis in layout.offset):
        raise InternalError(f"the first {dims} dimensions of {layout.to_lists()} are no slots")
    return SharedLayout(tuple(basis[dims:] for basis in layout.offset), layout.repeat[dims:])
