"""How contraction operands get into shared memory: by which path, and in which shared layout. Pure functions over records."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from treadle.errors import InternalError
from treadle.layout.bits import log2_exact, power_of_two_part
from treadle.layout.linear_copy import linear_copy
from treadle.layout.shared_layout import SharedLayout, dense, row_major, swizzled, xor_swizzled
from treadle.layout.tile_layout import TileLayout
from treadle.machine import BulkTensorCopy, Queue, SharedBanks
from treadle.plan.access import AccessFacts
from treadle.plan.layout_choice import IMPOSSIBLE, GlobalAccess, candidates, global_cost, shared_cost


def bulk_refusal(facts: AccessFacts, contiguous: int | None, rules: BulkTensorCopy) -> str | None:
    """Why a descriptor copy cannot move this box, None where it can.

    `contiguous`: the view dimension of unit stride along which the tile extends. Sizes may be dynamic; strides may be too where
    enough is known about their divisors.
    """
    if len(facts.dims) > rules.max_rank:
        return f"rank {len(facts.dims)} is beyond {rules.max_rank}"
    if facts.varies:
        return "its sizes differ from workgroup to workgroup"
    if contiguous is None:
        return "no dimension of the tile has unit stride"
    if facts.base_align % rules.base_align_bytes:
        return f"base is aligned to {facts.base_align} bytes, not {rules.base_align_bytes}"
    if any(dim.size == 0 for dim in facts.dims):
        return "the array is empty"
    if facts.dims[contiguous].offset_divisor * facts.element_bytes % rules.base_align_bytes:
        return f"tiles begin between multiples of {rules.base_align_bytes} bytes"
    for index, dim in enumerate(facts.dims):
        if dim.size is None and facts.index_bits > 32:
            return f"dynamic size of dimension {index} may be beyond {rules.max_extent}"
        if dim.size is not None and dim.size > rules.max_extent:
            return f"size {dim.size} of dimension {index} is beyond {rules.max_extent}"
        if index == contiguous:
            continue
        if dim.extent > rules.max_box_extent:
            return f"box extent {dim.extent} of dimension {index} is beyond {rules.max_box_extent}"
        if dim.size == 1 and dim.extent == 1:
            continue
        if dim.stride is None:
            if dim.stride_divisor * facts.element_bytes % rules.pitch_align_bytes:
                return f"pitch of dimension {index} is dynamic and not known to be a multiple of {rules.pitch_align_bytes} bytes"
        elif dim.stride <= 0:
            return f"stride {dim.stride} of dimension {index} ({'broadcast' if dim.stride == 0 else 'backwards'})"
        elif (pitch := dim.stride * facts.element_bytes) % rules.pitch_align_bytes:
            return f"pitch {pitch} bytes is not a multiple of {rules.pitch_align_bytes}"
        elif pitch > rules.max_pitch_bytes:
            return f"pitch {pitch} bytes of dimension {index} is beyond {rules.max_pitch_bytes}"
    return _overlap(facts)


def piece_width(facts: AccessFacts, contiguous: int | None, queue: Queue) -> int:
    """The widest of the queue's pieces, in bytes, that threads can copy this box in, each aligned to its own width; an element where rows
    are shifted on the way, 0 where nothing can.

    `contiguous`: as for `bulk_refusal`.
    """
    if contiguous is None:
        return 0
    size = facts.element_bytes
    moved = [facts.base_align, facts.dims[contiguous].offset_divisor * size]
    moved += [dim.stride_divisor * size for at, dim in enumerate(facts.dims) if at != contiguous and dim.size != 1]
    aligned = next((width for width in queue.piece_bytes if width >= size and not any(each % width for each in moved)), 0)
    return aligned or (size if queue.shifts else 0)


def _overlap(facts: AccessFacts) -> str | None:
    known = sorted((dim.stride, dim.size or 1, index) for index, dim in enumerate(facts.dims) if dim.stride and dim.size != 1)
    for (inner_stride, inner_size, inner), (outer_stride, _, outer) in pairwise(known):
        if outer_stride < inner_stride * inner_size:
            return f"dimensions {inner} and {outer} overlap"
    return None


def linear_refusal(facts: AccessFacts, contiguous: int | None, vector_bytes: int, lane_bytes: Sequence[int]) -> str | None:
    """Why copies whose lanes fill neighbouring places cannot bring this box, None where they can.

    `contiguous` as for `bulk_refusal`; `vector_bytes`: what may be moved at once. Places within a tile, and along the contiguous
    dimension, are 31-bit distances in bytes.
    """
    if contiguous is None:
        return "no dimension of the tile has unit stride"
    if vector_bytes < min(lane_bytes):
        return f"{vector_bytes} bytes at once are fewer than the {min(lane_bytes)} of a lane"
    if facts.dims[contiguous].size is None:
        return f"the size of dimension {contiguous} is dynamic"
    reach = (facts.dims[contiguous].size or 0) * facts.element_bytes
    for index, dim in enumerate(facts.dims):
        if index == contiguous or dim.extent == 1:
            continue
        if dim.stride is None or dim.stride < 0:
            return f"the stride of dimension {index} is {'dynamic' if dim.stride is None else dim.stride}"
        reach += dim.extent * dim.stride * facts.element_bytes
    return None if reach < 1 << 31 else f"a tile spans {reach} bytes"


def fits_swizzle(row_elements: int, element_bytes: int, swizzles: Sequence[int]) -> bool:
    """Whether rows of that many elements fill one of the swizzles."""
    return any(row_elements * element_bytes % width == 0 for width in swizzles)


def descriptor_layout(shape: Sequence[int], order: Sequence[int], element_bytes: int, swizzles: Sequence[int]) -> SharedLayout:
    """The layout of a buffer that copies and matrix instructions reach through descriptors: the widest swizzle that its rows fill."""
    row_bytes = shape[order[0]] * element_bytes
    for width in swizzles:
        if row_bytes % width == 0:
            return swizzled(shape, order, element_bytes, width)
    raise InternalError(f"rows of {row_bytes} bytes fit none of the swizzles {tuple(swizzles)}")


def box_layout(shape: Sequence[int], order: Sequence[int], element_bytes: int, rules: BulkTensorCopy) -> SharedLayout | None:
    """The layout of a buffer between descriptor copies and threads: the widest swizzle that its rows fill, else rows one after another;
    None where they are no whole pieces of a copy. Rows of an odd number of pieces are in different banks without a swizzle.
    """
    row_bytes = shape[order[0]] * element_bytes
    if fits_swizzle(shape[order[0]], element_bytes, rules.swizzle_bytes):
        return descriptor_layout(shape, order, element_bytes, rules.swizzle_bytes)
    return None if row_bytes % rules.base_align_bytes or shape[order[0]] > rules.max_box_extent else row_major(shape, order)


def buffer_layouts(shape: tuple[int, ...], order: tuple[int, ...], element_bytes: int) -> Iterator[SharedLayout]:
    """Dense and xor-swizzled layouts of one order, simplest first."""
    if (plain := dense(shape, order)) is None:
        return
    yield plain
    row = power_of_two_part(shape[order[0]])
    rows = power_of_two_part(shape[order[1]])
    for vector_bytes in (16, 8):
        vector = vector_bytes // element_bytes
        for phases_log in range(1, 5):
            for per_phase in (1, 2, 4, 8):
                phases = 1 << phases_log
                if vector >= 1 and vector * phases <= row and per_phase * phases <= rows:
                    yield xor_swizzled(shape, order, vector, per_phase, phases)


@lru_cache(maxsize=256)
def register_buffer(
    shape: tuple[int, int],
    access: GlobalAccess,
    fragment: TileLayout,
    fragments_per_tile: int,
    lanes: int,
    warps: int,
    banks: SharedBanks,
) -> tuple[SharedLayout, int]:
    """The shared layout for an operand that is read back as register fragments, and its cost for one warp.

    Both orders and all xor swizzles are compared by what the store (in the best register layout of the global load) and the loads of all
    fragments cost together; the simplest of the cheapest wins.
    """
    element_bytes = access.element_bytes
    fetch = sorted(
        ((global_cost(r, access), at, r) for at, r in enumerate(candidates(shape, access, lanes, warps, transposes=True))),
        key=lambda entry: entry[:2],
    )
    # No store takes fewer wavefronts than its bytes fill; no access is free to issue.
    warp_bytes = -(-shape[0] * shape[1] * element_bytes // warps)
    least_store = warp_bytes // (banks.count * banks.bytes) + warp_bytes // (lanes * 16)
    fastest = access.contiguous if access.contiguous is not None else 1
    found: list[tuple[int, int, SharedLayout]] = []
    for first in (fastest, 1 - fastest):
        for layout in buffer_layouts(shape, (first, 1 - first), element_bytes):
            found.append((shared_cost(fragment, layout, element_bytes, banks) * fragments_per_tile, len(found), layout))
    best: SharedLayout | None = None
    best_cost = IMPOSSIBLE
    for load, _, layout in sorted(found, key=lambda entry: entry[:2]):
        for global_, _, registers in fetch:
            if load + global_ + least_store >= best_cost:
                break
            cost = load + global_ + shared_cost(registers, layout, element_bytes, banks)
            if cost < best_cost:
                best, best_cost = layout, cost
    if best is None:
        raise InternalError(f"no shared layout serves a {shape} operand")
    return best, best_cost


@lru_cache(maxsize=256)
def linear_buffer(
    shape: tuple[int, int],
    inner: int,
    element_bytes: int,
    fragment: TileLayout,
    piece: int,
    lanes: int,
    warps: int,
    banks: SharedBanks,
) -> SharedLayout | None:
    """The shared layout for an operand that lanes fill in order, by pieces of `piece` elements along dimension `inner`, and that is read
    back as register fragments: the simplest of those whose reads cost least. None where lanes cannot fill it so.
    """
    fitting = [
        layout
        for layout in buffer_layouts(shape, (inner, 1 - inner), element_bytes)
        if linear_copy(layout, inner, piece, lanes, warps) is not None
    ]
    return min(fitting, key=lambda layout: shared_cost(fragment, layout, element_bytes, banks), default=None)


def multiply_add_k_step(k: int, element_bytes: int) -> int:
    """How many k a multiply-add step takes at once: 16 bytes of an operand, from 4 to 8, never more than there are."""
    wanted = max(4, min(8, 16 // element_bytes))
    return min(wanted, 1 << log2_exact(power_of_two_part(k)))
