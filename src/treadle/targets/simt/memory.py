"""Global memory: `tile.view`, `tile.load`, `tile.store`.

Loads in innermost loops may go by a descriptor of the array and 32-bit places in it (`SimtHooks.bounded_load`). Otherwise:

An address is pointer + (thread's coordinates * strides) + (offsets * strides) + a constant of the register, in 64 bits. In an innermost
loop the parts are added in this order, so that only the offsets' part moves; elsewhere the offsets come first, so that no register of
each thread holds an address while other loops run.
"""

from collections.abc import Sequence
from dataclasses import field

from treadle.analysis.index_forms import base_and_constant, lies_within
from treadle.codegen.llvm_text import I32, I64, TRUE, Value, i32, i64, vector, zero
from treadle.dialects.tile import LoadOp, StoreOp, ViewOp, ints, memref_type, tile_type, view_strides
from treadle.errors import InternalError
from treadle.ir.ancestry import blocks_around
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.layout.access import CoordinateGroup, GlobalPlan, global_access, global_vector_width
from treadle.layout.tile_layout import TileLayout
from treadle.layout.windows import Windows
from treadle.records import dataclass
from treadle.targets.simt.constants import attribute_constant
from treadle.targets.simt.context import Gathered, KernelContext, View
from treadle.targets.simt.hooks import Place
from treadle.targets.simt.small_floats import is_taken_apart_late
from treadle.targets.simt.threads import holds_first_copy, thread_coordinates
from treadle.targets.simt.types import WORD_BYTES, element_bytes, in_words, memory_type

MAX_VECTOR_BYTES = 16
MAX_PLACE = 1 << 31
FAR = 1 << 30
"""A place that is in no array."""
MOST_FAR = 3
"""So many of them together are still none."""


def emit_view(ctx: KernelContext, op: ViewOp) -> None:
    """Bind a view: nothing is computed but the pointer with its static offset."""
    b = ctx.b
    element = memref_type(op.result).element_type
    sizes = tuple(ctx.index_constant(s) if isinstance(s, int) else ctx.scalar(s) for s in op.size_values())
    strides = tuple(i64(s) if isinstance(s, int) else b.sext(ctx.scalar(s), I64) for s in op.stride_values())
    pointer = b.gep(ctx.scalar(op.pointer), i64(op.offset.value.data), memory_type(element))
    inputs = sum(str(a.type).startswith("!tile.ptr") for a in ctx.kernel.body.block.args) - ctx.kernel.output_count.value.data
    argument = op.pointer
    read_only = getattr(argument, "index", inputs) < inputs and argument not in ctx.written
    ctx.bind(op.result, View(op, pointer, element, sizes, strides, read_only))


