"""form-dispatches: every computation of a function goes into a `dispatch.region`, one for each of its dispatch groups.

Level: tensor, after set-dispatch-groups. Reads: generics with their `dispatch.group`, fills, the values they use.
Writes: `dispatch.region` holding copies of a group's generics with their `tensor.empty` and `linalg.fill` initial values; roots carry
`dispatch.root`, the region `origin`. The block is reordered so that values are defined before uses.
Leaves alone: slices, reshapes, constants and index arithmetic, which the host program handles.
Refuses with TR304 groups that cannot be one kernel, with TR305 groups that contradict each other or leave a computation out; with TR301 and
TR302 what no kernel can hold (`analysis/supported.py`).
"""

from typing import ClassVar

from treadle.analysis.indexing import tensor_of, view_of
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.placement import block_destination
from treadle.analysis.supported import check_supported
from treadle.dialects import dispatch
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.locations import set_location
from treadle.ir.ordering import sort_by_definition
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import erase_dead
from treadle.transforms.tensor.group_attributes import formed_groups
from treadle.transforms.tensor.groups import Group, Grouping


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
    for op in group.in_order(grouping):
        view = view_of(op)
        for value in view.outputs:
            if value.owner not in inside:
                builder.initial(value)
        for value in view.inputs:  # nothing but its shape is read
            if isinstance(value.owner, tensor.EmptyOp):
                builder.initial(value)
        copy = builder.copy(op)
        del copy.attributes[dispatch.GROUP]  # the region says it, and equal kernels are to have equal texts
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
    return inside.isdisjoint((operation, *ancestors(operation)))


def _destinations(op: Operation) -> list[SSAValue]:
    """The tensors that results of blocks are inserted into: the kernel writes there itself."""
    if not isinstance(op, dispatch.RegionOp):
        return []
    users = [use.operation for result in op.results for use in result.uses if use.index == 0]
    return [block_destination(user) for user in users if isinstance(user, tensor.InsertSliceOp) and dispatch.ALL_BLOCKS in user.attributes]


@register_pass
@dataclass(frozen=True)
class FormDispatchesPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "form-dispatches"

    def run(self, function: func.FuncOp) -> None:
        """Form the regions of one function."""
        check_supported(function)
        block = function.body.block
        grouping = formed_groups(block)
        made = [(group, *make_region(group, grouping)) for group in sorted(grouping.groups, key=grouping.last_position)]
        for group, region, exported in made:
            if not exported:
                continue
            inside: set[Operation] = set(group.operations())
            block.insert_op_after(region, max(group.members, key=grouping.flow.position))
            for old, new in zip(exported, region.results, strict=True):
                old.replace_uses_with_if(new, lambda use, inside=inside: _outside(use.operation, inside))
        # The generics read each other only now; from the last to the first nobody reads them any more.
        for op in reversed(grouping.nodes):
            block.erase_op(op)
        sort_by_definition(block, _destinations)
        erase_dead(function)
