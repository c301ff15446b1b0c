"""`TileLayout`: which thread holds which elements of a register tile, and in which register.

A linear layout (Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2", 2025) on a base
tile whose sides are powers of two, with one addition: `repeat` stacks base tiles, so that sides need not be powers of two.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from treadle.errors import InternalError
from treadle.layout.bits import Coordinates, Span, combine, log2_exact, odd_part, pack, power_of_two_part, unpack
from treadle.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bases = tuple[Coordinates, ...]
_NO_LIMIT = 1 << 16
NEW_DIM = -1
"""Stands in an order of dimensions for a new one of extent 1."""


@dataclass(frozen=True, slots=True)
class TileLayout:
    """Map (register, lane, warp) -> coordinates of an element of the tile.

    `register`, `lane`, `warp` hold one basis (a coordinate vector) for each bit of the index; the coordinates are the XOR of the bases
    of the set bits. A zero basis means that both values of the bit hold the same element (replication). Bases that are not zero are
    independent, and together they reach every element of the base tile exactly once. `repeat[d]` base tiles lie along dimension `d`;
    their index (row-major, last dimension fastest) is the slowest part of the register index. Raises `InternalError` otherwise.
    """

    register: Bases
    lane: Bases
    warp: Bases
    repeat: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that the bases make a layout."""
        bases = self.register + self.lane + self.warp
        if not self.repeat or any(count < 1 for count in self.repeat):
            raise InternalError(f"layout with repeat {self.repeat}")
        if any(len(basis) != self.rank or any(value < 0 for value in basis) for basis in bases):
            raise InternalError(f"layout of rank {self.rank} with bases {bases}")
        nonzero = [pack(basis) for basis in bases if any(basis)]
        needed = sum(log2_exact(side) for side in self.base_shape)
        if Span(nonzero).rank != needed or len(nonzero) != needed:
            raise InternalError(f"layout does not reach each element of {self.base_shape} once: {self.to_lists()}")

    # --- extents

    @property
    def rank(self) -> int:
        """Number of dimensions of the tile."""
        return len(self.repeat)

    @property
    def base_shape(self) -> Coordinates:
        """Sides of the base tile, powers of two."""
        reach = [0] * self.rank
        for basis in self.register + self.lane + self.warp:
            for axis, value in enumerate(basis):
                reach[axis] |= value
        return tuple(1 << value.bit_length() for value in reach)

    @property
    def shape(self) -> Coordinates:
        """Sides of the tile."""
        return tuple(side * count for side, count in zip(self.base_shape, self.repeat, strict=True))

    @property
    def num_registers(self) -> int:
        """Elements held by one thread, all repeats and replicas counted."""
        return prod(self.repeat) << len(self.register)

    @property
    def num_lanes(self) -> int:
        """Threads of a warp."""
        return 1 << len(self.lane)

    @property
    def num_warps(self) -> int:
        """Warps that hold the tile."""
        return 1 << len(self.warp)

    # --- the map

    def register_keys(self) -> tuple[int, ...]:
        """Packed coordinates of every register of thread 0, in register order.

        The coordinates of any thread are `key ^ thread_key(lane, warp)`: repeats only set bits above the base tile.
        """
        base = self.base_shape
        bases = [pack(basis) for basis in self.register]
        within = [combine(bases, index) for index in range(1 << len(bases))]
        keys: list[int] = []
        for tile in product(*(range(count) for count in self.repeat)):
            corner = pack([index * side for index, side in zip(tile, base, strict=True)])
            keys.extend(corner | key for key in within)
        return tuple(keys)

    def register_coordinates(self) -> tuple[Coordinates, ...]:
        """Coordinates of every register of thread 0, in register order."""
        return tuple(unpack(key, self.rank) for key in self.register_keys())

    def thread_key(self, lane: int, warp: int) -> int:
        """Packed part of the coordinates that depends on the thread only (XOR with a register's key)."""
        return combine([pack(basis) for basis in self.lane], lane) ^ combine([pack(basis) for basis in self.warp], warp)

    def coordinates(self, register: int, lane: int, warp: int) -> Coordinates:
        """The element that `register` of the thread holds."""
        if not (0 <= register < self.num_registers and 0 <= lane < self.num_lanes and 0 <= warp < self.num_warps):
            raise InternalError(f"no register {register} of lane {lane}, warp {warp} in {self.to_lists()}")
        tile, index = divmod(register, 1 << len(self.register))
        key = combine([pack(basis) for basis in self.register], index) ^ self.thread_key(lane, warp)
        corner = [0] * self.rank
        for axis in reversed(range(self.rank)):
            tile, corner[axis] = divmod(tile, self.repeat[axis])
        return tuple(at * side + value for at, side, value in zip(corner, self.base_shape, unpack(key, self.rank), strict=True))

    def registers(self) -> Iterator[tuple[int, Coordinates]]:
        """`(register, coordinates in thread 0)` in register order."""
        yield from enumerate(self.register_coordinates())

    def coordinate_array(self) -> "NDArray[np.int64]":
        """Coordinates of all registers of all threads, `[warps, lanes, registers, rank]`."""
        import numpy as np  # its import takes longer than most compilations would use it for

        registers = np.array(self.register_coordinates(), dtype=np.int64).reshape(self.num_registers, self.rank)
        lanes = np.array([unpack(self.thread_key(lane, 0), self.rank) for lane in range(self.num_lanes)], dtype=np.int64)
        warps = np.array([unpack(self.thread_key(0, warp), self.rank) for warp in range(self.num_warps)], dtype=np.int64)
        return warps[:, None, None, :] ^ lanes[None, :, None, :] ^ registers[None, None, :, :]

    # --- facts

    def contiguous(self, dim: int) -> int:
        """How many consecutive elements along `dim` every thread holds in consecutive registers (a power of two, aligned)."""
        count = 1
        for basis in self.register:
            if basis != tuple(count if axis == dim else 0 for axis in range(self.rank)):
                break
            count *= 2
        # Aligned only if no other basis touches the low bits.
        others = self.register[log2_exact(count) :] + self.lane + self.warp
        while any(basis[dim] & (count - 1) for basis in others):
            count //= 2
        return count

    def replicated_lane_bits(self) -> int:
        """Mask of the lane bits with a zero basis: a lane with one of them set holds copies and must not store or add again."""
        return sum(1 << bit for bit, basis in enumerate(self.lane) if not any(basis))

    def replicated_warp_bits(self) -> int:
        """Mask of the warp bits with a zero basis, as `replicated_lane_bits`."""
        return sum(1 << bit for bit, basis in enumerate(self.warp) if not any(basis))

    def lane_bits_along(self, dim: int) -> tuple[int, ...]:
        """Lane bits that move along `dim`: a reduction over `dim` combines lanes that differ in them."""
        return tuple(bit for bit, basis in enumerate(self.lane) if basis[dim])

    def warp_bits_along(self, dim: int) -> tuple[int, ...]:
        """Warp bits that move along `dim`."""
        return tuple(bit for bit, basis in enumerate(self.warp) if basis[dim])

    # --- other layouts from this one

    def permute(self, order: Sequence[int]) -> "TileLayout":
        """The layout of the tile whose dimension `i` is this one's dimension `order[i]`, or a new one of extent 1 (`NEW_DIM`).

        Dimensions that the order leaves out have extent 1. No data moves. The register order changes when more than one dimension repeats;
        `permute_registers` says how.
        """
        left_out = set(range(self.rank)) - set(order)
        if sorted({*order, *left_out} - {NEW_DIM}) != list(range(self.rank)) or any(self.shape[axis] != 1 for axis in left_out):
            raise InternalError(f"permutation {order} of {self.shape}")

        def turn(bases: Bases) -> Bases:
            return tuple(tuple(0 if axis == NEW_DIM else basis[axis] for axis in order) for basis in bases)

        repeat = tuple(1 if axis == NEW_DIM else self.repeat[axis] for axis in order)
        return TileLayout(turn(self.register), turn(self.lane), turn(self.warp), repeat)

    def reshape(self, shape: Sequence[int]) -> "TileLayout":
        """The layout of the tile with the same elements, in row-major order, in another shape. Registers keep their numbers.

        Both shapes have sides that are powers of two: `InternalError` otherwise.
        """
        strides = [prod(self.shape[axis + 1 :]) for axis in range(self.rank)]
        sides = tuple(shape)
        if prod(sides) != prod(self.shape) or any(side & (side - 1) for side in (*sides, *self.shape)):
            raise InternalError(f"{self.shape} as {sides}")

        def turn(basis: Coordinates) -> Coordinates:
            place, found = sum(at * stride for at, stride in zip(basis, strides, strict=True)), [0] * len(sides)
            for axis in reversed(range(len(sides))):
                place, found[axis] = divmod(place, sides[axis])
            return tuple(found)

        # What repeats is the slowest part of the register index, its last dimension the fastest.
        repeats = [
            tuple(self.base_shape[axis] << bit if axis == at else 0 for at in range(self.rank))
            for axis in reversed(range(self.rank))
            for bit in range(log2_exact(self.repeat[axis]))
        ]
        register = tuple(turn(basis) for basis in (*self.register, *repeats))
        return TileLayout(register, tuple(map(turn, self.lane)), tuple(map(turn, self.warp)), (1,) * len(sides))

    def permute_registers(self, order: Sequence[int]) -> tuple[int, ...]:
        """For each register of `permute(order)`, the register of this layout with the same value."""
        strides = [prod(self.repeat[axis + 1 :]) for axis in range(self.rank)]
        kept = [axis for axis in order if axis != NEW_DIM]
        corners = product(*(range(self.repeat[axis]) for axis in kept))
        size = 1 << len(self.register)
        tiles = (sum(at * strides[axis] for at, axis in zip(corner, kept, strict=True)) for corner in corners)
        return tuple(tile * size + index for tile in tiles for index in range(size))

    def with_unit_dim(self, dim: int) -> "TileLayout":
        """The layout of the tile reduced along `dim` to extent 1, kept by every thread that held a part of it.

        Lanes and warps along `dim` become replicas; registers along `dim` fall together (`unit_dim_registers`). Raises
        `InternalError` where a basis moves along `dim` and another dimension at once: no such layout of the result exists.
        """

        def flatten(bases: Bases) -> Bases:
            for basis in bases:
                if basis[dim] and any(value for axis, value in enumerate(basis) if axis != dim):
                    raise InternalError(f"basis {basis} cannot be reduced along dimension {dim}")
            return tuple(tuple(0 if axis == dim else value for axis, value in enumerate(basis)) for basis in bases)

        return TileLayout(
            tuple(basis for basis in flatten(self.register) if any(basis)),
            flatten(self.lane),
            flatten(self.warp),
            tuple(1 if axis == dim else count for axis, count in enumerate(self.repeat)),
        )

    def unit_dim_registers(self, dim: int) -> tuple[int, ...]:
        """For each register of this layout, the register of `with_unit_dim(dim)` that it is reduced into."""
        target = {coordinates: register for register, coordinates in self.with_unit_dim(dim).registers()}
        return tuple(
            target[tuple(0 if axis == dim else value for axis, value in enumerate(coordinates))] for _, coordinates in self.registers()
        )

    def to_lists(self) -> list[list[list[int]] | list[int]]:
        """`[register, lane, warp, repeat]` as nested lists, the canonical text form."""
        sides = [[list(basis) for basis in bases] for bases in (self.register, self.lane, self.warp)]
        return [*sides, list(self.repeat)]


