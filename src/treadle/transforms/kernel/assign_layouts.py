"""assign-layouts: gives every register tile a layout.

Level: tile. Reads: contractions, loads and stores (with `vector`), shared buffers' layouts, the machine. Writes: the encoding of every
register tile, `tile.convert_layout` where two layouts meet. Leaves alone: kernels whose tiles all have layouts.

Accumulators of contractions fix their class; every other class takes the layout in which its accesses and reductions cost least, widest
tiles first, so that broadcast sources and reduction results are projections. A load or store of another pattern than its class is made in
its own coalesced layout and converted next to the access, where the type is narrow, if that pays.
"""

from dataclasses import field
from math import prod

from treadle.analysis.element_bytes import element_bytes, tile_bytes
from treadle.analysis.layout_classes import AccessOp, LayoutClass, LayoutClasses, SharedOp, access_of, accessed_tile
from treadle.dialects import tile
from treadle.dialects.tile_attributes import TileLayoutAttr
from treadle.dialects.tile_types import is_tile
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import register_pass
from treadle.ir.retype import retype
from treadle.layout.tile_layout import TileLayout, broadcast_registers
from treadle.machine import TargetSpec
from treadle.plan.layout_choice import GlobalAccess, access_layout, candidates, global_cost, reduce_cost, shared_cost
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_after, insert_before, num_warps
from treadle.transforms.kernel.operand_layouts import contract_layouts

LOOP_WEIGHT = 16
VECTOR_BYTES = 16
"""Of the widest local access."""


def projected(layout: TileLayout, shape: tuple[int, ...]) -> TileLayout:
    """`layout` with every dimension reduced to extent 1 that has it in `shape`."""
    for dim, (have, want) in enumerate(zip(layout.shape, shape, strict=True)):
        if want == 1 and have != 1:
            layout = layout.with_unit_dim(dim)
    return layout


