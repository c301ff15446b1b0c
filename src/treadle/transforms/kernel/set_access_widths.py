"""set-access-widths: how many elements each global load and store may move at once.

Level: tile. Reads: views (sizes, strides, alignment), offsets, the machine's widest access, whether the config walks lines. Writes:
`vector` of tile.load and tile.store, and of copies by all threads that name none; `edges` of loads and stores whose tiles begin at aligned
addresses, where a group may lie across an end of the view. Leaves alone: everything else; accesses without a unit-stride dimension keep
width 1.
"""

from treadle.analysis.index_forms import divides, lies_within
from treadle.analysis.view_access import access_facts, view_op
from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim, vector_limit
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms.registry import config_of
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


def line_width(op: tile.LoadOp | tile.StoreOp, max_bytes: int) -> int:
    """Elements that may be accessed at once where groups may lie across the ends of the view: the tile begins at an aligned address."""
    view, shape = view_op(op.view), _shape(op)
    dims, strides = tile.ints(op.dims), view.stride_values()
    along = contiguous_dim(tile.view_strides(op.view), dims, shape)
    if along is None or view.folding is not None:
        return 1
    facts = access_facts(op.view, tuple(op.offsets), dims, shape)
    width = min(max_bytes, view.align.value.data) // facts.element_bytes
    width = min(width, shape[along] & -shape[along])
    # Along the other dimensions of the tile it steps from row to row.
    steps = [facts.dims[dim].stride_divisor for dim, extent in zip(dims, shape, strict=True) if dim != dims[along] and extent > 1]
    width = min([width, *steps])
    while width > 1 and not divides(width, tuple(op.offsets), strides):
        width //= 2
    return max(1, width)


def _is_inside(op: tile.LoadOp | tile.StoreOp) -> bool:
    """Whether no group of the tile lies across an end of the view."""
    view, shape, dims = view_op(op.view), _shape(op), tile.ints(op.dims)
    along = contiguous_dim(tile.view_strides(op.view), dims, shape)
    return along is not None and lies_within(op.offsets[dims[along]], shape[along], view.size_values()[dims[along]])


@register_pass
@dataclass(frozen=True)
class SetAccessWidthsPass(KernelPass):
    """Decides the vector width of every global access."""

    name = "set-access-widths"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Write `vector` on the loads and stores of one kernel."""
        config = config_of(kernel)
        lines = 0 if config is None else config.line_elements
        for op in kernel.body.walk():
            if isinstance(op, tile.LoadOp | tile.StoreOp) or (isinstance(op, tile.CopyOp) and not op.is_bulk and op.vector is None):
                width, rule = access_width(op, spec.max_vector_bytes)
                if lines and not isinstance(op, tile.CopyOp) and (wider := line_width(op, spec.max_vector_bytes)) > width:
                    width, rule = wider, "it begins at an aligned address, wherever its row does"
                    op.edges = None if _is_inside(op) else builtin.UnitAttr()
                op.vector = builtin.IntegerAttr(width, builtin.i64)
                kind = op.name.removeprefix("tile.")
                emit("decision", self.name, kernel.sym_name.data, f"{kind}: {width} element(s) at once; limit: {rule}", location_of(op))
