"""Merging of parts within a cluster: its workgroups have the parts of one tile, and each adds up some of its rows.

Each leaves its part in its own shared memory, reads its rows of all parts in the order of the workgroups' ranks, and goes on with these.
Nothing passes through global memory, and every run gives the same bits.
"""

from treadle.analysis.kernel_slices import stored_part
from treadle.dialects import pipe, tile
from treadle.ir.dialects import builtin
from treadle.layout.bits import power_of_two_part
from treadle.layout.shared_layout import SharedLayout
from treadle.transforms.kernel.tiling.builder import Frame, KernelBuilder
from treadle.transforms.kernel.tiling.joins import Join
from treadle.transforms.kernel.tiling.scalars import Tile

WIDE = 32
"""Words of all banks of shared memory."""
CHUNK = 4
"""Words that change places as one."""


def rows_layout(rows: int, columns: int, count: int) -> SharedLayout:
    """Where a tile of 32-bit elements lies, row by row, so that `count` equal parts of its rows follow one another.

    Rows that are as long as all banks, or a power of two of that, have their chunks exchanged by the bits of the row: the threads that
    hold a column of the accumulators would meet in one bank.
    """
    width, own = power_of_two_part(columns), rows // count
    if width < columns or width < WIDE:
        return SharedLayout(tuple((0, 1 << bit) for bit in range(width.bit_length() - 1)), (rows, columns // width))
    across = [(0, 1 << bit) for bit in range(width.bit_length() - 1)]
    down = [(1 << bit, CHUNK << bit if CHUNK << bit < WIDE else 0) for bit in range(own.bit_length() - 1)]
    return SharedLayout((*across, *down), (count, 1))


def finish_in_cluster(kernel: KernelBuilder, frame: Frame, count: int, join: Join) -> None:
    """Merge the tile `frame` of a result whose parts `count` workgroups of a cluster have; compute and store what follows from it."""
    index, (part, _) = kernel.index, stored_part(kernel.yielded()[0])
    mine = kernel.evaluator(frame).materialize(kernel.known[part], frame.extents)
    element = tile.tile_type(mine).element_type
    rows, columns = frame.extents
    buffer = index.insert(tile.AllocOp(tile.shared_buffer_type((rows, columns), element, rows_layout(rows, columns, count))))
    index.builder.insert(tile.LocalStoreOp(mine, buffer, (0, 0)))
    rank = index.insert(pipe.ClusterRankOp())
    own = index.insert(pipe.PartOp(buffer, rank, 0, count))
    kind = builtin.TensorType(element, [rows // count, columns])
    total = index.insert(tile.LocalLoadOp(own, (0, 0), kind, peer=0))
    for peer in range(1, count):
        (total,) = join(index.insert, [total], [index.insert(tile.LocalLoadOp(own, (0, 0), kind, peer=peer))])
    kernel.known[part] = Tile(total)
    along = frame.axes[0]
    kernel.offset[along] = index.add(kernel.offset[along], index.multiply(rank, rows // count))
    kernel.finish_consumers(Frame(frame.axes, (rows // count, columns)), first=1)