def _shared_rows(op: SharedOp) -> GlobalAccess:
    """A local access as if its buffer's rows were global memory's: what is read and written along them is moved in vectors."""
    buffer = op.source if isinstance(op, tile.LocalLoadOp) else op.destination
    size = element_bytes(tile.memref_type(buffer).element_type)
    along = next((at for at, step in enumerate(tile.shared_layout_of(buffer).offset[0]) if step), None)
    return GlobalAccess(along, VECTOR_BYTES // size, size)


def loop_weight(op: Operation) -> int:
    """How much an operation counts: more the deeper it is in loops."""
    return LOOP_WEIGHT ** sum(isinstance(around, scf.ForOp) for around in ancestors(op))


def split_cheap_values(kernel: tile.KernelOp) -> None:
    """Give each use of a constant, splat or iota tile its own copy: none of them should tie layouts together."""
    for op in tuple(kernel.body.walk()):
        if isinstance(op, arith.ConstantOp | tile.SplatOp | tile.IotaOp) and is_tile(op.results[0]):
            for use in tuple(op.results[0].uses)[1:]:
                copy = op.clone()
                insert_after(op, copy)
                use.operation.operands[use.index] = copy.results[0]


@dataclass
class _Assignment:
    """The layouts of one kernel's classes, and of accesses that differ from their class."""

    kernel: tile.KernelOp
    spec: TargetSpec
    classes: LayoutClasses
    layouts: dict[LayoutClass, TileLayout] = field(default_factory=dict[LayoutClass, TileLayout])
    demands: dict[LayoutClass, TileLayout] = field(default_factory=dict[LayoutClass, TileLayout])
    own: dict[Operation, TileLayout] = field(default_factory=dict[Operation, TileLayout])
    required: dict[Operation, tuple[TileLayout, TileLayout | None, TileLayout | None]] = field(
        default_factory=dict[Operation, tuple[TileLayout, TileLayout | None, TileLayout | None]]
    )

    def run(self) -> None:
        """Choose a layout for every class."""
        for group in self.classes.classes:
            for op in group.contracts:
                layouts = contract_layouts(op, self.kernel, self.spec)
                self.required[op] = (layouts.accumulator, layouts.a, layouts.b)
                self._assign(group, layouts.accumulator)
                for operand, layout in ((op.a, layouts.a), (op.b, layouts.b)):
                    if layout is not None and is_tile(operand) and self._comes_from_shared(operand):
                        self._assign(self.classes.of(operand), layout)
        sizes = {group: prod(group.shape) for group in self.classes.classes}
        for group in sorted(self.classes.classes, key=lambda group: -sizes[group]):
            if group not in self.layouts:
                demand = self.demands.get(group)
                self._assign(group, self._choose(group) if demand is None else demand)

    def _comes_from_shared(self, operand: SSAValue) -> bool:
        """Whether local loads alone bring what an operand is computed from, so that they may bring it as it is read."""
        group = self.classes.of(operand)
        return isinstance(operand.owner, tile.LocalLoadOp) or (bool(group.shared) and not group.accesses)

    def _assign(self, group: LayoutClass, layout: TileLayout) -> None:
        if group in self.layouts:
            return
        self.layouts[group] = layout
        for op in group.accesses:
            if group not in self.demands and (own := self._access_layout(op, layout)) != layout:
                self.own[op] = own
        for op in group.broadcasts:
            narrow = self.classes.of(op.source)
            self.demands.setdefault(narrow, projected(layout, narrow.shape))
        for op in group.reduces:
            narrow = self.classes.of(op.results[0])
            self.demands.setdefault(narrow, projected(layout, narrow.shape))
        for op in group.permutes:
            self.demands.setdefault(self.classes.of(op.result), renamed(op, layout))

    def _access_layout(self, op: AccessOp, layout: TileLayout) -> TileLayout:
        """The layout in which to make an access of a class of `layout`."""
        if tile_bytes(accessed_tile(op)) > self.spec.shared_bytes_per_workgroup:
            return layout
        return access_layout(layout, access_of(op), self.spec.subgroup_size, num_warps(self.kernel), self.spec.banks)[0]

    def _choose(self, group: LayoutClass) -> TileLayout:
        """The candidate in which the accesses, shared stores and reductions of a class cost least."""
        lanes, warps = self.spec.subgroup_size, num_warps(self.kernel)
        through = [access_of(op) for _, op in self._through_broadcasts(group)]
        accesses = [access_of(op) for op in group.accesses] or through or [GlobalAccess(None, 1, 4), *map(_shared_rows, group.shared)]
        mixed = bool(group.shared) or len({access.contiguous for access in accesses}) > 1
        reduced = frozenset(op.axis.value.data for op in group.reduces)
        tried: dict[TileLayout, None] = {}
        for access in dict.fromkeys(accesses):
            for layout in candidates(group.shape, access, lanes, warps, transposes=mixed, reduced=reduced):
                tried[layout] = None
        return min(tried, key=lambda layout: self._cost(group, layout))

    def _through_broadcasts(self, group: LayoutClass) -> list[tuple[LayoutClass, AccessOp]]:
        """Accesses of what is broadcast into a class that has none of its own: their layouts will be projections of its layout."""
        if group.accesses:
            return []
        sources = dict.fromkeys(self.classes.of(op.source) for op in group.broadcasts)
        return [(source, op) for source in sources for op in source.accesses]

    def _cost(self, group: LayoutClass, layout: TileLayout) -> int:
        lanes, warps = self.spec.subgroup_size, num_warps(self.kernel)
        total = 0
        for source, op in self._through_broadcasts(group):
            total += loop_weight(op) * global_cost(projected(layout, source.shape), access_of(op))
        for op in group.accesses:
            total += loop_weight(op) * access_layout(layout, access_of(op), lanes, warps, self.spec.banks)[1]
        for op in group.shared:
            buffer = op.source if isinstance(op, tile.LocalLoadOp) else op.destination
            bytes_each = element_bytes(tile.memref_type(buffer).element_type)
            total += loop_weight(op) * shared_cost(layout, tile.shared_layout_of(buffer), bytes_each, self.spec.banks)
        for op in group.reduces:
            total += loop_weight(op) * reduce_cost(layout, op.axis.value.data) * len(op.inputs)
        return total


def renamed(op: tile.PermuteOp | tile.ReshapeOp, source: TileLayout) -> TileLayout:
    """The layout that the result has of itself where the source has this one."""
    if isinstance(op, tile.PermuteOp):
        return source.permute(tile.ints(op.order))
    return source.reshape(tile.tile_type(op.result).get_shape())


def set_layout(value: SSAValue, layout: TileLayout) -> SSAValue:
    """Give a value's type the encoding; constants keep type and value in step."""
    old = tile.tile_type(value)
    new_type = tile.tile_of(old.get_shape(), old.element_type, layout)
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, builtin.DenseIntOrFPElementsAttr):
        owner.value = builtin.DenseIntOrFPElementsAttr(new_type, owner.value.data)  # pyright: ignore[reportArgumentType]
    return retype(value, new_type)


