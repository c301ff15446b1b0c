"""Global memory: `tile.view`, `tile.load`, `tile.store`.

Loads in innermost loops may go by a descriptor of the array and 32-bit places in it (`SimtHooks.bounded_load`). Otherwise:

An address is pointer + (thread's coordinates * strides) + (offsets * strides) + a constant of the register, in 64 bits. In an innermost
loop the parts are added in this order, so that only the offsets' part moves; elsewhere the offsets come first, so that no register of
each thread holds an address while other loops run.
"""

from collections.abc import Sequence

from treadle.analysis.index_forms import lies_within
from treadle.analysis.outside_elements import outside_matters
from treadle.codegen.llvm_text import I1, I8, I64, TRUE, Value, i64, vector, vector_shape, zero
from treadle.dialects.tile import LoadOp, StoreOp, ViewOp, ints, memref_type, tile_type, view_strides
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.layout.access import CoordinateGroup, global_access, global_vector_width
from treadle.layout.tile_layout import TileLayout
from treadle.targets.simt.addresses import MAX_VECTOR_BYTES, Access
from treadle.targets.simt.constants import attribute_constant
from treadle.targets.simt.context import Gathered, KernelContext, View
from treadle.targets.simt.folded_addresses import FoldedAccess
from treadle.targets.simt.hooks import Reading
from treadle.targets.simt.shifted_loads import begin_load, group_of
from treadle.targets.simt.small_floats import is_taken_apart_late
from treadle.targets.simt.threads import holds_first_copy, thread_coordinates
from treadle.targets.simt.types import WORD_BYTES, element_bytes, in_words, memory_type


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


def _reading(view: View, op: LoadOp) -> Reading:
    if op.ordered is not None:
        return "ordered"
    return "streaming" if view.read_only and op.streaming is not None else view.reading


def emit_load(ctx: KernelContext, op: LoadOp) -> None:
    """All loads of a tile; registers that are copies of others are loaded once."""
    if op.shifted is not None and _load_shifted(ctx, op):
        return
    b, view, layout = ctx.b, ctx.view(op.view), ctx.layout(op.result)
    widest = op.vector.value.data if op.shifted is None else 1
    access = global_accesses(ctx, op, view, list(op.offsets), ints(op.dims), layout, widest, edges=op.edges is not None)
    count = access.plan.vector
    kind = _group_type(view, count)
    is_bool = tile_type(op.result).element_type == builtin.i1
    other = _other(ctx, op, kind)
    align = element_bytes(view.element) * count
    bounded = view.read_only and other.text == zero(kind).text and is_of_loop(op) and access.edge < 0
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
        loaded[coordinates] = ctx.hooks.load_global(b, address, other.type, align, predicate, other, _reading(view, op))
    if is_ahead:
        places = {coordinates: count * at for at, coordinates in enumerate(loaded)}
        at = {register: places[g.coordinates] + i for g in access.plan.groups for i, register in enumerate(g.registers)}
        order = tuple(at[register] for register in range(layout.num_registers))
        ctx.bind(op.result, Gathered(tuple(loaded.values()), kind, () if order == tuple(range(count * len(loaded))) else order))
        return
    taken = {coordinates: ctx.unpack(value) for coordinates, value in loaded.items()}
    if access.edge >= 0 and outside_matters(op):
        for group in access.plan.groups:
            taken[group.coordinates] = _cut(ctx, access, group, taken[group.coordinates], ctx.unpack(other))
    for group in access.plan.groups:
        for register, value in zip(group.registers, taken[group.coordinates], strict=True):
            registers[register] = b.trunc(value, "i1") if is_bool else value
    ctx.bind(op.result, _complete(registers))


def _other(ctx: KernelContext, op: LoadOp, kind: str) -> Value:
    """What a load has outside of the view, as a value of a type."""
    if op.other is None:
        return zero(kind)
    scalar = attribute_constant(op.other)
    scalar = ctx.b.zext(scalar, I8) if scalar.type == I1 else scalar  # a byte in memory
    return Value(kind, f"splat ({scalar.typed})") if vector_shape(kind) else scalar


def _cut(
    ctx: KernelContext, access: Access, group: CoordinateGroup, values: Sequence[Value], other: Sequence[Value], some: Value = TRUE
) -> list[Value]:
    """The elements of a group with `other` outside of the view; `some`: the group has elements inside."""
    inside = access.elements_inside(group) if access.edge >= 0 else [TRUE] * len(values)
    return [ctx.b.select(ctx.b.and_(some, each), *pair) for each, *pair in zip(inside, values, other, strict=True)]


def _load_shifted(ctx: KernelContext, op: LoadOp) -> bool:
    """Load groups that begin at any element; False where the machine or the layout has none of whole words."""
    view, layout = ctx.view(op.view), ctx.layout(op.result)
    element = memory_type(view.element)
    is_wide = view.op.folding is None and tile_type(op.result).element_type != builtin.i1
    if not (ctx.hooks.spec.shifts_loads and is_wide):
        return False
    access = global_accesses(ctx, op, view, list(op.offsets), ints(op.dims), layout, op.vector.value.data, edges=True)
    count = access.plan.vector
    if count == 1 or count * element_bytes(view.element) % WORD_BYTES:
        return False
    other, matters = _other(ctx, op, vector(count, element)), outside_matters(op)
    found = {group.coordinates: group_of(access, group) for group in access.plan.groups}
    shifts = {coordinates: begin_load(access, group, _reading(view, op)) for coordinates, group in found.items()}
    registers: list[Value | None] = [None] * layout.num_registers
    for group in access.plan.groups:
        values = ctx.unpack(shifts[group.coordinates]())
        if matters:
            values = _cut(ctx, access, group, values, ctx.unpack(other), found[group.coordinates].has_some)
        for register, value in zip(group.registers, values, strict=True):
            registers[register] = value
    ctx.bind(op.result, _complete(registers))
    return True


def is_of_loop(op: LoadOp) -> bool:
    """Whether a load stands in an innermost loop, or a pipelined one carries it from its start on: around branches that would be waited for
    ahead of its time.
    """
    return in_innermost_loop(op) or any(
        isinstance(use.operation, scf.ForOp) and "pipelined" in use.operation.attributes for use in op.result.uses
    )


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
    b, ends = ctx.b, (access.element_inside(group, 0), access.element_inside(group, len(elements) - 1))
    whole = b.and_(condition, b.and_(*ends))  # what is between two elements inside is inside
    address, kind = access.address(group), memory_type(access.view.element)
    with b.when(b.and_(condition, b.xor(whole, TRUE))):
        # Few threads come here: what they compare is not compared ahead, where it would take registers.
        for at, (element, is_inside) in enumerate(zip(elements, access.elements_inside(group), strict=True)):
            ctx.hooks.store_global(b, b.gep(address, i64(at), kind, flags=""), element, element_bytes(access.view.element), is_inside)
    return whole
