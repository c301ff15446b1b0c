"""Choosing register layouts by what the accesses cost: candidates and costs, pure functions over layouts.

Costs are clocks of one warp's load-store path: one an access issued, one a 32-byte sector and one a 128-byte line of global memory touched,
one a wavefront of shared memory served. They are for comparing layouts of one tile, not for predicting time.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod

from treadle.layout.access import global_access, global_vector_width, plan_conflicts, possible_addresses
from treadle.layout.bits import log2_exact, odd_part, power_of_two_part
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import Bases, TileLayout
from treadle.machine import SharedBanks
from treadle.records import dataclass

SECTOR_BYTES = 32
LINE_BYTES = 128
BARRIER_COST = 32
PLACE_COST = 4
"""Of a coordinate that a thread takes apart: where it holds few, they are kept from step to step."""
IMPOSSIBLE = 1 << 40
_ALL = 1 << 20


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """A global load or store of a tile: the tile dimension of unit stride (None: all strided), the widest access, bytes of an element.
    `is_folded`: of a folded view, where a thread takes each of its coordinates apart.
    """

    contiguous: int | None
    vector: int
    element_bytes: int
    is_folded: bool = False


@lru_cache(maxsize=4096)
def global_cost(layout: TileLayout, access: GlobalAccess) -> int:
    """Accesses issued plus sectors and lines touched by one warp that moves its part of a tile."""
    if access.contiguous is None:
        return layout.num_registers * (1 + 2 * layout.num_lanes)
    dim = access.contiguous
    vector = global_vector_width(layout, dim, access.vector)
    plan = global_access(layout, dim, vector)
    first = plan.groups[0].coordinates
    sectors: set[tuple[int, ...]] = set()
    lines: set[tuple[int, ...]] = set()
    for lane in range(layout.num_lanes):
        at = list(first)
        for bit, basis in enumerate(plan.lane_bits):
            if lane >> bit & 1:
                at = [a ^ b for a, b in zip(at, basis, strict=True)]
        byte = at[dim] * access.element_bytes
        sectors.add((*at[:dim], byte // SECTOR_BYTES, *at[dim + 1 :]))
        lines.add((*at[:dim], byte // LINE_BYTES, *at[dim + 1 :]))
    held = [len({group.coordinates[axis] for group in plan.groups}) for axis in range(layout.rank)] if access.is_folded else []
    return len(plan.groups) * (1 + len(sectors) + len(lines)) + PLACE_COST * sum(held)


@lru_cache(maxsize=4096)
def shared_cost(layout: TileLayout, shared: SharedLayout, element_bytes: int, banks: SharedBanks) -> int:
    """Wavefronts for one warp between registers and shared memory; `IMPOSSIBLE` where the layouts give no addresses."""
    plan = possible_addresses(layout, shared, element_bytes)
    if isinstance(plan, str):
        return IMPOSSIBLE
    extra = plan_conflicts(plan, element_bytes, banks.count, banks.bytes)
    phase = max(1, banks.count * banks.bytes // max(plan.vector * element_bytes, banks.bytes))
    return len(plan.groups) * (1 + max(1, layout.num_lanes // phase)) + extra


def conversion_cost(source: TileLayout, target: TileLayout, element_bytes: int, banks: SharedBanks) -> int:
    """What moving a tile from one layout to another costs: nothing within a thread, else through shared memory with its barriers."""
    if source == target:
        return 0
    if source.lane == target.lane and source.warp == target.warp:
        return 0
    width = banks.count * banks.bytes
    lanes = source.num_lanes
    moved = (source.num_registers + target.num_registers) * lanes * element_bytes
    return 2 * moved // width + BARRIER_COST


class Sides:
    """The powers of two in the sides of a tile, dealt out to registers, lanes and warps bit by bit; `left` are those that are not yet."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.left = [power_of_two_part(side) for side in shape]
        self._taken = [1] * len(shape)

    def take(self, dim: int, bits: int) -> list[tuple[int, ...]]:
        """Bases of the next bits along a dimension, fewer where it has no more."""
        bases: list[tuple[int, ...]] = []
        while self.left[dim] > 1 and len(bases) < bits:
            bases.append(tuple(self._taken[dim] if axis == dim else 0 for axis in range(len(self.left))))
            self._taken[dim] *= 2
            self.left[dim] //= 2
        return bases

    def padded(self, bases: Sequence[tuple[int, ...]], bits: int) -> Bases:
        """So many bases: those that are missing are copies."""
        return (*bases, *[(0,) * len(self.left)] * (bits - len(bases)))


