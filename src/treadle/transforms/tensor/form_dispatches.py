"""form-dispatches: every computation of a function goes into a `dispatch.region`, one for each kernel to be.

Level: tensor, after normalize-generics and fold-data-movement. Reads: generics, fills, the values they use.
Writes: `dispatch.region` holding copies of a group's generics with their `tensor.empty` and `linalg.fill` initial values (`grouping.py`
decides the groups); roots carry `dispatch.root`, the region `origin`. The block is reordered so that values are defined before uses.
Leaves alone: slices, reshapes, constants and index arithmetic, which the host program handles.
Refuses with TR302 reductions onto `tensor.empty`; with TR301 loops and branches on tensors, operations without a kernel, results that are
no projection of the loops, index expressions with division or remainder, elements of type `index`.
"""

from dataclasses import dataclass
from typing import ClassVar

from treadle import errors
from treadle.analysis.indexing import is_linear, is_projection, map_dims, tensor_of
from treadle.analysis.shapes import is_number_argument, unsupported
from treadle.analysis.sizes import cannot_compile
from treadle.dialects import dispatch
from treadle.errors import InternalError, TreadleError
from treadle.ir.context import Context
from treadle.ir.core import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import ModulePass, register_pass
from treadle.transforms.tensor.generics import erase_dead, functions, origin_of, view_of
from treadle.transforms.tensor.grouping import group_generics
from treadle.transforms.tensor.groups import Group, Grouping, captured

HOST_OPERATIONS = frozenset(
    {
        "tensor.empty",
        "tensor.dim",
        "tensor.cast",
        "tensor.extract_slice",
        "tensor.insert_slice",
        "tensor.expand_shape",
        "tensor.collapse_shape",
        "tensor.reshape",
        "linalg.fill",
        "linalg.generic",
        "func.return",
        "dispatch.region",
    }
)
"""What may stand in a function besides index and scalar arithmetic."""


def check_supported(function: func.FuncOp) -> None:
    """Raise `TreadleError` TR301 at the first operation that neither a kernel nor the host program can hold."""
    if len(function.body.blocks) != 1:
        raise cannot_compile(
            function,
            what=f"function '{function.sym_name.data}' with branches",
            hint="write one straight block",
        )
    for op in function.body.block.ops:
        if isinstance(op, tensor.ExtractOp) and is_number_argument(op.tensor):
            continue  # the host reads it
        if op.name not in HOST_OPERATIONS and op.name.split(".")[0] not in ("arith", "math", "affine"):
            raise unsupported(op)
        if (
            op.name.split(".")[0] in ("arith", "math")
            and op.name != "arith.constant"
            and any(isinstance(r.type, builtin.TensorType) for r in op.results)
        ):
            raise unsupported(op)
        if isinstance(op, linalg.ops.GenericOp):
            _check_generic(op)


def _check_generic(op: linalg.ops.GenericOp) -> None:
    view = view_of(op)
    if not op.results:
        raise cannot_compile(op, what="linalg on memrefs", hint="write the program on tensors")
    first = map_dims(view.output_maps[0])
    for map_ in view.output_maps:
        dims = map_dims(map_)
        if dims is None or not is_projection(map_) or set(dims) != set(view.parallel_dims) or set(dims) != set(first or ()):
            raise cannot_compile(
                op,
                what=f"'linalg.{origin_of(op)}' with the result map {map_}",
                hint="let each parallel loop be one axis of every result, and reductions none",
            )
    read = [argument for value, argument in zip(op.operands, op.body.block.args, strict=True) if isinstance(value.owner, tensor.EmptyOp)]
    if any(argument.uses or (not view.is_parallel and argument.index >= len(op.inputs)) for argument in read):
        does = "reads" if view.is_parallel else "reduces onto"
        raise TreadleError(errors.NO_INITIAL_VALUE, location_of(op), name=f"linalg.{origin_of(op)}", does=does)
    for map_ in view.input_maps:
        if not all(is_linear(expr) for expr in map_.results):
            raise cannot_compile(
                op,
                what=f"'linalg.{origin_of(op)}' that reads through {map_}",
                hint="index with sums of loops and constants times loops; split an axis with tensor.expand_shape instead of dividing",
            )
    for value in (*op.inputs, *op.outputs):
        if (type_ := tensor_of(value)) is not None and isinstance(type_.element_type, builtin.IndexType):
            raise cannot_compile(
                op,
                what=f"'linalg.{origin_of(op)}' on elements of type index",
                hint="use i32 or i64 elements, and arith.index_cast in the body",
            )
    for inner in view.body.walk():
        known = isinstance(inner, linalg.ops.YieldOp | linalg.ops.IndexOp | tensor.ExtractOp)
        if inner.name.split(".")[0] not in ("arith", "math") and not known:
            raise cannot_compile(
                inner,
                what=f"'{inner.name}' inside linalg.generic",
                hint="use arith, math, linalg.index and tensor.extract there",
            )
    for value in captured(op):
        if not isinstance(value.type, builtin.TensorType | builtin.IndexType):
            raise cannot_compile(
                op,
                what="a scalar that is computed outside of linalg.generic from data",
                hint="compute it inside the body, or pass it as a tensor of one element",
            )


