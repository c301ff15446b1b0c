"""merge-parts: the kernel of a reduction's parts and the one that merges them become one, whose workgroups merge.

Level: dispatch. Reads: merges with `treadle.merged_by = "last"`, "cluster" or "turnstile", and the kernel that computes what they read.
Writes: one kernel in the place of the two, with the attribute `merge` (the number of its argument of counters): its consumers compute from
the root's result as if it were the merged one, and what else the merging kernel computes are further consumers. The parts stay a result,
first of all; counters are memory of the program's own. `merge_in_cluster`: workgroups with parts of one tile had better be a cluster;
`merge_in_turn`: each adds its part to a sum, which is all that the first result holds.
Leaves alone: all other kernels; with a remark, merges of several results, of several axes of parts, of runtime sizes.
"""

from treadle.analysis.indexing import tensor_of
from treadle.analysis.kernel_slices import stored_part
from treadle.analysis.part_merges import IN_CLUSTER, IN_TURN, Merge, found_merge, yielded
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import MERGED_BY
from treadle.errors import InternalError
from treadle.ir.builtin import array_ints
from treadle.ir.core import AffineMap, Attribute, Block, Region, SSAValue
from treadle.ir.dialects import builtin, linalg, tensor
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import Context, Pass, register_pass
from treadle.records import dataclass
from treadle.remarks import emit

NAME = "merge-parts"
FRESH_ALIGN = 256
"""Bytes that the memory of counters is aligned to."""


def merged_kernel(merge: Merge, name: str) -> dispatch.KernelOp:
    """The one kernel: tensors of the parts, those that the merge reads beside them, counters; the parts and what merging gives."""
    one, two = merge.parts_kernel, merge.merging_kernel
    mine = list(one.body.block.args[: one.tensor_count])
    others = [argument for argument in two.body.block.args[: two.tensor_count] if argument is not merge.source]
    counters = builtin.TensorType(builtin.i32, [1])
    index_types = [argument.type for argument in one.body.block.args[one.tensor_count :]]
    block = Block(arg_types=[*(a.type for a in (*mine, *others)), counters, *index_types])
    values: dict[SSAValue, SSAValue] = dict(zip((*mine, *others), block.args, strict=False))
    values.update(zip(one.body.block.args[one.tensor_count :], block.args[len(mine) + len(others) + 1 :], strict=True))
    _copy(one, block, values)
    in_turn = merge.root.attributes.get(MERGED_BY) == IN_TURN
    if in_turn:
        values[yielded(one)[0]] = _stored_in_one(values[yielded(one)[0]])
    stored = [values[value] for value in yielded(one)]
    part, _ = stored_part(yielded(one)[0])
    for op in two.body.block.ops:
        if op is merge.root:
            new = _as_consumer(merge.root, values[part], values[merge.root.outputs[0]], block)
            values[merge.root.results[0]] = new
        elif not isinstance(op, dispatch.YieldOp):
            block.add_op(op.clone(value_mapper=values))
    results = [values[value] for value in yielded(two)]
    block.add_op(dispatch.YieldOp([*stored, *results]))
    rows = [[row for at, row in enumerate(dispatch.text_lists(two.arg_shapes)) if at != merge.source.index]]
    rows.append([row for at, row in enumerate(dispatch.text_lists(two.arg_strides)) if at != merge.source.index])
    aligns = [align for at, align in enumerate(array_ints(two.arg_align)) if at != merge.source.index]
    attributes: dict[str, Attribute] = dict(one.attributes)
    attributes[dispatch.MERGE] = builtin.IntegerAttr(len(mine) + len(others), builtin.i64)
    if merge.root.attributes.get(MERGED_BY) == IN_CLUSTER:
        attributes[dispatch.MERGE_IN_CLUSTER] = builtin.UnitAttr()
    shapes = dispatch.text_lists(one.result_shapes)
    if in_turn:
        attributes[dispatch.MERGE_IN_TURN] = builtin.UnitAttr()
        shapes = [["1", *shapes[0][1:]], *shapes[1:]]
    kernel = dispatch.KernelOp(
        name,
        Region(block),
        [*(value.type for value in stored), *two.function_type.outputs],
        symbols=(),
        blocks=one.blocks,
        arg_shapes=[*dispatch.text_lists(one.arg_shapes), *rows[0], ["1"]],
        arg_strides=[*dispatch.text_lists(one.arg_strides), *rows[1], ["1"]],
        arg_align=[*array_ints(one.arg_align), *aligns, FRESH_ALIGN],
        result_shapes=[*shapes, *dispatch.text_lists(two.result_shapes)],
        result_strides=[*dispatch.text_lists(one.result_strides), *dispatch.text_lists(two.result_strides)],
        result_align=[*array_ints(one.result_align), *array_ints(two.result_align)],
        attributes=attributes,
    )
    set_location(kernel, one)
    return kernel


def _copy(kernel: dispatch.KernelOp, block: Block, values: dict[SSAValue, SSAValue]) -> None:
    for op in kernel.body.block.ops:
        if not isinstance(op, dispatch.YieldOp):
            block.add_op(op.clone(value_mapper=values))