def _convert_operand(op: Operation, index: int, layout: TileLayout) -> None:
    """Make operand `index` of `op` arrive in `layout`."""
    if tile.layout_of(op.operands[index]) != layout:
        convert = tile.ConvertLayoutOp(op.operands[index], layout)
        insert_before(op, convert)
        op.operands[index] = convert.result


def _convert_result(op: Operation, index: int, natural: TileLayout) -> None:
    """Let `op` make its result in `natural` and hand it on in the layout that its users have."""
    wanted = tile.layout_of(op.results[index])
    if wanted is None or wanted == natural:
        return
    result = set_layout(op.results[index], natural)
    convert = tile.ConvertLayoutOp(result, wanted)
    uses = tuple(result.uses)
    insert_after(op, convert)
    for use in uses:
        if use.operation is not convert:
            use.operation.operands[use.index] = convert.result


def rewrite(kernel: tile.KernelOp, assignment: _Assignment) -> None:
    """Write the layouts into the types and insert the conversions."""
    for group, layout in assignment.layouts.items():
        for value in group.values:
            set_layout(value, layout)
    for op in tuple(kernel.body.walk()):
        match op:
            case tile.LoadOp() if op in assignment.own:
                _convert_result(op, 0, assignment.own[op])
            case tile.StoreOp() if op in assignment.own:
                _convert_operand(op, 0, assignment.own[op])
            case tile.ContractOp():
                accumulator, a, b = assignment.required[op]
                for index, layout in ((0, a), (1, b), (2, accumulator)):
                    if layout is not None and is_tile(op.operands[index]):
                        _convert_operand(op, index, layout)
                _convert_result(op, 0, accumulator)
            case tile.BroadcastOp():
                _fit_broadcast(op)
            case tile.ReduceOp():
                for index, value in enumerate(op.inputs):
                    source = tile.layout_of(value)
                    if source is not None:
                        _convert_result(op, index, source.with_unit_dim(op.axis.value.data))
            case tile.PermuteOp() | tile.ReshapeOp():
                source = tile.layout_of(op.source)
                if source is not None:
                    _convert_result(op, 0, renamed(op, source))
            case _:
                pass


def _fit_broadcast(op: tile.BroadcastOp) -> None:
    source, result = tile.layout_of(op.source), tile.layout_of(op.result)
    if source is not None and result is not None and broadcast_registers(source, result) is None:
        _convert_operand(op, 0, projected(result, tuple(tile.tile_type(op.source).get_shape())))


@register_pass
@dataclass(frozen=True)
class AssignLayoutsPass(KernelPass):
    """Gives every register tile of every kernel a layout."""

    name = "assign-layouts"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Assign the layouts of one kernel; one that has them is left as it is."""
        tiles = [value for op in kernel.body.walk() for value in op.results if is_tile(value)]
        if all(isinstance(tile.tile_type(value).encoding, TileLayoutAttr) for value in tiles):
            return
        split_cheap_values(kernel)
        assignment = _Assignment(kernel, spec, LayoutClasses(kernel))
        assignment.run()
        rewrite(kernel, assignment)
        converted = sum(isinstance(op, tile.ConvertLayoutOp) for op in kernel.body.walk())
        chosen = len(set(assignment.layouts.values()))
        emit(
            "decision",
            self.name,
            kernel.sym_name.data,
            f"{chosen} layout(s) for {len(assignment.layouts)} group(s) of tiles, {converted} conversion(s)",
        )