@dataclass(slots=True)
class RegionBuilder:
    """The region of one group under construction."""

    block: Block
    mapping: dict[SSAValue, SSAValue]

    def initial(self, value: SSAValue) -> None:
        """Copy `tensor.empty` and `linalg.fill`, with the scalar arithmetic it fills with, into the region."""
        owner = value.owner
        if value in self.mapping or not isinstance(owner, Operation):
            return
        scalar = owner.name.split(".")[0] in ("arith", "math") and tensor_of(value) is None
        if isinstance(value.type, builtin.IndexType) and not isinstance(owner, arith.ConstantOp):
            return
        if isinstance(owner, linalg.ops.FillOp) or scalar:
            for operand in owner.operands:
                self.initial(operand)
        elif not isinstance(owner, tensor.EmptyOp):
            return
        self.copy(owner)

    def copy(self, op: Operation) -> Operation:
        """Append a copy of `op` that reads the region's copies."""
        new = op.clone(value_mapper=self.mapping)
        set_location(new, op)
        self.block.add_op(new)
        for old, result in zip(op.results, new.results, strict=True):
            self.mapping[old] = result
        return new


def make_region(group: Group, grouping: Grouping) -> tuple[dispatch.RegionOp, list[SSAValue]]:
    """The region of a group and the values of the function that its results replace."""
    builder = RegionBuilder(Block(), {})
    inside: set[Operation] = set(group.operations())
    for op in group.operations():
        view = view_of(op)
        for value in view.outputs:
            if value.owner not in inside:
                builder.initial(value)
        copy = builder.copy(op)
        if op in group.roots:
            copy.attributes[dispatch.ROOT] = builtin.UnitAttr()
    exported: list[SSAValue] = [result for op in group.members for result in op.results if grouping.needed_outside(result, group)]
    builder.block.add_op(last := dispatch.YieldOp([builder.mapping[value] for value in exported]))
    set_location(last, group.root)
    origin: dict[str, Attribute] = {"origin": builtin.StringAttr(origin_of(group.root))}
    region = dispatch.RegionOp([value.type for value in exported], Region(builder.block), origin)
    set_location(region, group.root)
    for old, new in zip(exported, region.results, strict=True):
        new.name_hint = old.name_hint
    return region, exported


def _outside(operation: Operation, inside: set[Operation]) -> bool:
    current: Operation | None = operation
    while current is not None:
        if current in inside:
            return False
        current = current.parent_op()
    return True


def form_in_function(function: func.FuncOp) -> None:
    """Form the regions of one function."""
    check_supported(function)
    block = function.body.block
    grouping = group_generics(block)
    made = [(group, *make_region(group, grouping)) for group in grouping.groups]
    for group, region, exported in made:
        if not exported:
            continue
        inside: set[Operation] = set(group.operations())
        block.insert_op_after(region, group.members[-1])
        for old, new in zip(exported, region.results, strict=True):
            old.replace_uses_with_if(new, lambda use, inside=inside: _outside(use.operation, inside))
    # The generics read each other only now; from the last to the first nobody reads them any more.
    for op in reversed(grouping.nodes):
        block.erase_op(op)
    sort_by_definition(block)
    erase_dead(function)


def sort_by_definition(block: Block) -> None:
    """Reorder the block so that values are defined before their uses, otherwise keeping its order."""
    order: list[Operation] = []
    state: dict[Operation, int] = {}
    for start in block.ops:
        stack: list[tuple[Operation, bool]] = [(start, False)]
        while stack:
            op, leaving = stack.pop()
            if leaving:
                state[op] = 2
                order.append(op)
                continue
            if state.get(op) == 2:
                continue
            if state.get(op) == 1:
                raise InternalError(f"{op.name} depends on its own result")
            state[op] = 1
            stack.append((op, True))
            for value in reversed(captured(op)):
                owner = value.owner
                if (
                    not isinstance(value, BlockArgument)
                    and isinstance(owner, Operation)
                    and owner.parent_block() is block
                    and state.get(owner) != 2
                ):
                    stack.append((owner, False))
    for op in order:
        op.detach()
        block.add_op(op)


def form_dispatches(module: builtin.ModuleOp) -> None:
    """Form the regions of every function of `module`."""
    for function in functions(module):
        form_in_function(function)


@register_pass
@dataclass(frozen=True)
class FormDispatchesPass(ModulePass):
    """See the module's docstring."""

    name: ClassVar[str] = "form-dispatches"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        form_dispatches(op)
