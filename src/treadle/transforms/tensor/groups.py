"""Groups of generics that become one kernel each, while they are being decided."""

from dataclasses import field
from typing import Literal

from treadle.analysis.data_flow import DataFlow
from treadle.analysis.indexing import view_of
from treadle.analysis.kernel_structure import consumer_loops, result_axes
from treadle.analysis.operation_marks import origin_of
from treadle.ir.ancestry import in_block
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import linalg
from treadle.ir.locations import location_of
from treadle.records import dataclass
from treadle.remarks import emit

NAME = "set-dispatch-groups"


@dataclass(eq=False, slots=True)
class Group:
    """One kernel to be: `roots` (several where contractions share an operand), `consumers` of their results, `producers` (copied in).

    `name`: the user's, or None while it has none. `is_rows`: it is a kernel of rows and takes no more consumers. `axes`: for each result
    of a member, which loop of the roots each of its axes walks.
    """

    name: str | None = None
    roots: list[linalg.ops.GenericOp] = field(default_factory=list[linalg.ops.GenericOp])
    consumers: list[linalg.ops.GenericOp] = field(default_factory=list[linalg.ops.GenericOp])
    producers: list[linalg.ops.GenericOp] = field(default_factory=list[linalg.ops.GenericOp])
    axes: dict[SSAValue, tuple[int, ...]] = field(default_factory=dict[SSAValue, tuple[int, ...]])
    is_rows: bool = False

    @property
    def root(self) -> linalg.ops.GenericOp:
        """The first root: the kernel is named and described by it."""
        return self.roots[0]

    @property
    def members(self) -> list[linalg.ops.GenericOp]:
        """Roots, then consumers: what no other kernel computes."""
        return [*self.roots, *self.consumers]

    def add_root(self, op: linalg.ops.GenericOp) -> None:
        """Take a root in."""
        view = view_of(op)
        self.roots.append(op)
        self.axes.update(result_axes(view, range(view.rank)))

    def follow(self, op: linalg.ops.GenericOp) -> None:
        """Tell the axes of a consumer's results, where those of what it reads tell them."""
        view = view_of(op)
        if (loops := consumer_loops(view, self.axes)) is not None:
            self.axes.update(result_axes(view, loops))

    def operations(self) -> list[linalg.ops.GenericOp]:
        """Everything the kernel computes, what is read before what reads it."""
        return [*self.producers, *self.members]

    def in_order(self, grouping: "Grouping") -> "list[linalg.ops.GenericOp]":
        """The same, in program order where a root reads what another member computes."""
        results = {result for op in self.members for result in op.results}
        chained = any(value in results for root in self.roots for value, _ in view_of(root).operands())
        return sorted(self.operations(), key=grouping.flow.position) if chained else self.operations()


@dataclass(eq=False, slots=True)
class Grouping:
    """The groups of one block, in order of their roots."""

    flow: DataFlow
    groups: list[Group] = field(default_factory=list[Group])
    owner: dict[Operation, Group] = field(default_factory=dict[Operation, Group])
    absorbed: set[Operation] = field(default_factory=set[Operation])
    """Producers that live only inside groups."""
    _said: set[tuple[Operation, Operation]] = field(default_factory=set[tuple[Operation, Operation]])

    @property
    def nodes(self) -> list[linalg.ops.GenericOp]:
        """The generics of the block, in program order."""
        return self.flow.nodes

    def free(self, op: Operation) -> bool:
        """Whether no group has taken the operation."""
        return op not in self.owner and op not in self.absorbed

    def needed_outside(self, result: SSAValue, group: Group) -> bool:
        """Whether something other than `group` reads the result: other groups that compute it themselves do not."""
        for use in result.uses:
            holders = self.holders(in_block(use.operation, self.flow.block))
            if not holders or any(result.owner not in other.operations() for other in holders if other is not group):
                return True
        return False

    def holders(self, op: Operation | None) -> list[Group]:
        """The groups that compute an operation."""
        return [group for group in self.groups if op in group.operations()]

    def last_position(self, group: Group) -> int:
        """Place of a group's last member in program order."""
        return max(self.flow.position(op) for op in group.members)

    def start(self, root: linalg.ops.GenericOp) -> Group:
        """A new group around an operation."""
        group = Group()
        group.add_root(root)
        self.groups.append(group)
        self.owner[root] = group
        return group

    def join(self, group: Group, op: linalg.ops.GenericOp, why: str) -> None:
        """Let an operation join a group: as a root where it was one of a group of its own, else as a consumer."""
        if op in self.owner:
            self.groups.remove(self.owner[op])
            group.add_root(op)
        else:
            group.consumers.append(op)
            group.follow(op)
        self.owner[op] = group
        self.say("decision", group, op, f"{line_of(op)} joins the kernel of {line_of(group.root)}: {why}")

    def say(self, kind: Literal["decision", "refusal"], group: Group, op: Operation, text: str) -> None:
        """Emit a remark about an operation at its line, once for each group."""
        if (group.root, op) not in self._said:
            self._said.add((group.root, op))
            emit(kind, NAME, origin_of(group.root), text, location_of(op))


def line_of(op: Operation) -> str:
    """What an operation is and where it stands, for remarks."""
    place = location_of(op)
    return f"{origin_of(op)} (line {place.line})" if place else origin_of(op)


def closes_cycle(grouping: Grouping, group: Group, added: Operation, *, consumer: bool) -> bool:
    """Whether the group with `added` would read something that is computed from the group's own results outside it.

    Other groups count as one operation each: they need all their inputs before any of their results exists.
    """
    inside: set[Operation] = {*group.members, *group.producers, added}
    results: set[Operation] = {*group.members, added} if consumer else {*group.members}
    pending = [owner for op in inside for owner in grouping.flow.sources(op) if owner not in inside]
    seen: set[Operation] = set()
    while pending:
        op = pending.pop()
        if op in results:
            return True
        if op in seen:
            continue
        seen.add(op)
        other = grouping.owner.get(op)
        sources = [op] if other is None or other is group else other.operations()
        for source in sources:
            pending.extend(owner for owner in grouping.flow.sources(source) if owner not in sources)
    return False