@dataclass(slots=True)
class Access:
    """Addresses and predicates of the accesses of one load or store."""

    ctx: KernelContext
    view: View
    offsets: Sequence[SSAValue]
    dims: tuple[int, ...]
    layout: TileLayout
    plan: GlobalPlan
    base: Value
    coordinates: dict[int, Value]  # view dimension -> offset + thread part, for the checked ones
    always: Value  # predicate of the whole tile
    parts: tuple[Value, ...]
    block: Block | None  # where it stands
    edge: int = -1  # the checked dimension across whose ends groups may lie

    def coordinate(self, dim: int, constant: int) -> Value:
        """The index along a checked dimension of the access whose constant is `constant`."""
        b, axis = self.ctx.b, self.dims.index(dim)
        if self.plan.is_disjoint:
            return b.add(self.coordinates[dim], self.ctx.index_constant(constant))
        return b.add(self.ctx.scalar(self.offsets[dim]), self.ctx.as_index(b.xor(self.parts[axis], i32(constant))))

    def predicate(self, group: CoordinateGroup) -> Value:
        """i1: the group lies within the view."""
        b, condition = self.ctx.b, self.always
        for axis, dim in enumerate(self.dims):
            if dim in self.coordinates:
                # Of a group across an end any element may be the one inside.
                reach = self.ctx.index_constant(self.plan.vector - 1 if dim == self.edge else 0)
                at = b.add(self.coordinate(dim, group.coordinates[axis]), reach)
                condition = b.and_(condition, b.icmp("ult", at, b.add(self.view.sizes[dim], reach)))
        return condition

    def elements_inside(self, group: CoordinateGroup) -> list[Value]:
        """i1 for each element of a group that may lie across an end: it lies within the view."""
        b, size = self.ctx.b, self.view.sizes[self.edge]
        first = self.coordinate(self.edge, group.coordinates[self.dims.index(self.edge)])
        return [b.icmp("ult", b.add(first, self.ctx.index_constant(i)), size) for i in range(self.plan.vector)]

    def address(self, group: CoordinateGroup) -> Value:
        """Where the group starts."""
        b = self.ctx.b
        distance = i64(0)
        for axis, dim in enumerate(self.dims):
            constant = group.coordinates[axis]
            if not self.plan.is_disjoint:
                part = self.parts[axis]
                moved = b.sext(b.sub(b.xor(part, i32(constant)), part), I64)
            else:
                moved = i64(constant)
            distance = b.add(distance, b.mul(moved, self.view.strides[dim]))
        return b.gep(self.base, distance, memory_type(self.view.element), flags="")

    def place(self, constants: Sequence[int]) -> Place | None:
        """Where the access with these constants along `dims` is. None where 31 bits may not hold its distance from the array's start, or
        sizes or strides are known to the runtime alone.

        What no trip of the loop changes is part of the start, so that all arrays with the same step share what moves.
        """
        b, width = self.ctx.b, element_bytes(self.view.element)
        strides, sizes = view_strides(self.view.op.result), self.view.op.size_values()
        steps = [stride * width for stride in strides if isinstance(stride, int) and stride >= 0]
        counts = [size for size in sizes if isinstance(size, int)]
        if len(steps) < len(strides) or len(counts) < len(sizes) or not self.plan.is_disjoint:
            return None
        if sum((count - 1) * step for count, step in zip(counts, steps, strict=True)) + MAX_VECTOR_BYTES >= MAX_PLACE:
            return None
        own, moving, still, constant = i32(0), i32(0), i64(0), 0
        for axis, dim in enumerate(self.dims):
            own = b.add(own, b.mul(self.parts[axis], i32(steps[dim])))
        for axis, dim in enumerate(self.dims):
            own = b.add(own, i32(constants[axis] * steps[dim]))
        for dim, offset in enumerate(self.offsets):
            base, more = base_and_constant(offset)
            step = steps[dim]
            if not self._moves(base):
                still = b.add(still, b.mul(b.sext(self.ctx.scalar(base), I64), i64(step)))
                constant += more * step
            elif self.ctx.ranges.of(base).low >= 0:
                moving = b.add(moving, b.mul(b.resize(self.ctx.scalar(base), I32), i32(step)))
                constant += more * step
            else:  # the machine takes the common part as a natural number
                own = b.add(own, b.mul(b.resize(self.ctx.scalar(offset), I32), i32(step)))
        start = b.gep(b.gep(self.view.pointer, still, "i8", flags=""), i64(constant), "i8", flags="")
        return Place(start, own, moving)

    def _moves(self, value: SSAValue) -> bool:
        """Whether a value may differ between the trips of the loop that the access stands in."""
        owner = value.owner
        block = owner.parent if isinstance(owner, Operation) else owner
        return block is not None and any(around is self.block for around in blocks_around(block))


@dataclass(frozen=True, slots=True)
class FoldedPart:
    """What one dimension of a folded view adds: to the distance in elements, and to the place along each axis."""

    distance: Value
    places: dict[int, Value]


