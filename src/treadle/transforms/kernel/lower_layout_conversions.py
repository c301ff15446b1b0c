"""lower-layout-conversions: conversions that cross warps go through an explicit scratch buffer; those that change nothing vanish.

Level: tile. Reads: tile.convert_layout. Writes: tile.alloc, tile.local_store, tile.local_load next to the conversion; numbers of elements
(`tile.iota`, with its dimensions in any order) once more in the other layout, which needs no exchange.
Leaves alone: conversions within registers or lanes (the target emits them).
"""

from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.passes import register_pass
from treadle.layout.conversion import choose_scratch, convert
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_before


def numbered_again(op: tile.ConvertLayoutOp) -> tile.IotaOp | None:
    """What numbers the elements of a conversion's result as its source does; None where the source is something else."""
    source, orders = op.source, list[tuple[int, ...]]()
    while isinstance(source.owner, tile.PermuteOp):
        orders.append(tile.ints(source.owner.order))
        source = source.owner.source
    if not isinstance(source.owner, tile.IotaOp):
        return None
    axis = source.owner.axis.value.data
    for order in reversed(orders):
        if axis not in order:
            return None
        axis = order.index(axis)
    return tile.IotaOp(axis, tile.tile_type(op.result))


def lower_conversion(op: tile.ConvertLayoutOp, spec: TargetSpec) -> None:
    """Lower one conversion."""
    source, result = tile.layout_of(op.source), tile.layout_of(op.result)
    if result is None or source is None:
        raise InternalError("tile.convert_layout between tiles without layouts")
    if source == result:
        op.result.replace_all_uses_with(op.source)
    elif (again := numbered_again(op)) is not None:
        insert_before(op, again)
        op.result.replace_all_uses_with(again.result)
    elif convert(source, result).kind == "shared":
        tile_type = tile.tile_type(op.source)
        scratch = choose_scratch(source, result, element_bytes(tile_type.element_type), spec.banks.count, spec.banks.bytes)
        origin = (0,) * source.rank
        alloc = tile.AllocOp(tile.shared_buffer_type(tile_type.get_shape(), tile_type.element_type, scratch))
        store = tile.LocalStoreOp(op.source, alloc.result, origin)
        load = tile.LocalLoadOp(alloc.result, origin, tile.tile_type(op.result))
        insert_before(op, alloc, store, load)
        op.result.replace_all_uses_with(load.result)
    else:
        return
    erase(op)


@register_pass
@dataclass(frozen=True)
class LowerLayoutConversionsPass(KernelPass):
    """Takes layout conversions across warps through shared memory."""

    name = "lower-layout-conversions"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Lower the conversions of one kernel."""
        for op in tuple(kernel.body.walk()):
            if isinstance(op, tile.ConvertLayoutOp):
                lower_conversion(op, spec)
