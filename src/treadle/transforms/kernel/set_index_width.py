"""set-index-width: how wide a kernel's indices are. The one place where this is decided.

Level: dispatch. Reads: the loop nest, the `config`, index arithmetic in bodies, `any_size`. Writes: `index_bits = 64` on `dispatch.kernel`
where 32 bits may not be enough, with a remark; else, where it depends on runtime sizes, a `dispatch.check` with `index_range` for each
size that must be within 32 bits, in every program that launches the kernel.
Leaves alone: kernels whose static sizes fit. Raises TR303 where not even 64 bits are enough.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from treadle import errors
from treadle.analysis.index_bounds import Bound, IndexBounds, exactly, up_to
from treadle.analysis.indexing import StructuredOp, structured
from treadle.analysis.loop_nest import LoopNest, iteration_sizes, kernel_symbols, loop_nest
from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.context import Context
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import ModulePass, register_pass
from treadle.plan.block_bounds import greatest
from treadle.plan.expr import Expr, as_expr, ceil_div, constant, product, symbol
from treadle.plan.index_range import INDEX_LIMIT, SIZE_LIMIT, WIDE_LIMIT, largest, peaks
from treadle.remarks import emit
from treadle.transforms.kernel.forms.registry import decided

NAME: Final = "set-index-width"
INDEX_BITS: Final = "index_bits"
WIDE: Final = 64


@dataclass(frozen=True, slots=True)
class Need:
    """32-bit indices are enough where `value <= limit`; `what` says what has this value. None: whatever the sizes, they may not be."""

    value: Expr | None
    limit: int
    what: str

    @property
    def is_met(self) -> bool | None:
        """None where only the runtime knows."""
        if self.value is None:
            return False
        known = self.value.as_int()
        return None if known is None else known <= self.limit


def _tile_counts(nest: LoopNest) -> Iterator[tuple[Expr, str]]:
    """How many tiles there are, times the rows of them that are walked together; the tiles of one axis are fewer than its elements."""
    config = decided(nest.kernel)
    extents, together = config.extents(len(nest.axes)), config.rows_together
    counts = [ceil_div(axis.bound, e) for axis, e in zip(nest.axes, extents, strict=True) if not axis.is_reduction]
    if len(counts) > 1 or together > 1:
        yield product(counts) * together, "the number of tiles"


def _sizes(nest: LoopNest) -> Iterator[tuple[Expr, str]]:
    """What the tile program walks over, counts, and steps by."""
    extents = {axis.block: axis.size for axis in nest.axes if axis.block}
    for axis in nest.axes:
        for peak in peaks(axis.size):
            yield from ((bound, "an axis") for bound in _in_any_block(peak, extents))
    for access in nest.accesses:
        for place in (*access.cuts, *access.corners):
            yield from ((peak, "an axis") for peak in peaks(place.extent))
    yield from _tile_counts(nest)
    for name in dispatch.texts(nest.kernel.symbols):
        yield as_expr(name), "a size or stride"
    for access in nest.accesses:
        for axis in nest.axes:
            if not axis.block and not (stride := nest.stride_along(access, axis)).is_constant:
                for peak in peaks(stride):
                    yield peak, "a stride"


def _in_any_block(value: Expr, extents: dict[str, Expr]) -> Sequence[Expr]:
    """Bounds of what grows with the indices of blocks, a sum of products that are not negative."""
    if extents.keys().isdisjoint(value.symbols()):
        return (value,)
    return greatest(value, extents) or (value.substitute(extents),)


def _is_index(value: SSAValue) -> bool:
    return isinstance(value.type, builtin.IndexType)


def _index_results(ops: Sequence[Operation]) -> Iterator[SSAValue]:
    """Values that index arithmetic computes, and those that integers are taken for."""
    for op in ops:
        if not isinstance(op, linalg.ops.IndexOp):
            yield from (result for result in op.results if _is_index(result))


def _body_bounds(view: StructuredOp, kernel: dispatch.KernelOp, outer: IndexBounds) -> Iterator[Bound | None]:
    """Bounds of the index arithmetic in a generic's body."""
    values = list(_index_results(list(view.body.ops)))
    if not values:
        return
    sizes = iteration_sizes(view, kernel)

    def leaf(value: SSAValue) -> Bound | None:
        op = value.owner
        if isinstance(op, linalg.ops.IndexOp):
            return up_to(sizes[op.dim.value.data])
        return outer.of(value)

    bounds = IndexBounds(leaf)
    yield from (bounds.of(value) for value in values)