@dataclass(slots=True)
class FoldedAccess(Access):
    """The same of a folded view (layout/windows.py): each dimension is taken apart into steps along axes of the array.

    What a dimension adds is computed once for each of a thread's coordinates (`kept`), so that an access of a row and a column adds two
    numbers; what no trip of a loop changes of it, tools keep outside.
    """

    kept: dict[tuple[int, int], FoldedPart] = field(default_factory=dict[tuple[int, int], FoldedPart])

    def _own(self, dim: int, constant: int) -> Value:
        """The thread's part of the index along a dimension of the access with this constant there."""
        b = self.ctx.b
        if dim not in self.dims:
            return self.ctx.index_constant(0)
        part, own = self.parts[self.dims.index(dim)], i32(constant)
        return self.ctx.as_index(b.add(part, own) if self.plan.is_disjoint else b.xor(part, own))

    def _is_in_one_run(self, dim: int) -> bool:
        """Whether a tile stays within one run of a dimension, so that only the last part differs from thread to thread."""
        extent = self.layout.shape[self.dims.index(dim)] if dim in self.dims else 1
        return self._windows.run(dim) % extent == 0 and self.ctx.ranges.of(self.offsets[dim]).multiple % extent == 0

    def _digits(self, dim: int, constant: int) -> list[tuple[int, Value]]:
        """The axis of each part of a dimension, and the steps along it."""
        b, ctx, windows = self.ctx.b, self.ctx, self._windows
        offset, own, parts = ctx.scalar(self.offsets[dim]), self._own(dim, constant), windows.dims[dim]
        in_run = len(parts) > 1 and self._is_in_one_run(dim)
        index = offset if in_run else b.add(offset, own)
        found: list[tuple[int, Value]] = []
        for number, (part, span) in enumerate(zip(parts, windows.spans(dim), strict=True)):
            digit = b.udiv(index, ctx.index_constant(span))
            digit = b.urem(digit, ctx.index_constant(part.extent)) if number else digit
            digit = b.add(digit, own) if in_run and number == len(parts) - 1 else digit
            found.append((part.axis, b.mul(digit, ctx.index_constant(part.step))))
        return found

    def _part(self, dim: int, constant: int) -> FoldedPart:
        """What a dimension adds at the index with this constant of the thread."""
        if (dim, constant) not in self.kept:
            self.kept[dim, constant] = self._made_part(dim, constant)
        return self.kept[dim, constant]

    def _made_part(self, dim: int, constant: int) -> FoldedPart:
        b, ctx, windows = self.ctx.b, self.ctx, self._windows
        kind, places = (I32 if self._is_near else I64), dict[int, Value]()
        number = i32 if kind == I32 else i64
        if not windows.dims[dim]:
            index = b.add(ctx.scalar(self.offsets[dim]), self._own(dim, constant))
            return FoldedPart(b.mul(b.sext(index, I64) if kind == I64 else b.resize(index, I32), self._stride(dim, kind)), {})
        distance = number(0)
        for axis, steps in self._digits(dim, constant):
            wide = b.sext(steps, I64) if kind == I64 else b.resize(steps, I32)
            distance = b.add(distance, b.mul(wide, number(windows.axes[axis].pitch)))
            places[axis] = b.add(places[axis], steps) if axis in places else steps
        for axis in windows.checked:
            if axis in places and self._first_dim(axis) == dim:
                places[axis] = b.sub(places[axis], ctx.index_constant(windows.axes[axis].low))
        if (axis := self._told_by(dim)) >= 0:
            inside = b.icmp("ult", self.coordinate(dim, constant), self.view.sizes[dim])
            places[axis] = b.select(inside, places[axis], ctx.index_constant(FAR))
        return FoldedPart(distance, places)

    def _stride(self, dim: int, kind: str) -> Value:
        """The stride of a dimension that is not folded; a number where distances are of 32 bits."""
        stride = self.view.strides[dim]
        return stride if kind == I64 else i32(stride.number or 0)

    def _first_dim(self, axis: int) -> int:
        """The first dimension that has a part along an axis."""
        return next(dim for dim, parts in enumerate(self._windows.dims) if any(part.axis == axis for part in parts))

    def _told_by(self, dim: int) -> int:
        """The checked axis along which an index beyond the view's size is taken to be far outside; -1 where there is none. Several such
        distances do not add up to a place inside.
        """
        windows = self._windows
        if dim not in self.coordinates or dim == self.edge or len(windows.dims) > MOST_FAR:
            return -1
        walked = {part.axis for part in windows.dims[dim]}
        return next((axis for axis in windows.checked if axis in walked and windows.axes[axis].high < FAR // 2), -1)

    @property
    def _windows(self) -> Windows:
        windows = self.view.op.folding
        if windows is None:
            raise InternalError("a folded access of a view that folds nothing")
        return windows

    @property
    def _is_near(self) -> bool:
        """Whether 31 bits hold the distance in bytes of all that lies within the view from its start."""
        last, sizes = 0, self.view.op.size_values()
        for dim, parts in enumerate(self._windows.dims):
            size, stride = sizes[dim], self.view.strides[dim].number
            if not isinstance(size, int) or (not parts and stride is None):
                return False
            spans = self._windows.spans(dim)
            extents = [-(-size // spans[0]) if number == 0 else part.extent for number, part in enumerate(parts)]
            steps = [part.step * self._windows.axes[part.axis].pitch for part in parts]
            last += sum((e - 1) * step for e, step in zip(extents, steps, strict=True)) if parts else (size - 1) * (stride or 0)
        return last * element_bytes(self.view.element) + MAX_VECTOR_BYTES < MAX_PLACE

    def _parts_at(self, constants: Sequence[int]) -> list[FoldedPart]:
        """What each dimension adds to the access with these constants along `dims`."""
        at = dict(zip(self.dims, constants, strict=True))
        return [self._part(dim, at.get(dim, 0)) for dim in range(len(self._windows.dims))]

    def predicate(self, group: CoordinateGroup) -> Value:
        """i1: the group lies within the view and within the array."""
        b, ctx, parts = self.ctx.b, self.ctx, self._parts_at(group.coordinates)
        condition = self.always
        for at, dim in enumerate(self.dims):
            if dim in self.coordinates and self._told_by(dim) < 0:
                condition = b.and_(condition, b.icmp("ult", self.coordinate(dim, group.coordinates[at]), self.view.sizes[dim]))
        for number in self._windows.checked:
            axis, place = self._windows.axes[number], ctx.index_constant(0)
            for part in parts:
                place = b.add(place, part.places[number]) if number in part.places else place
            condition = b.and_(condition, b.icmp("ult", place, ctx.index_constant(axis.high - axis.low)))
        return condition

    def _distance(self, constants: Sequence[int]) -> Value:
        b, parts = self.ctx.b, self._parts_at(constants)
        distance = parts[0].distance
        for part in parts[1:]:
            distance = b.add(distance, part.distance)
        return distance

    def address(self, group: CoordinateGroup) -> Value:
        """Where the group starts."""
        b = self.ctx.b
        return b.gep(self.view.pointer, b.sext(self._distance(group.coordinates), I64), memory_type(self.view.element), flags="")

    def place(self, constants: Sequence[int]) -> Place | None:
        """The same, all of the distance the thread's own."""
        if not self._is_near:
            return None
        return Place(self.view.pointer, self.ctx.b.mul(self._distance(constants), i32(element_bytes(self.view.element))), i32(0))


def in_innermost_loop(op: Operation) -> bool:
    """Whether an operation stands in a loop that has no loop inside."""
    loop = op.parent_op()
    return isinstance(loop, scf.ForOp) and not any(isinstance(inner, scf.ForOp) for inner in loop.body.walk())


def global_accesses(
    ctx: KernelContext,
    op: Operation,
    view: View,
    offsets: Sequence[SSAValue],
    dims: tuple[int, ...],
    layout: TileLayout,
    vector_limit: int,
    *,
    edges: bool = False,
) -> Access:
    """Who accesses what of a tile at `offsets` of a view, at most `vector_limit` elements at once. `edges`: groups may lie across ends."""
    b = ctx.b
    static = view_strides(view.op.result)
    unit = next((axis for axis, dim in enumerate(dims) if static[dim] == 1), None)
    limit = min(vector_limit, MAX_VECTOR_BYTES // element_bytes(view.element))
    width = global_vector_width(layout, unit, limit) if unit is not None and limit > 1 else 1
    plan = global_access(layout, unit or 0, width)
    parts = thread_coordinates(ctx, layout)
    thread = i64(0)
    for axis, dim in enumerate(dims):
        thread = b.add(thread, b.mul(b.sext(parts[axis], I64), view.strides[dim]))
    uniform = i64(0)
    for dim, offset in enumerate(offsets):
        uniform = b.add(uniform, b.mul(b.sext(ctx.scalar(offset), I64), view.strides[dim]))
    kind = memory_type(view.element)
    first, second = (thread, uniform) if in_innermost_loop(op) else (uniform, thread)
    base = b.gep(b.gep(view.pointer, first, kind, flags=""), second, kind, flags="")
    coordinates: dict[int, Value] = {}
    always = TRUE
    for dim, offset in enumerate(offsets):
        axis = dims.index(dim) if dim in dims else -1
        extent = layout.shape[axis] if axis >= 0 else 1
        size = view.op.size_values()[dim]
        if ctx.ranges.inside(offset, extent, view.sizes[dim].number) or lies_within(offset, extent, size):
            continue
        if axis >= 0:
            coordinates[dim] = b.add(ctx.scalar(offset), ctx.as_index(parts[axis]))
        else:
            always = b.and_(always, b.icmp("ult", ctx.scalar(offset), view.sizes[dim]))
    kind_of = Access if view.op.folding is None else FoldedAccess
    edge = dims[unit] if edges and unit is not None and plan.vector > 1 and dims[unit] in coordinates else -1
    return kind_of(ctx, view, offsets, dims, layout, plan, base, coordinates, always, parts, op.parent, edge)


def _group_type(view: View, count: int) -> str:
    kind = memory_type(view.element)
    return vector(count, kind) if count > 1 else kind


def emit_load(ctx: KernelContext, op: LoadOp) -> None:
    """All loads of a tile; registers that are copies of others are loaded once."""
    b, view, layout = ctx.b, ctx.view(op.view), ctx.layout(op.result)
    access = global_accesses(ctx, op, view, list(op.offsets), ints(op.dims), layout, op.vector.value.data, edges=op.edges is not None)
    count = access.plan.vector
    kind = _group_type(view, count)
    is_bool = tile_type(op.result).element_type == builtin.i1
    other = zero(kind)
    if op.other is not None:
        scalar = attribute_constant(op.other)
        scalar = b.zext(scalar, memory_type(view.element)) if is_bool else scalar
        other = Value(kind, f"splat ({scalar.typed})") if count > 1 else scalar
    align = element_bytes(view.element) * count
    bounded = view.read_only and other.text == zero(kind).text and in_innermost_loop(op) and access.edge < 0
    is_ahead = access.edge < 0 and count % WORD_BYTES == 0 and ctx.hooks.widens_late and is_loaded_ahead(op)
    if is_ahead:  # elements of one byte each
        other = b.bitcast(other, in_words(kind))
    loaded: dict[tuple[int, ...], Value] = {}
    registers: list[Value | None] = [None] * layout.num_registers
    # Addresses and predicates first, so that the loads themselves stand together.
    todo = {group.coordinates: (access.address(group), access.predicate(group)) for group in access.plan.groups}
    for coordinates, (address, condition) in todo.items():
        if condition.number == 0:
            loaded[coordinates] = other
            continue
        predicate = None if condition.number == 1 else condition
        place = access.place(coordinates) if bounded else None
        value = None if place is None else ctx.hooks.bounded_load(b, place, other.type, condition)
        if value is not None:
            loaded[coordinates] = value
            continue
        loaded[coordinates] = ctx.hooks.load_global(b, address, other.type, align, predicate, other, view.read_only)
    if is_ahead:
        places = {coordinates: count * at for at, coordinates in enumerate(loaded)}
        at = {register: places[g.coordinates] + i for g in access.plan.groups for i, register in enumerate(g.registers)}
        order = tuple(at[register] for register in range(layout.num_registers))
        ctx.bind(op.result, Gathered(tuple(loaded.values()), kind, () if order == tuple(range(count * len(loaded))) else order))
        return
    taken = {coordinates: ctx.unpack(value) for coordinates, value in loaded.items()}
    if access.edge >= 0:
        outside = ctx.unpack(other)
        for group in access.plan.groups:
            inside, held = access.elements_inside(group), taken[group.coordinates]
            taken[group.coordinates] = [b.select(*each) for each in zip(inside, held, outside, strict=True)]
    for group in access.plan.groups:
        for register, value in zip(group.registers, taken[group.coordinates], strict=True):
            registers[register] = b.trunc(value, "i1") if is_bool else value
    ctx.bind(op.result, _complete(registers))


def is_loaded_ahead(op: LoadOp) -> bool:
    """Whether a load of bytes runs ahead of where they are taken apart, in a pipelined loop or as what such a loop starts from: taking its
    vectors apart any earlier waits for it.
    """
    loops = [op.parent_op(), *(use.operation for use in op.result.uses)]
    return any(isinstance(loop, scf.ForOp) and "pipelined" in loop.attributes for loop in loops) and is_taken_apart_late(op.result)


def _complete(registers: Sequence[Value | None]) -> list[Value]:
    found = [value for value in registers if value is not None]
    if len(found) != len(registers):
        raise InternalError("an access plan leaves registers out")
    return found


def emit_store(ctx: KernelContext, op: StoreOp) -> None:
    """All stores of a tile, by the first of several holders only."""
    b, view, layout = ctx.b, ctx.view(op.view), ctx.layout(op.value)
    access = global_accesses(ctx, op, view, list(op.offsets), ints(op.dims), layout, op.vector.value.data, edges=op.edges is not None)
    align = element_bytes(view.element) * access.plan.vector
    values = ctx.tile(op.value)
    access.always = b.and_(holds_first_copy(ctx, layout), access.always)
    done: set[tuple[int, ...]] = set()
    for group in access.plan.groups:
        if group.coordinates in done:
            continue
        done.add(group.coordinates)
        elements = [values[r] for r in group.registers]
        if elements[0].type == "i1":
            elements = [b.zext(e, "i8") for e in elements]
        condition = access.predicate(group)
        if condition.number == 0:
            continue
        if access.edge >= 0:
            condition = _store_ends(ctx, access, group, elements, condition)
        ctx.hooks.store_global(b, access.address(group), ctx.pack(elements), align, None if condition.number == 1 else condition)


def _store_ends(ctx: KernelContext, access: Access, group: CoordinateGroup, elements: Sequence[Value], condition: Value) -> Value:
    """Store the elements inside of a group that lies across an end; the condition for one that lies inside."""
    b, inside, whole = ctx.b, access.elements_inside(group), condition
    for each in inside:
        whole = b.and_(whole, each)
    address, kind = access.address(group), memory_type(access.view.element)
    with b.when(b.and_(condition, b.xor(whole, TRUE))):
        for at, (element, is_inside) in enumerate(zip(elements, inside, strict=True)):
            ctx.hooks.store_global(b, b.gep(address, i64(at), kind, flags=""), element, element_bytes(access.view.element), is_inside)
    return whole
