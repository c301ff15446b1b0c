"""How a register tile is read from and written to memory: vectors, address arithmetic, bank conflicts.

An access plan splits the address of an element into a part of the thread, computed once, and a constant of the register, so that an
emitter spends one or no instruction on each access.
"""

from collections.abc import Sequence
from functools import lru_cache

from treadle.errors import InternalError
from treadle.layout.bits import Coordinates, Span, combine, log2_exact, pack, unpack
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """One access of a thread: `registers` in the order of their addresses, and the constants of the address of the first."""

    registers: tuple[int, ...]
    constant_xor: int
    constant_add: int


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """Offsets (in elements) of every element of a tile in a shared buffer.

    With X = XOR of `lane_bits[i]` and `warp_bits[i]` and S = sum of `lane_adds[i]` and `warp_adds[i]` over the set bits i of the lane
    and of the warp, the first element of a group lies at `(X ^ constant_xor) + S + constant_add`, the others behind it. Bits of
    `constant_xor` outside `thread_mask` can be added just as well, so they fit the immediate of an instruction.
    """

    lane_bits: tuple[int, ...]
    warp_bits: tuple[int, ...]
    lane_adds: tuple[int, ...]
    warp_adds: tuple[int, ...]
    groups: tuple[RegisterGroup, ...]
    vector: int

    @property
    def thread_mask(self) -> int:
        """Bits of the offset that the XOR part of a thread may set."""
        mask = 0
        for value in self.lane_bits + self.warp_bits:
            mask |= value
        return mask

    def thread_offset(self, lane: int, warp: int) -> tuple[int, int]:
        """`(X, S)` of a thread."""
        adds = [value for bit, value in enumerate(self.lane_adds) if lane >> bit & 1]
        adds += [value for bit, value in enumerate(self.warp_adds) if warp >> bit & 1]
        return combine(self.lane_bits, lane) ^ combine(self.warp_bits, warp), sum(adds)

    def offset(self, group: RegisterGroup, lane: int, warp: int) -> int:
        """Offset of the first element of a group in a thread."""
        xor, add = self.thread_offset(lane, warp)
        return (xor ^ group.constant_xor) + add + group.constant_add


class _Addresses:
    """Splits packed coordinates into the XOR part (within the base tile) and the added part (which base tile) of an offset."""

    def __init__(self, shared: SharedLayout) -> None:
        self.rank = shared.rank
        self.within = pack([side - 1 for side in shared.base_shape])
        self.shifts = [log2_exact(side) for side in shared.base_shape]
        self.strides = shared.repeat_strides()
        self.span = Span(map(pack, shared.offset))

    def parts(self, key: int) -> tuple[int, int]:
        """`(xor, add)` of the offset of packed coordinates."""
        tiles = zip(unpack(key, self.rank), self.shifts, self.strides, strict=True)
        return self.span.split(key & self.within)[0], sum((at >> shift) * stride for at, shift, stride in tiles)


def _plan(tile: TileLayout, shared: SharedLayout, offsets: Sequence[int]) -> tuple[AddressPlan, list[tuple[int, int]]] | str:
    """The plan without groups, and `(xor, add)` of each register; or why there is none."""
    if tile.rank != shared.rank or len(offsets) != tile.rank:
        raise InternalError(f"tile of {tile.shape} at {tuple(offsets)} in a buffer of {shared.shape}")
    for at, side, base, whole in zip(offsets, tile.shape, tile.base_shape, shared.shape, strict=True):
        if at < 0 or at + side > whole or at % base:
            raise InternalError(f"tile of {tile.shape} (base {tile.base_shape}) at {tuple(offsets)} in a buffer of {shared.shape}")
    addresses = _Addresses(shared)
    start = pack(offsets)
    keys = [key + start for key in tile.register_keys()]
    lanes, warps = [pack(basis) for basis in tile.lane], [pack(basis) for basis in tile.warp]
    # Which base tile a thread is in is added, which is right only while no two parts touch the same bit of it.
    taken = 0
    for key in (*lanes, *warps):
        above = key & ~addresses.within
        if above & taken:
            return f"tile {tile.to_lists()} has no additive addresses in {shared.to_lists()}"
        taken |= above
    if any(key & taken for key in keys):
        return f"tile {tile.to_lists()} has no additive addresses in {shared.to_lists()}"
    lane_parts, warp_parts = [addresses.parts(key) for key in lanes], [addresses.parts(key) for key in warps]
    plan = AddressPlan(
        tuple(xor for xor, _ in lane_parts),
        tuple(xor for xor, _ in warp_parts),
        tuple(add for _, add in lane_parts),
        tuple(add for _, add in warp_parts),
        (),
        1,
    )
    return plan, [addresses.parts(key) for key in keys]


