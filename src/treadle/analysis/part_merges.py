"""Launches that merge the parts of a reduction, and whether the workgroups that compute them can do it."""

from collections.abc import Sequence

from treadle.analysis.indexing import dim_map
from treadle.analysis.kernel_slices import stored_part
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import MERGED_BY
from treadle.ir.core import BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.records import dataclass

IN_CLUSTER = builtin.StringAttr("cluster")
IN_TURN = builtin.StringAttr("turnstile")


@dataclass(frozen=True, slots=True)
class Merge:
    """A launch of parts and the launch that merges them. `root`: the merge; `source`: the argument of its kernel that holds the parts."""

    parts: dispatch.LaunchOp
    merging: dispatch.LaunchOp
    parts_kernel: dispatch.KernelOp
    merging_kernel: dispatch.KernelOp
    root: linalg.ops.GenericOp
    source: BlockArgument


def _marked(kernel: dispatch.KernelOp) -> linalg.ops.GenericOp | None:
    """The root of a kernel that the workgroups of the parts are to execute."""
    for op in kernel.body.block.ops:
        if isinstance(op, linalg.ops.GenericOp) and op.attributes.get(MERGED_BY) in (builtin.StringAttr("last"), IN_CLUSTER, IN_TURN):
            return op
    return None


def combining(root: linalg.ops.GenericOp) -> Operation | None:
    """The one operation by which a merge joins an accumulator (its second argument) and a part; None where its body is more than that."""
    block = root.body.block
    ops = [op for op in block.ops if not isinstance(op, linalg.ops.YieldOp)]
    is_join = len(ops) == 1 and len(block.args) == 2 and set(ops[0].operands) == set(block.args) and len(ops[0].operands) == 2
    end = block.last_op
    return ops[0] if is_join and end is not None and list(end.operands) == list(ops[0].results) else None


def _maps_fit(root: linalg.ops.GenericOp) -> bool:
    """Whether a merge reads its parts along one leading axis, which it reduces, and leaves the others in their order."""
    rank = len(root.iterator_types)
    read, written = dim_map(rank, [rank - 1, *range(rank - 1)]), dim_map(rank, range(rank - 1))
    return [attr.data for attr in root.indexing_maps.data] == [read, written]


def found_merge(merging: dispatch.LaunchOp, kernels: dict[str, dispatch.KernelOp]) -> Merge | str:
    """What a launch merges, or why the workgroups of the parts cannot."""
    kernel = kernels[merging.kernel.string_value()]
    root = _marked(kernel)
    if root is None:
        return ""
    if len(root.inputs) != 1 or len(root.outputs) != 1 or combining(root) is None:
        return "it merges several results, or by more than one operation"
    if not _maps_fit(root):
        return "there are several axes of parts"
    source = root.inputs[0]
    if not isinstance(source, BlockArgument):
        return "the parts are computed on before they are merged"
    buffer = merging.inputs[source.index]
    users = {use.operation for use in buffer.uses}
    makers = [op for op in users if isinstance(op, dispatch.LaunchOp) and any(value is buffer for value in op.outputs)]
    if len(makers) != 1 or users != {merging, makers[0]} or not isinstance(buffer.owner, dispatch.AllocOp):
        return "the parts are used elsewhere too"
    if makers[0].when != merging.when:
        return "the parts are computed in other calls than they are merged in"
    parts = kernels[makers[0].kernel.string_value()]
    if len(parts.symbols) or len(kernel.symbols):
        return "sizes are known at run time only"
    if parts.reads or kernel.reads:
        return "sizes are read at run time"
    if len(parts.blocks) != 1 or len(parts.function_type.outputs) != 1:
        return "the parts are not those of one loop"
    part, insertion = stored_part(yielded(parts)[0])
    if insertion is None or not isinstance(part.owner, Operation) or dispatch.ROOT not in part.owner.attributes:
        return "the parts are computed on before they are stored"
    return Merge(makers[0], merging, parts, kernel, root, source)


def yielded(kernel: dispatch.KernelOp) -> Sequence[SSAValue]:
    """What a kernel gives."""
    end = kernel.body.block.last_op
    return () if end is None else end.operands
