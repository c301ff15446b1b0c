"""load-in-bulk: what an epilogue reads beside its accumulators comes through shared memory by descriptor copies.

Level: tile. Reads: tile.load of a whole tile of the result behind the loop of a contraction, the layouts its users want; the view's facts;
the machine's bulk copies. Writes: a tile.copy into a buffer and a tile.local_load for each wanted layout, in place of the load and the
conversions of its layout. Leaves alone: kernels that get no roles; loads in front of the loop (initial values); loads of one row or column
(a bias), which are small; loads whose view breaks a rule of bulk copies (a remark names it).
"""

from treadle import remarks
from treadle.analysis.bulk_accesses import load_layout
from treadle.dialects import tile
from treadle.ir.core import SSAValue
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import SharedLayout
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, erase_if_unused, insert_before
from treadle.transforms.kernel.roles.parts import parts_of
from treadle.transforms.kernel.roles.parts import refusal as roles_refusal

NAME = "load-in-bulk"


def epilogue_loads(kernel: tile.KernelOp) -> list[tile.LoadOp]:
    """Loads of whole tiles of the result behind the loop of a kernel that roles are formed of."""
    parts = parts_of(kernel)
    after = parts.body[parts.body.index(parts.loop) + 1 :]
    whole = {tuple(tile.tile_type(contract.result).get_shape()) for contract in parts.contracts}
    return [op for op in after if isinstance(op, tile.LoadOp) and tuple(tile.tile_type(op.result).get_shape()) in whole]


def load_in_bulk(load: tile.LoadOp, layout: SharedLayout) -> None:
    """Bring a load's tile through a buffer, to each user in the layout that it wants."""
    kind = tile.tile_type(load.result)
    alloc = tile.AllocOp(tile.shared_buffer_type(kind.get_shape(), kind.element_type, layout))
    copy = tile.CopyOp(load.view, list(load.offsets), tile.ints(load.dims), alloc.result, path=tile.BULK_TENSOR)
    insert_before(load, alloc, copy)
    conversions = [use.operation for use in load.result.uses if isinstance(use.operation, tile.ConvertLayoutOp)]
    for value in (*(conversion.result for conversion in dict.fromkeys(conversions)), load.result):
        _replace(value, alloc.result, load)
    for conversion in dict.fromkeys(conversions):
        erase_if_unused(conversion)
    erase_if_unused(load)


def _replace(value: SSAValue, buffer: SSAValue, load: tile.LoadOp) -> None:
    users = [use for use in value.uses if not isinstance(use.operation, tile.ConvertLayoutOp) or value is not load.result]
    if not users:
        return
    read = tile.LocalLoadOp(buffer, (0, 0), tile.tile_type(value))
    insert_before(load, read)
    for use in users:
        use.operation.operands[use.index] = read.result


@register_pass
@dataclass(frozen=True)
class LoadInBulkPass(KernelPass):
    """Works on kernels that set-roles will be asked about (of a form with roles), unless it would refuse them."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the loads of one kernel's epilogue."""
        if not isinstance(config_of(kernel), roles.Config) or roles_refusal(kernel) is not None:
            return
        for load in epilogue_loads(kernel):
            layout = load_layout(load, spec)
            is_refused = isinstance(layout, str)
            text = f"read by the threads: {layout}" if is_refused else "read through shared memory by descriptor copies"
            remarks.emit("refusal" if is_refused else "decision", NAME, kernel.sym_name.data, text, location_of(load))
            if not isinstance(layout, str):
                load_in_bulk(load, layout)