def _grouped(values: Sequence[int], vector: int) -> list[tuple[int, ...]] | None:
    """Register groups whose values are `vector` aligned consecutive numbers, by first register; None where that does not come out."""
    groups: dict[int, dict[int, int]] = {}
    for register, value in enumerate(values):
        members = groups.setdefault(value // vector, {})
        if value % vector in members:
            return None
        members[value % vector] = register
    if any(len(members) != vector for members in groups.values()):
        return None
    return [tuple(members[at] for at in range(vector)) for members in groups.values()]


def _widest(plan: AddressPlan, parts: Sequence[tuple[int, int]], limit: int) -> tuple[int, list[tuple[int, ...]]]:
    """The widest vector of at most `limit` elements, and the registers of each access."""
    adds = [add for _, add in parts] + list(plan.lane_adds + plan.warp_adds)
    offsets = [xor + add for xor, add in parts]  # the added part is a multiple of the base tile: bits do not meet
    vector = 1 << (limit.bit_length() - 1)
    while vector > 1:
        low = vector - 1
        if not plan.thread_mask & low and not any(add & low for add in adds):
            groups = _grouped(offsets, vector)
            if groups is not None:
                return vector, groups
        vector //= 2
    return 1, [(register,) for register in range(len(parts))]


def vector_width(tile: TileLayout, shared: SharedLayout, element_bytes: int, max_bytes: int = 16) -> int:
    """Elements of the widest access (up to `max_bytes`) that every thread can make: registers at consecutive aligned offsets."""
    return address_plan(tile, shared, element_bytes, max_bytes).vector


def address_plan(
    tile: TileLayout, shared: SharedLayout, element_bytes: int, max_bytes: int = 16, offsets: Sequence[int] | None = None
) -> AddressPlan:
    """The accesses that move `tile` to or from `shared`, at the static `offsets` (multiples of the tile's base shape; default 0).

    Vectors are as wide as the layouts and `max_bytes` allow. Replicas are part of the plan; who must not store is
    `TileLayout.replicated_lane_bits` and `replicated_warp_bits`. Raises `InternalError` where `possible_addresses` has none.
    """
    plan = possible_addresses(tile, shared, element_bytes, max_bytes, offsets)
    if isinstance(plan, str):
        raise InternalError(plan)
    return plan


def possible_addresses(
    tile: TileLayout, shared: SharedLayout, element_bytes: int, max_bytes: int = 16, offsets: Sequence[int] | None = None
) -> AddressPlan | str:
    """`address_plan`, or why there is none: lanes or warps of a layout that mixes bits within a dimension would step from base tile to
    base tile.
    """
    return _possible_addresses(tile, shared, element_bytes, max_bytes, (0,) * tile.rank if offsets is None else tuple(offsets))


@lru_cache(maxsize=512)
def _possible_addresses(
    tile: TileLayout, shared: SharedLayout, element_bytes: int, max_bytes: int, offsets: tuple[int, ...]
) -> AddressPlan | str:
    found = _plan(tile, shared, offsets)
    if isinstance(found, str):
        return found
    plan, parts = found
    vector, groups = _widest(plan, parts, max(1, max_bytes // element_bytes))
    return AddressPlan(
        plan.lane_bits,
        plan.warp_bits,
        plan.lane_adds,
        plan.warp_adds,
        tuple(RegisterGroup(registers, *parts[registers[0]]) for registers in groups),
        vector,
    )


def bank_conflicts(
    tile: TileLayout, shared: SharedLayout, element_bytes: int, vector: int | None = None, banks: int = 32, bank_bytes: int = 4
) -> int:
    """Extra wavefronts of one warp for moving its part of the tile: 0 is free of conflicts.

    An access is served in phases of as many consecutive lanes as fill all banks once (32 lanes of 4 bytes, 16 of 8, 8 of 16; narrower
    ones like 4). Each phase takes as many wavefronts as the most wanted bank has different words; lanes that want the same word share
    it. `vector` is the access width in elements, by default the widest.
    """
    plan = address_plan(tile, shared, element_bytes, 16 if vector is None else vector * element_bytes)
    if vector is not None and vector != plan.vector:
        raise InternalError(f"accesses of {vector} elements where {plan.vector} is the widest up to that")
    return plan_conflicts(plan, element_bytes, banks, bank_bytes)


def plan_conflicts(plan: AddressPlan, element_bytes: int, banks: int, bank_bytes: int) -> int:
    """Extra wavefronts of one warp for all accesses of a plan, as `bank_conflicts` counts them."""
    row = banks * bank_bytes
    bytes_each = plan.vector * element_bytes
    lanes = 1 << len(plan.lane_bits)
    phase = min(lanes, max(1, row // max(bytes_each, bank_bytes)))
    if not any(plan.lane_adds[: log2_exact(phase)]):
        # The words of a phase are a linear space (shifted): all banks that are wanted at all are wanted equally often.
        words = [bits * element_bytes // bank_bytes for bits in plan.lane_bits[: log2_exact(phase)]]
        words += [1 << bit for bit in range(log2_exact(max(bytes_each // bank_bytes, 1)))]
        each = 1 << (Span(words).rank - Span([word % banks for word in words]).rank)
        return (each - 1) * (lanes // phase) * len(plan.groups)
    threads = [plan.thread_offset(lane, 0) for lane in range(lanes)]
    known: dict[tuple[int, int], int] = {}  # by the constants that decide: those within a row of banks
    extra = 0
    for group in plan.groups:
        key = (group.constant_xor * element_bytes % row, group.constant_add * element_bytes % row)
        if key not in known:
            starts = [((xor ^ group.constant_xor) + add + group.constant_add) * element_bytes for xor, add in threads]
            known[key] = sum(
                wavefronts(starts[first : first + phase], bytes_each, banks, bank_bytes) - 1 for first in range(0, lanes, phase)
            )
        extra += known[key]
    return extra


def wavefronts(starts: Sequence[int], width: int, banks: int, bank_bytes: int) -> int:
    """Different words wanted of the most wanted bank, for accesses of `width` bytes at byte offsets `starts`."""
    words = {word for start in starts for word in range(start // bank_bytes, (start + width - 1) // bank_bytes + 1)}
    wanted = [0] * banks
    for word in words:
        wanted[word % banks] += 1
    return max(wanted)


@dataclass(frozen=True, slots=True)
class CoordinateGroup:
    """One global access of a thread: `registers` lie at consecutive indices of the contiguous dimension, from `coordinates` on."""

    registers: tuple[int, ...]
    coordinates: Coordinates


@dataclass(frozen=True, slots=True)
class GlobalPlan:
    """Coordinates of every access of a thread: per dimension, the XOR of the group's constant and the bases of the set thread bits.

    With `is_disjoint` no two parts touch the same bit, so they can be added instead.
    """

    lane_bits: tuple[Coordinates, ...]
    warp_bits: tuple[Coordinates, ...]
    groups: tuple[CoordinateGroup, ...]
    vector: int
    is_disjoint: bool


@lru_cache(maxsize=512)
def global_vector_width(tile: TileLayout, contiguous_dim: int, limit: int) -> int:
    """Elements of the widest access along `contiguous_dim`, at most `limit`, that the registers allow."""
    vector = 1 << (max(limit, 1).bit_length() - 1)
    while vector > 1 and _global_groups(tile, contiguous_dim, vector) is None:
        vector //= 2
    return vector


def _global_groups(tile: TileLayout, dim: int, vector: int) -> list[tuple[int, ...]] | None:
    """Registers of each access of `vector` elements along `dim`, or None where they do not line up."""
    if any(basis[dim] & (vector - 1) for basis in tile.lane + tile.warp):
        return None
    groups: dict[Coordinates, dict[int, int]] = {}
    for register, coordinates in tile.registers():
        at = coordinates[dim]
        members = groups.setdefault((*coordinates[:dim], at // vector, *coordinates[dim + 1 :]), {})
        if at % vector in members:
            return None
        members[at % vector] = register
    if any(len(members) != vector for members in groups.values()):
        return None
    return [tuple(members[at] for at in range(vector)) for members in groups.values()]


@lru_cache(maxsize=512)
def global_access(tile: TileLayout, contiguous_dim: int, vector: int) -> GlobalPlan:
    """Accesses of `vector` elements along `contiguous_dim`; raises `InternalError` where the registers do not line up for that."""
    groups: list[tuple[int, ...]] | None = None
    if vector == 1:
        groups = [(register,) for register in range(tile.num_registers)]
    elif log2_exact(vector) > 0:
        groups = _global_groups(tile, contiguous_dim, vector)
    if groups is None:
        raise InternalError(f"accesses of {vector} elements along dimension {contiguous_dim} of {tile.to_lists()}")
    where = tile.register_coordinates()
    taken, disjoint = 0, True
    for basis in tile.lane + tile.warp:
        disjoint = disjoint and not taken & pack(basis)
        taken |= pack(basis)
    disjoint = disjoint and not any(key & taken for key in tile.register_keys())
    return GlobalPlan(tile.lane, tile.warp, tuple(CoordinateGroup(group, where[group[0]]) for group in groups), vector, disjoint)
