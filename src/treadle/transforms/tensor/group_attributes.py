"""`dispatch.group` attributes: read into groups, written from them, and checked, whoever has written them.

The attribute says of one operation which kernels compute it, and as what. It binds the compiler: such an operation is in these groups and
in no other. Operations without it are the compiler's to place, in groups that the user has named too.
"""

from treadle import errors
from treadle.analysis.attention_structure import is_chain
from treadle.analysis.data_flow import DataFlow
from treadle.analysis.indexing import view_of
from treadle.analysis.kernel_structure import unbuildable
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.sizes import cannot_compile
from treadle.dialects import dispatch
from treadle.errors import InternalError, TreadleError
from treadle.ir.core import Block, Operation
from treadle.ir.dialects import func, linalg
from treadle.ir.locations import location_of
from treadle.ir.ordering import NeedsItselfError, dependence_order
from treadle.transforms.tensor.groups import Group, Grouping, line_of


def group_of(op: Operation) -> dispatch.GroupAttr | None:
    """The attribute of an operation. Raises `TreadleError` TR305 where something else stands in its place."""
    attr = op.attributes.get(dispatch.GROUP)
    if attr is not None and not isinstance(attr, dispatch.GroupAttr):
        raise _invalid(op, f"{attr} names no groups", "write #dispatch.group<name = root>, or consumer or producer")
    return attr


def _invalid(op: Operation, reason: str, fix: str) -> TreadleError:
    return TreadleError(errors.GROUP, location_of(op), op=origin_of(op), reason=reason, fix=fix)


def check_places(function: func.FuncOp, *also: type[Operation]) -> None:
    """Raise `TreadleError` TR305 where something else than a `linalg.generic`, or one of `also`, carries the attribute."""
    for op in function.walk():
        if not isinstance(op, (linalg.ops.GenericOp, *also)) and group_of(op) is not None:
            fix = "write it on linalg operations and arithmetic on tensors: moving data and sizes are the host program's"
            raise _invalid(op, "no kernel is formed of this operation", fix)


def named_groups(block: Block) -> Grouping:
    """The groups that attributes name, in order of their first roots; consumers and producers are in program order.

    Raises `TreadleError` TR305 for an operation with two groups that would each compute it for all others, and for groups without a root.
    """
    grouping = Grouping(DataFlow(block))
    by_name: dict[str, Group] = {}
    for op in grouping.nodes:
        if (attr := group_of(op)) is None:
            continue
        owners = (*attr.role("root"), *attr.role("consumer"))
        if len(owners) > 1:
            fix = "let it be the root or a consumer of one group, a producer of others"
            raise _invalid(op, f"both '{owners[0]}' and '{owners[1]}' compute it", fix)
        for name, role in attr.data:
            group = by_name.setdefault(name, Group(name))
            match role:
                case "root":
                    group.add_root(op)
                case "consumer":
                    group.consumers.append(op)
                case "producer":
                    group.producers.append(op)
            if role != "producer":
                grouping.owner[op] = group
        if not owners:
            grouping.absorbed.add(op)
    for group in by_name.values():
        if not group.roots:
            fix = "let one operation of the group be its root: the contraction or reduction, or the first of elementwise operations"
            raise _invalid(group.operations()[0], f"group '{group.name}' has no root", fix)
    grouping.groups = sorted(by_name.values(), key=lambda group: grouping.flow.position(group.root))
    return grouping


def write_groups(grouping: Grouping) -> None:
    """Name the groups that have no name yet, and write the attribute of every operation."""
    taken = {group.name for group in grouping.groups}
    names = (name for number in range(2 * len(grouping.groups)) if (name := f"g{number}") not in taken)
    found: dict[Operation, list[tuple[str, dispatch.GroupRole]]] = {op: [] for op in grouping.nodes}
    for group in grouping.groups:
        group.name = name = group.name or next(names)
        roles: dict[dispatch.GroupRole, list[linalg.ops.GenericOp]] = {
            "root": group.roots,
            "consumer": group.consumers,
            "producer": group.producers,
        }
        for role, operations in roles.items():
            for op in operations:
                found[op].append((name, role))
    for op, memberships in found.items():
        op.attributes[dispatch.GROUP] = dispatch.GroupAttr(tuple(memberships))


