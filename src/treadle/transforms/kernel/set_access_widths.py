"""set-access-widths: how many elements each global load and store may move at once.

Level: tile. Reads: views (sizes, strides, alignment), offsets, the machine's widest access and whether it shifts, what the config says of
lines and ends. Writes: `vector` of tile.load and tile.store, and of copies by all threads that name none; `edges` of loads and stores whose
tiles begin at aligned addresses, where a group may lie across an end of the view; `shifted` of loads that begin anywhere, where what is
stored is wide (`plan/wide_accesses.py`). Leaves alone: everything else; accesses without a unit-stride dimension keep width 1.
"""

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.index_forms import divides, lies_within
from treadle.analysis.view_access import access_facts, view_op
from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim, vector_limit
from treadle.plan.wide_accesses import Widths, elements_together
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


def _along(op: tile.LoadOp | tile.StoreOp) -> int | None:
    return contiguous_dim(tile.view_strides(op.view), tile.ints(op.dims), _shape(op))


def _widths(op: tile.LoadOp | tile.StoreOp, max_bytes: int) -> Widths:
    """How wide an access may be, one way or another."""
    size = element_bytes(tile.memref_type(op.view).element_type)
    along, shape, shifted = _along(op), _shape(op), 0
    if isinstance(op, tile.LoadOp) and along is not None and view_op(op.view).folding is None:
        shifted = min(max_bytes // size, shape[along] & -shape[along])
    return Widths(size, access_width(op, max_bytes)[0], line_width(op, max_bytes), shifted)


def joint_widths(kernel: tile.KernelOp, max_bytes: int) -> dict[Operation, tuple[int, Widths]]:
    """Elements that each access of a kernel's tiles is to move at once, and how wide it may be, where all had better move as many; else
    nothing. Tiles of other shapes, as of what is broadcast, go their own way.
    """
    accesses = [op for op in kernel.body.walk() if isinstance(op, tile.LoadOp | tile.StoreOp)]
    stores = [op for op in accesses if isinstance(op, tile.StoreOp)]
    joint = [op for op in accesses if stores and _shape(op) == _shape(stores[0])]
    places = {_along(op) for op in joint}
    if len(places) != 1 or None in places or any(op not in joint for op in stores):
        return {}
    found = {op: _widths(op, max_bytes) for op in joint}
    loads = [widths for op, widths in found.items() if isinstance(op, tile.LoadOp)]
    together = elements_together(loads, [found[op] for op in stores])
    return {op: (together, widths) for op, widths in found.items()} if together else {}


def _across_ends(
    op: tile.LoadOp | tile.StoreOp, whole: int, rule: str, joint: tuple[int, Widths] | None, max_bytes: int
) -> tuple[int, str]:
    """Mark an access whose groups had better lie across ends of the view, or be shifted; its width and what limits that."""
    aligned = joint[1].aligned if joint is not None else line_width(op, max_bytes)
    wanted = joint[0] if joint is not None else aligned
    if min(wanted, aligned) > whole:
        whole, rule = aligned, "it begins at an aligned address, wherever its row does"
        op.edges = None if _is_inside(op) else builtin.UnitAttr()
    if wanted > whole and isinstance(op, tile.LoadOp):
        whole, rule = wanted, "what is stored at once"
        op.shifted, op.edges = builtin.UnitAttr(), None
    return whole, rule


@register_pass
@dataclass(frozen=True)
class SetAccessWidthsPass(KernelPass):
    """Decides the vector width of every global access."""

    name = "set-access-widths"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Write `vector` on the loads and stores of one kernel."""
        config, most = config_of(kernel), spec.max_vector_bytes
        joint = joint_widths(kernel, most) if config is not None and config.crosses_ends and spec.shifts_loads else {}
        crosses = bool(joint) or (config is not None and config.line_elements > 0)
        for op in kernel.body.walk():
            if isinstance(op, tile.LoadOp | tile.StoreOp) or (isinstance(op, tile.CopyOp) and not op.is_bulk and op.vector is None):
                width, rule = access_width(op, most)
                if crosses and not isinstance(op, tile.CopyOp):
                    width, rule = _across_ends(op, width, rule, joint.get(op), most)
                op.vector = builtin.IntegerAttr(width, builtin.i64)
                how = ", shifted into place" if isinstance(op, tile.LoadOp) and op.shifted is not None else ""
                text = f"{op.name.removeprefix('tile.')}: {width} element(s) at once{how}; limit: {rule}"
                emit("decision", self.name, kernel.sym_name.data, text, location_of(op))
