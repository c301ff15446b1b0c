"""set-index-width: how wide a kernel's indices are. The one place where this is decided.

Level: dispatch. Reads: the loop nest, the `config`, index arithmetic in bodies, `any_size`. Writes: `index_bits = 64` on `dispatch.kernel`
where 32 bits may not be enough, with a remark; else, where it depends on runtime sizes, a `dispatch.check` with `index_range` for each
size that must be within 32 bits, in every program that launches the kernel.
Leaves alone: kernels whose static sizes fit. Raises TR303 where not even 64 bits are enough.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from treadle import errors
from treadle.analysis.index_needs import Need, needs
from treadle.analysis.loop_nest import LoopNest, loop_nest
from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.context import Context
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import ModulePass, register_pass
from treadle.plan.expr import Expr, as_expr
from treadle.plan.index_range import SIZE_LIMIT, WIDE_LIMIT
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms.registry import decided

NAME: Final = "set-index-width"
INDEX_BITS: Final = "index_bits"
WIDE: Final = 64


def _refuse_beyond_64_bits(nest: LoopNest, found: Sequence[Need]) -> None:
    for need in found:
        known = need.value.as_int() if need.value is not None else None
        if known is not None and known > WIDE_LIMIT and need.limit == SIZE_LIMIT:  # the user's own arithmetic may wrap
            raise TreadleError(errors.INDEX_TOO_LARGE, location_of(nest.root.op), what=need.what, value=known)


def index_width(nest: LoopNest) -> tuple[int, tuple[Need, ...]]:
    """Bits of the kernel's indices, and what must be checked at run time for 32 to be enough. Raises TR303."""
    config = decided(nest.kernel)
    found = needs(nest, config.extents(len(nest.axes)), config.rows_together)
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
