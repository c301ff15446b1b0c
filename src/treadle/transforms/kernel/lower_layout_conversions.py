"""lower-layout-conversions: conversions that cross warps go through an explicit scratch buffer; those that change nothing vanish.

Level: tile. Reads: tile.convert_layout. Writes: tile.alloc, tile.local_store, tile.local_load next to the conversion.
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


def lower_conversion(op: tile.ConvertLayoutOp, spec: TargetSpec) -> None:
    """Lower one conversion."""
    source, result = tile.layout_of(op.source), tile.layout_of(op.result)
    if result is None or source is None:
        raise InternalError("tile.convert_layout between tiles without layouts")
    if source == result:
        op.result.replace_all_uses_with(op.source)
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