def _arithmetic(kernel: dispatch.KernelOp) -> Iterator[Bound | None]:
    """Bounds of all index arithmetic that the user wrote: at the kernel's top, and in bodies."""
    symbols = kernel_symbols(kernel)
    blocks = {symbol(name): as_expr(extent) for name, extent in kernel.blocks.items()}

    def leaf(value: SSAValue) -> Bound | None:
        known = symbols.get(value)
        return None if known is None else up_to(blocks[known]) if known in blocks else exactly(known)

    outer = IndexBounds(leaf)
    top = list(kernel.body.block.ops)
    yield from (outer.of(value) for value in _index_results(top))
    for op in top:
        view = structured(op) if isinstance(op, linalg.ops.GenericOp) else None
        if view is not None:
            yield from _body_bounds(view, kernel, outer)


def needs(nest: LoopNest) -> tuple[Need, ...]:
    """What must hold for 32-bit indices; those that others imply are left out."""
    whole: dict[Expr, str] = {}
    for value, what in _sizes(nest):
        whole.setdefault(value, what)
    found = [Need(value, SIZE_LIMIT, whole[value]) for value in largest(whole)]
    what = "index arithmetic of the body"
    negative, positive = set[Expr](), set[Expr]()
    for bound in _arithmetic(nest.kernel):
        if bound is None:
            found.append(Need(None, INDEX_LIMIT, what))
        else:
            negative.add(bound.negative)
            positive.add(bound.positive)
    found += [Need(value, INDEX_LIMIT, what) for value in largest(positive - {constant(0)})]
    found += [Need(value, INDEX_LIMIT + 1, what) for value in largest(negative - {constant(0)})]
    return tuple(dict.fromkeys(found))


def _refuse_beyond_64_bits(nest: LoopNest, found: Sequence[Need]) -> None:
    for need in found:
        known = need.value.as_int() if need.value is not None else None
        if known is not None and known > WIDE_LIMIT and need.limit == SIZE_LIMIT:  # the user's own arithmetic may wrap
            raise TreadleError(errors.INDEX_TOO_LARGE, location_of(nest.root.op), what=need.what, value=known)


def index_width(nest: LoopNest) -> tuple[int, tuple[Need, ...]]:
    """Bits of the kernel's indices, and what must be checked at run time for 32 to be enough. Raises TR303."""
    found = needs(nest)
    _refuse_beyond_64_bits(nest, found)
    open_needs = tuple(need for need in found if need.is_met is None)
    failed = next((need for need in found if need.is_met is False), None)
    subject, place = nest.kernel.sym_name.data, location_of(nest.root.op)
    if failed is not None:
        reason = "nothing bounds it" if failed.value is None else f"{failed.value} is beyond {failed.limit}"
        emit("decision", NAME, subject, f"64-bit indices: {failed.what}: {reason}", place)
        return WIDE, ()
    if open_needs and dispatch.ANY_SIZE in nest.kernel.attributes:
        emit("decision", NAME, subject, "64-bit indices: sizes that the runtime gives may be of any value", place)
        return WIDE, ()
    if open_needs:
        listed = ", ".join(f"{need.value} <= {need.limit}" for need in open_needs)
        emit("decision", NAME, subject, f"32-bit indices, where {listed}", place)
    return 32, open_needs


def _check(program: dispatch.ProgramOp, launch: dispatch.LaunchOp, found: Sequence[Need], known: set[tuple[Expr, int]]) -> None:
    """Checks ahead of the program's launches; those that were there before stay alone."""
    values = {name: as_expr(text) for name, text in launch.symbol_values().items()}
    first = next(op for op in program.body.block.ops if isinstance(op, dispatch.LaunchOp))
    for need in found:
        value = need.value.substitute(values) if need.value is not None else errors.unreachable("a check of nothing")
        known_value = value.as_int()
        if (value, need.limit) in known or (known_value is not None and known_value <= need.limit):
            continue
        known.add((value, need.limit))
        message = f"{need.what} of {launch.kernel.string_value()} is beyond 32-bit indices; compile with index_bits=64"
        op = dispatch.CheckOp(value, "<=", need.limit, message, index_range=True)
        set_location(op, launch)
        program.body.block.insert_op_before(op, first)


@register_pass
@dataclass(frozen=True)
class SetIndexWidthPass(ModulePass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        checked: dict[str, tuple[Need, ...]] = {}
        for kernel in op.body.block.ops:
            if isinstance(kernel, dispatch.KernelOp) and INDEX_BITS not in kernel.attributes:
                bits, checked[kernel.sym_name.data] = index_width(decided(kernel).nest_of(loop_nest(kernel)))
                if bits == WIDE:
                    kernel.attributes[INDEX_BITS] = builtin.IntegerAttr(WIDE, builtin.i64)
        for program in op.body.block.ops:
            if isinstance(program, dispatch.ProgramOp):
                known: set[tuple[Expr, int]] = set()
                for launch in list(program.body.block.ops):
                    if isinstance(launch, dispatch.LaunchOp):
                        _check(program, launch, checked.get(launch.kernel.string_value(), ()), known)
