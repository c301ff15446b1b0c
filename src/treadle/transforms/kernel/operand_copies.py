"""An operand of a contraction as set-operand-staging sees it, and how the threads' copies bring it to multiply-adds."""

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.view_access import access_facts, is_zero, view_op
from treadle.dialects import tile
from treadle.ir.core import SSAValue
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim
from treadle.plan.piece_buffers import piece_buffer, turned_buffer
from treadle.plan.staging import piece_width
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: its name, tile, place of k among its dimensions, and the load behind it."""

    name: str
    value: SSAValue
    k_dim: int
    load: tile.LoadOp | None

    @property
    def shape(self) -> tuple[int, int]:
        """Sides of the tile."""
        rows, columns = tile.tile_type(self.value).get_shape()
        return rows, columns

    @property
    def bytes(self) -> int:
        """Of an element."""
        return element_bytes(tile.tile_type(self.value).element_type)

    @property
    def contiguous(self) -> int | None:
        """Tile dimension of unit stride in global memory."""
        if self.load is None:
            return None
        return contiguous_dim(tile.view_strides(self.load.view), tile.ints(self.load.dims), self.shape)


def in_pieces(operand: Operand, fragment: TileLayout, k_step: int, warps: int, spec: TargetSpec) -> SharedLayout | str:
    """The layout in which threads copy an operand piece by piece to where multiply-adds read it, or why they do not.

    What lies along k in memory is turned on its way where elements can be copied one by one: reads then bring registers for one k, not
    for four, and loads of the next ones have room.
    """
    queue, load = spec.queue_for("copy_in"), operand.load
    if load is None or load.result is not operand.value or queue is None:
        return "the operand is computed, not loaded"
    if not is_zero(load.other):
        return "elements outside the array are not zero"
    inner = operand.contiguous
    if inner is None or view_op(load.view).folding is not None:
        return "no dimension of the tile has unit stride"
    dims = tile.ints(load.dims)
    width = piece_width(access_facts(load.view, tuple(load.offsets), dims, operand.shape), dims[inner], queue)
    if width not in queue.piece_bytes:
        return "its rows begin at places that no copy takes"
    layout = None
    if inner == operand.k_dim and operand.bytes in queue.piece_bytes:
        steps = operand.shape[inner] // k_step
        layout = turned_buffer(operand.shape, inner, operand.bytes, fragment, steps, warps, spec.banks)
    layout = layout or piece_buffer(operand.shape, inner, operand.bytes, fragment, width, warps, spec.banks)
    return layout or f"no buffer keeps pieces of {width} bytes together"