def blocked_tile(
    shape: Sequence[int],
    order: Sequence[int],
    per_thread: Sequence[int],
    lanes: int,
    warps: int,
    *,
    lanes_fast: int = _ALL,
    warp_order: Sequence[int] | None = None,
) -> TileLayout:
    """Every thread holds a block of `per_thread` elements (powers of two, one a dimension); `order` lists the dimensions, fastest first.

    At most `lanes_fast` lanes lie along the fastest dimension before the others are filled; warps fill dimensions in `warp_order`
    (default `order`). What is left goes to registers, odd factors to repeats; threads in excess hold copies.
    """
    sides = Sides(shape)

    def spread(dims: Sequence[int], bits: int) -> list[tuple[int, ...]]:
        bases: list[tuple[int, ...]] = []
        for dim in dims:
            bases += sides.take(dim, bits - len(bases))
        return bases

    register = [basis for dim in order for basis in sides.take(dim, log2_exact(per_thread[dim]))]
    lane_bits, warp_bits = log2_exact(lanes), log2_exact(warps)
    lane = sides.take(order[0], min(lane_bits, log2_exact(min(lanes_fast, lanes))))
    lane += spread((*order[1:], order[0]), lane_bits - len(lane))
    warp = spread(warp_order or order, warp_bits)
    register += spread(order, _ALL)
    return TileLayout(
        tuple(register), sides.padded(lane, lane_bits), sides.padded(warp, warp_bits), tuple(odd_part(side) for side in shape)
    )


def dimension_order(rank: int, fastest: int | None) -> tuple[int, ...]:
    """Dimensions fastest first: the given one, then the others from the last to the first."""
    rest = [dim for dim in reversed(range(rank)) if dim != fastest]
    return (*([] if fastest is None else [fastest]), *rest)


def per_thread_block(shape: Sequence[int], dim: int, count: int) -> tuple[int, ...]:
    """A block of `count` elements along one dimension, cut to the power of two that divides its side."""
    return tuple(min(count, power_of_two_part(side)) if axis == dim else 1 for axis, side in enumerate(shape))


@lru_cache(maxsize=1024)
def coalesced(shape: tuple[int, ...], access: GlobalAccess, lanes: int, warps: int) -> TileLayout:
    """The plain coalesced layout of a global access: `vector` neighbours a thread, lanes and warps along the contiguous dimension first.

    Where the tile has fewer vectors than there are threads, narrower vectors use them all.
    """
    order = dimension_order(len(shape), access.contiguous)
    vector = min(access.vector, max(1, prod(map(power_of_two_part, shape)) // (lanes * warps)))
    return blocked_tile(shape, order, per_thread_block(shape, order[0], vector), lanes, warps)


@lru_cache(maxsize=1024)
def candidates(
    shape: tuple[int, ...], access: GlobalAccess, lanes: int, warps: int, *, transposes: bool = False, reduced: frozenset[int] = frozenset()
) -> tuple[TileLayout, ...]:
    """Layouts worth comparing for a tile that is accessed so.

    With `transposes`, blocks that are vectors along the contiguous dimension and along the next one. `reduced`: dimensions that a reduction
    runs over; warps may then fill the other dimensions first.
    """
    rank = len(shape)
    order = dimension_order(rank, access.contiguous)
    found = {coalesced(shape, access, lanes, warps): None}
    if access.is_folded and access.contiguous is not None:
        block = per_thread_block(shape, order[0], access.vector)
        for few in (lanes // 2, lanes // 4):
            found[blocked_tile(shape, order, block, lanes, warps, lanes_fast=few, warp_order=(*order[1:], order[0]))] = None
    if reduced:
        kept = [dim for dim in order if dim not in reduced]
        across = (*kept, *(dim for dim in order if dim in reduced))
        for vector in sorted({access.vector, 1}):
            block = per_thread_block(shape, order[0], vector)
            found[blocked_tile(shape, order, block, lanes, warps, warp_order=across)] = None
            for few in (lanes // 4, lanes // 16):
                found[blocked_tile(shape, order, block, lanes, warps, lanes_fast=max(1, few), warp_order=across)] = None
    if transposes and rank >= 2:
        wide = max(1, 16 // access.element_bytes)
        fast, slow = order[0], order[1]
        vectors = sorted({access.vector, max(1, access.vector // 2)}, reverse=True)
        for vector, slow_count, lanes_fast in product(vectors, (wide, max(1, wide // 2), 1), (1, 2, 4, 8, 16, lanes)):
            block = [1] * rank
            block[fast] = min(vector, power_of_two_part(shape[fast]))
            block[slow] = min(slow_count, power_of_two_part(shape[slow]))
            if block[fast] * block[slow] * lanes * warps <= prod(shape) and lanes_fast <= lanes:
                found[blocked_tile(shape, order, tuple(block), lanes, warps, lanes_fast=lanes_fast)] = None
    return tuple(found)


def reduce_cost(layout: TileLayout, axis: int) -> int:
    """What reducing a tile along an axis costs beyond the arithmetic in registers: shuffles, and barriers where warps share the axis."""
    results = layout.num_registers
    for basis in layout.register:
        results //= 2 if basis[axis] else 1
    results = max(1, results // layout.repeat[axis])
    shuffles = 2 * results * sum(1 for basis in layout.lane if basis[axis])
    across = any(basis[axis] for basis in layout.warp)
    return layout.num_registers + shuffles + ((2 * BARRIER_COST + 4 * results) if across else 0)


def access_layout(layout: TileLayout, access: GlobalAccess, lanes: int, warps: int, banks: SharedBanks) -> tuple[TileLayout, int]:
    """The layout to load or store a tile of `layout` in, and the cost: itself, or a coalesced one where the conversion pays."""
    direct = global_cost(layout, access)
    target = coalesced(layout.shape, access, lanes, warps)
    through = global_cost(target, access) + conversion_cost(layout, target, access.element_bytes, banks)
    return (target, through) if through < direct else (layout, direct)