def formed_groups(block: Block) -> Grouping:
    """The groups of a block all of whose operations have the attribute.

    Raises `TreadleError` TR304 for what cannot be one kernel, TR305 for attributes that contradict each other or the data flow.
    """
    grouping = named_groups(block)
    for op in grouping.nodes:
        if grouping.free(op):
            raise _invalid(op, "it has none, so no kernel computes it", "run set-dispatch-groups before form-dispatches")
    for group in grouping.groups:
        _check_kernel(grouping, group)
    for op in grouping.nodes:
        if op not in grouping.owner:
            _check_recomputed(grouping, op)
        _check_blocks(grouping, op)
    _check_order(grouping)
    return grouping


def _refused(group: Group, op: Operation, reason: str) -> TreadleError:
    what = f"dispatch group '{group.name}' around {line_of(group.root)}"
    fix = "give this operation a dispatch.group of its own, or none, so that the compiler decides"
    return TreadleError(errors.NOT_ONE_KERNEL, location_of(op), what=what, op=origin_of(op), reason=reason, fix=fix)


def _check_kernel(grouping: Grouping, group: Group) -> None:
    operations = sorted(group.operations(), key=grouping.flow.position)
    if (found := unbuildable([view_of(op) for op in operations], group.roots)) is not None:
        raise _refused(group, found.op, found.reason)
    for root in () if is_chain(group.roots) else group.roots[1:]:
        if not any(grouping.flow.meet(other, root) for other in group.roots) and not grouping.flow.equal_sizes(group.root, root):
            raise _refused(group, root, f"its result is not known to have the size of the result of {line_of(group.root)}")
    read = {value.owner for op in operations for value, _ in view_of(op).operands()}
    for op in group.producers:
        if op not in read:
            raise _refused(group, op, "nothing in the group reads it")
    for op in group.consumers:
        if not any(value in member.results for member in group.members for value, _ in view_of(op).operands()):
            raise _refused(group, op, "it reads nothing that the group computes")


def _check_recomputed(grouping: Grouping, op: linalg.ops.GenericOp) -> None:
    """What is in groups as a producer only has no memory of its own: whoever reads it computes it."""
    for reader in grouping.flow.readers(op.results):
        holders = grouping.holders(reader)
        if not holders or any(op not in group.producers for group in holders):
            fix = "let it be the root of a group too, so that its result is stored"
            raise _invalid(op, f"{line_of(reader)} reads it, where no group computes it as a producer", fix)


def _check_blocks(grouping: Grouping, op: Operation) -> None:
    """What is computed block by block has no memory but where the blocks' insertions put it."""
    blocks = grouping.flow.blocks_of(op)
    if not blocks:
        return
    group = grouping.owner.get(op)
    for member in group.members if group is not None else ():
        if grouping.flow.blocks_of(member) != blocks:
            raise _invalid(member, f"{line_of(op)} of its group is computed in other blocks", "give it a group of its own")
    if group is None:
        return
    outside = [result for result in op.results if grouping.needed_outside(result, group)]
    for reader in grouping.flow.readers(outside):
        if dispatch.ALL_BLOCKS not in reader.attributes and reader not in group.operations():
            hint = "compute in one scf.forall what one kernel can: a contraction or reduction and elementwise operations around it"
            raise cannot_compile(reader, what=f"'{origin_of(op)}' in a 'scf.forall' whose result another kernel needs,", hint=hint)


def _check_order(grouping: Grouping) -> None:
    """Raise TR304 where groups wait for each other: a group needs all it reads before it computes anything."""
    starts: list[Operation | Group] = [*grouping.groups]
    try:
        dependence_order(starts, lambda node: _needed(grouping, node))
    except NeedsItselfError as error:
        raise _waits_for_itself(grouping, *(*error.path, error.path[0])[:2]) from None


def _needed(grouping: Grouping, node: Operation | Group) -> list[Operation | Group]:
    """The groups and other operations that must be complete before `node` begins."""
    operations: list[Operation] = [*node.operations()] if isinstance(node, Group) else [node]
    sources = (source for op in operations for source in grouping.flow.sources(op) if source not in operations)
    return list(dict.fromkeys(grouping.owner.get(source) or source for source in sources))


def _waits_for_itself(grouping: Grouping, node: Operation | Group, needed: Operation | Group) -> TreadleError:
    if not isinstance(node, Group):
        raise InternalError(f"{node.name} depends on its own result")
    reader = next(op for op in node.operations() if any((grouping.owner.get(s) or s) is needed for s in grouping.flow.sources(op)))
    what = line_of(needed.root if isinstance(needed, Group) else needed)
    more = "; and no kernel form builds chains of roots yet" if reader in node.roots else ""
    return _refused(node, reader, f"it needs {what}, which is computed from results of this group elsewhere{more}")
