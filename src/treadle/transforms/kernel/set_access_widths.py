"""set-access-widths: how many elements each global load and store may move at once.

Level: tile. Reads: views (sizes, strides, alignment), offsets, the machine's widest access. Writes: `vector` of tile.load and tile.store,
and of copies by all threads that name none. Leaves alone: everything else; accesses without a unit-stride dimension keep width 1.
"""

from treadle.analysis.view_access import access_facts
from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim, vector_limit
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass


def _shape(op: tile.LoadOp | tile.StoreOp | tile.CopyOp) -> tuple[int, ...]:
    match op:
        case tile.LoadOp():
            return tuple(tile.tile_type(op.result).get_shape())
        case tile.StoreOp():
            return tuple(tile.tile_type(op.value).get_shape())
        case tile.CopyOp():
            return tuple(tile.memref_type(op.destination).get_shape())


def access_width(op: tile.LoadOp | tile.StoreOp | tile.CopyOp, max_bytes: int) -> tuple[int, str]:
    """Elements that the access may move at once, and what limits them."""
    shape = _shape(op)
    dims = tile.ints(op.dims)
    along = contiguous_dim(tile.view_strides(op.view), dims, shape)
    facts = access_facts(op.view, tuple(op.offsets), dims, shape)
    return vector_limit(facts, None if along is None else dims[along], max_bytes)


@register_pass
@dataclass(frozen=True)
class SetAccessWidthsPass(KernelPass):
    """Decides the vector width of every global access."""

    name = "set-access-widths"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Write `vector` on the loads and stores of one kernel."""
        for op in kernel.body.walk():
            if isinstance(op, tile.LoadOp | tile.StoreOp) or (isinstance(op, tile.CopyOp) and not op.is_bulk and op.vector is None):
                width, rule = access_width(op, spec.max_vector_bytes)
                op.vector = builtin.IntegerAttr(width, builtin.i64)
                kind = op.name.removeprefix("tile.")
                emit("decision", self.name, kernel.sym_name.data, f"{kind}: {width} element(s) at once; limit: {rule}", location_of(op))
