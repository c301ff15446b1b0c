"""load-in-bulk: what an epilogue reads beside its accumulators comes through shared memory by descriptor copies.

Level: tile. Reads: tile.load of a whole tile of the result behind the loop of a contraction, the layouts its users want; the view's facts;
the machine's bulk copies. Writes: a tile.copy into a buffer and a tile.local_load for each wanted layout, in place of the load and the
conversions of its layout. Leaves alone: kernels that get no roles; loads in front of the loop (initial values); loads of one row or column
(a bias), which are small; loads whose view breaks a rule of bulk copies (a remark names it).
"""

from treadle import remarks
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.view_access import access_facts, is_zero
from treadle.dialects import tile
from treadle.ir.core import SSAValue
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import SharedLayout
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim
from treadle.plan.staging import bulk_refusal, descriptor_layout, fits_swizzle
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


def buffer_layout(load: tile.LoadOp, spec: TargetSpec) -> SharedLayout | str:
    """Where a descriptor copy puts the tile of a load, or why none can bring it."""
    if spec.bulk_tensor is None:
        return f"{spec.name} has no descriptor copies"
    kind, dims = tile.tile_type(load.result), tile.ints(load.dims)
    shape, size = kind.get_shape(), element_bytes(kind.element_type)
    if len(shape) != 2 or 1 in shape:
        return "the tile has not two dimensions"
    if not is_zero(load.other):
        return "elements outside the array are not zero"
    along = contiguous_dim(tile.view_strides(load.view), dims, shape)
    facts = access_facts(load.view, tuple(load.offsets), dims, shape)
    reason = bulk_refusal(facts, None if along is None else dims[along], spec.bulk_tensor)
    if reason is not None or along is None:
        return reason or "no dimension of the tile has unit stride"
    if not fits_swizzle(shape[along], size, spec.bulk_tensor.swizzle_bytes):
        return f"rows of {shape[along] * size} bytes fill no swizzle"
    return descriptor_layout(shape, (along, 1 - along), size, spec.bulk_tensor.swizzle_bytes)


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
            layout = buffer_layout(load, spec)
            is_refused = isinstance(layout, str)
            text = f"read by the threads: {layout}" if is_refused else "read through shared memory by descriptor copies"
            remarks.emit("refusal" if is_refused else "decision", NAME, kernel.sym_name.data, text, location_of(load))
            if not isinstance(layout, str):
                load_in_bulk(load, layout)