def broadcast_registers(source: TileLayout, result: TileLayout) -> tuple[int, ...] | None:
    """Register map of a broadcast that moves nothing: for each register of `result`, the register of `source` with its value.

    `source` has extent 1 wherever its shape differs from `result`'s. None when some thread does not hold what it needs.
    """
    if source.rank != result.rank or any(have not in (1, want) for have, want in zip(source.shape, result.shape, strict=True)):
        raise InternalError(f"{source.shape} does not broadcast to {result.shape}")
    keep = pack([(1 << 31) - 1 if side > 1 else 0 for side in source.shape])
    for have, want in ((source.lane, result.lane), (source.warp, result.warp)):
        if len(have) != len(want) or any(pack(a) != pack(b) & keep for a, b in zip(have, want, strict=True)):
            return None
    where = {key: register for register, key in reversed(list(enumerate(source.register_keys())))}
    found = [where.get(key & keep) for key in result.register_keys()]
    return tuple(register for register in found if register is not None) if None not in found else None


def blocked(shape: Sequence[int], order: Sequence[int], elements_per_thread: int = 1, lanes: int = 32, warps: int = 4) -> TileLayout:
    """A layout for coalesced access: `order` lists the dimensions, fastest first.

    Each thread holds up to `elements_per_thread` (a power of two) neighbours along `order[0]`; lanes and then warps fill the fastest
    dimension first; what is left of the power-of-two part of each side goes to registers, the odd factor to `repeat`. Threads in
    excess of the elements hold replicas.
    """
    if any(log2_exact(count) < 0 for count in (elements_per_thread, lanes, warps)) or any(side < 1 for side in shape):
        raise InternalError(f"blocked layout of {tuple(shape)} with {elements_per_thread} elements, {lanes} lanes, {warps} warps")
    rank = len(shape)
    left = [power_of_two_part(side) for side in shape]
    taken = [1] * rank

    def take(limit: int, dims: Sequence[int]) -> list[Coordinates]:
        bases: list[Coordinates] = []
        for dim in dims:
            while left[dim] > 1 and len(bases) < limit:
                bases.append(tuple(taken[dim] if axis == dim else 0 for axis in range(rank)))
                taken[dim] *= 2
                left[dim] //= 2
        return bases

    def padded(bases: list[Coordinates], count: int) -> Bases:
        return (*bases, *[(0,) * rank] * (count - len(bases)))

    vector = take(log2_exact(elements_per_thread), order[:1])
    lane = padded(take(log2_exact(lanes), order), log2_exact(lanes))
    warp = padded(take(log2_exact(warps), order), log2_exact(warps))
    rest = take(_NO_LIMIT, order)
    return TileLayout((*vector, *rest), lane, warp, tuple(odd_part(side) for side in shape))