def _stored_in_one(parts: SSAValue) -> SSAValue:
    """The insertion of a part, the first, where there is room for one."""
    part, insertion = stored_part(parts)
    kind = tensor_of(parts)
    if insertion is None or kind is None:
        raise InternalError("a part that is not stored among others")
    one = builtin.TensorType(kind.element_type, [1, *kind.get_shape()[1:]])
    empty = tensor.EmptyOp((), one)
    rank = one.get_num_dims()
    new = tensor.InsertSliceOp.from_static_parameters(part, empty.tensor, [0] * rank, one.get_shape(), [1] * rank)
    block = insertion.parent
    if block is None:
        raise InternalError("an insertion outside a kernel")
    for op in (empty, new):
        set_location(op, insertion)
        block.insert_op_before(op, insertion)
    block.erase_op(insertion)
    return new.result


def _as_consumer(root: linalg.ops.GenericOp, total: SSAValue, initial: SSAValue, block: Block) -> SSAValue:
    """The merge with its initial values, elementwise: what is left of it where the parts are merged already."""
    kind = tensor_of(root.results[0])
    if kind is None:
        raise InternalError("a merge of what is no tensor")
    rank = kind.get_num_dims()
    body = Block(arg_types=[*(argument.type for argument in root.body.block.args), kind.element_type])
    inner: dict[SSAValue, SSAValue] = dict(zip(root.body.block.args, body.args, strict=False))
    for op in root.body.block.ops:
        body.add_op(op.clone(value_mapper=inner))
    empty = tensor.EmptyOp((), kind)
    maps = [builtin.AffineMapAttr(AffineMap.identity(rank))] * 3
    parallel = [linalg.attrs.IteratorTypeAttr(linalg.attrs.IteratorType("parallel"))] * rank
    new = linalg.ops.GenericOp([total, initial], [empty.tensor], Region(body), maps, parallel, [kind])
    new.attributes[dispatch.MERGE] = builtin.UnitAttr()
    set_location(new, root)
    block.add_ops([empty, new])
    return new.results[0]


def _launch(merge: Merge, kernel: dispatch.KernelOp) -> None:
    """One launch in the place of the two, with counters."""
    anchor, first = merge.merging, merge.parts
    if dispatch.MERGE_IN_TURN in kernel.attributes:
        space = first.outputs[0].owner
        if not isinstance(space, dispatch.AllocOp):
            raise InternalError("parts in memory that is not the program's own")
        space.properties["shape"] = dispatch.strings(dispatch.text_lists(kernel.result_shapes)[0])
    others = [value for at, value in enumerate(anchor.inputs) if at != merge.source.index]
    counters = dispatch.AllocOp(["1"], dispatch.BufferType(builtin.i32), counters=True)
    launch = dispatch.LaunchOp(
        kernel.sym_name.data, [*first.inputs, *others, counters.result], [*first.outputs, *anchor.outputs], anchor.symbol_values()
    )
    if anchor.when is not None:
        launch.properties["when"] = anchor.when
    block = anchor.parent
    if block is None:
        raise InternalError("a launch outside a program")
    for new in (counters, launch):
        set_location(new, anchor)
        block.insert_op_before(new, anchor)
    for old in (anchor, first):
        block.erase_op(old)


@register_pass
@dataclass(frozen=True)
class MergePartsPass(Pass):
    """See the module's docstring."""

    name = NAME

    def apply(self, ctx: Context, module: builtin.ModuleOp, /) -> None:
        """Merge what is asked for."""
        kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)}
        made: dict[tuple[str, str], dispatch.KernelOp] = {}
        for program in [op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp)]:
            for launch in [op for op in program.body.block.ops if isinstance(op, dispatch.LaunchOp)]:
                self._merge(module, launch, kernels, made)

    def _merge(
        self,
        module: builtin.ModuleOp,
        launch: dispatch.LaunchOp,
        kernels: dict[str, dispatch.KernelOp],
        made: dict[tuple[str, str], dispatch.KernelOp],
    ) -> None:
        """Merge what one launch does. `made`: the kernels made so far of the same parts and the same merging kernel."""
        found = found_merge(launch, kernels)
        if isinstance(found, str):
            if found:
                what = f"parts are merged by a kernel of its own: {found}"
                emit("refusal", NAME, launch.kernel.string_value(), what, location_of(launch))
            return
        place = location_of(found.root)
        names = (found.parts_kernel.sym_name.data, found.merging_kernel.sym_name.data)
        if (kernel := made.get(names)) is None:
            others = sum(parts == names[0] for parts, _ in made)
            kernel = made[names] = merged_kernel(found, f"{names[0]}_merged{others or ''}")
            module.body.block.insert_op_before(kernel, found.parts_kernel)
        _launch(found, kernel)
        used = {op.kernel.string_value() for op in module.walk() if isinstance(op, dispatch.LaunchOp)}
        for old in (found.parts_kernel, found.merging_kernel):
            if old.sym_name.data not in used:
                module.body.block.detach_op(old)
                old.erase(drop_references=True)
        how = "add its parts, each in its turn" if dispatch.MERGE_IN_TURN in kernel.attributes else "merge its parts"
        emit("decision", NAME, kernel.sym_name.data, f"the workgroups that share a result {how}", place)
