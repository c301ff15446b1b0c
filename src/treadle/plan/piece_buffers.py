"""In which shared layout threads copy operands, piece by piece, to where the vector units' multiply-adds read them. Pure functions."""

from functools import lru_cache

from treadle.layout.access import possible_addresses, wavefronts
from treadle.layout.bits import power_of_two_part
from treadle.layout.shared_layout import SharedLayout, line_swizzled
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.layout.turned_copy import turned_pieces
from treadle.machine import SharedBanks
from treadle.plan.layout_choice import IMPOSSIBLE, shared_cost
from treadle.plan.staging import buffer_layouts


def _spread(layout: SharedLayout, fragment: TileLayout, element_bytes: int, banks: SharedBanks) -> int:
    """Words that a warp's first read wants of the most wanted bank: quarters of a warp that want few places are served together."""
    plan = possible_addresses(fragment, layout, element_bytes)
    if isinstance(plan, str):
        return IMPOSSIBLE
    starts = [sum(plan.thread_offset(lane, 0)) * element_bytes for lane in range(fragment.num_lanes)]
    return wavefronts(starts, plan.vector * element_bytes, banks.count, banks.bytes)


@lru_cache(maxsize=256)
def piece_buffer(
    shape: tuple[int, int], inner: int, element_bytes: int, fragment: TileLayout, piece_bytes: int, warps: int, banks: SharedBanks
) -> SharedLayout | None:
    """The shared layout for an operand that threads copy in pieces of `piece_bytes` along dimension `inner`, and that is read back as
    register fragments: the simplest of those whose reads cost least. None where no layout keeps pieces together.
    """
    order, piece = (inner, 1 - inner), max(1, piece_bytes // element_bytes)
    if power_of_two_part(shape[inner]) < piece:
        return None
    pieces = blocked(shape, order, piece, fragment.num_lanes, warps)
    lines = (line_swizzled(shape, order, element_bytes, per_phase) for per_phase in (1, 2, 4, 8))
    fitting: list[SharedLayout] = []
    for layout in (*buffer_layouts(shape, order, element_bytes), *(layout for layout in lines if layout is not None)):
        plan = possible_addresses(pieces, layout, element_bytes, piece_bytes)
        if not isinstance(plan, str) and plan.vector == piece:
            fitting.append(layout)

    def cost(layout: SharedLayout) -> tuple[int, int]:
        return shared_cost(fragment, layout, element_bytes, banks), _spread(layout, fragment, element_bytes, banks)

    return min(fitting, key=cost, default=None)


@lru_cache(maxsize=256)
def turned_buffer(
    shape: tuple[int, int], inner: int, element_bytes: int, fragment: TileLayout, fragments: int, warps: int, banks: SharedBanks
) -> SharedLayout | None:
    """The shared layout for an operand whose elements threads copy one by one from rows along `inner`, which is k, to rows across: so that
    a read takes neighbours along m or n of one k. `fragments`: of a tile. None where sides are too short for that.
    """
    copies = turned_pieces(shape, inner, element_bytes, fragment.num_lanes, warps)
    if copies is None:
        return None

    def cost(layout: SharedLayout) -> int:
        return fragments * shared_cost(fragment, layout, element_bytes, banks) + shared_cost(copies, layout, element_bytes, banks)

    return min(buffer_layouts(shape, (1 - inner, inner), element_bytes), key=cost, default=None)
