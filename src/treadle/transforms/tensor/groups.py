"""Groups of generics that become one kernel each, while they are being decided, and questions about the data flow around them."""

from dataclasses import field

from treadle.analysis.kernel_structure import consumer_loops, result_axes
from treadle.analysis.operation_marks import origin_of
from treadle.dialects import dispatch
from treadle.ir.ancestry import in_block
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import linalg
from treadle.ir.locations import location_of
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.generics import view_of

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
        return sorted(self.operations(), key=grouping.position) if chained else self.operations()


@dataclass(eq=False, slots=True)
class Grouping:
    """The groups of one block, in order of their roots."""

    block: Block
    nodes: list[linalg.ops.GenericOp]
    groups: list[Group] = field(default_factory=list[Group])
    owner: dict[Operation, Group] = field(default_factory=dict[Operation, Group])
    absorbed: set[Operation] = field(default_factory=set[Operation])
    """Producers that live only inside groups."""
    said: set[tuple[Operation, Operation]] = field(default_factory=set[tuple[Operation, Operation]])
    _blocks: dict[Operation, frozenset[Operation]] = field(default_factory=dict[Operation, "frozenset[Operation]"])
    _sources: dict[Operation, list[Operation]] = field(default_factory=dict[Operation, "list[Operation]"])

    def sources(self, op: Operation) -> list[Operation]:
        """The operations outside `op` whose results it reads; kept, since every question about cycles asks again."""
        if op not in self._sources:
            self._sources[op] = [owner for value in captured(op) if (owner := defining(value)) is not None]
        return self._sources[op]

    def blocks_of(self, op: Operation) -> frozenset[Operation]:
        """The block indices that an operation is computed from: none of what was no loop of blocks, and none behind its insertions."""
        if op not in self._blocks:
            if dispatch.ALL_BLOCKS in op.attributes:
                self._blocks[op] = frozenset()
            elif isinstance(op, dispatch.BlockIndexOp):
                self._blocks[op] = frozenset((op,))
            else:
                self._blocks[op] = frozenset().union(*(self.blocks_of(source) for source in self.sources(op)))
        return self._blocks[op]

    def free(self, op: Operation) -> bool:
        """Whether no group has taken the operation."""
        return op not in self.owner and op not in self.absorbed

    def needed_outside(self, result: SSAValue, group: Group) -> bool:
        """Whether something other than `group` reads the result: other groups that compute it themselves do not."""
        for use in result.uses:
            user = in_block(use.operation, self.block)
            holders = [other for other in self.groups if user in other.operations()]
            if not holders or any(result.owner not in other.operations() for other in holders if other is not group):
                return True
        return False

    def position(self, op: Operation) -> int:
        """Place of a generic in program order."""
        return self.nodes.index(op) if isinstance(op, linalg.ops.GenericOp) else -1

    def last_position(self, group: Group) -> int:
        """Place of a group's last member in program order."""
        return max(self.position(op) for op in group.members)


def say(kind: str, subject: Operation, other: Operation, text: str, grouping: Grouping) -> None:
    """Emit a remark about `other` at its line, once for each pair."""
    if (subject, other) not in grouping.said:
        grouping.said.add((subject, other))
        emit("decision" if kind == "decision" else "refusal", NAME, origin_of(subject), text, location_of(other))


def line_of(op: Operation) -> str:
    """What an operation is and where it stands, for remarks."""
    place = location_of(op)
    return f"{origin_of(op)} (line {place.line})" if place else origin_of(op)


def defining(value: SSAValue) -> Operation | None:
    """The operation that makes a value; None for block arguments."""
    return value.owner if isinstance(value.owner, Operation) else None


def captured(op: Operation) -> list[SSAValue]:
    """Every value that `op` and what is nested in it reads from outside."""
    inside = set(op.walk())
    found: list[SSAValue] = []
    for inner in op.walk():
        for operand in inner.operands:
            owner = operand.owner
            holder = owner if isinstance(owner, Operation) else owner.parent_op()
            if holder not in inside:
                found.append(operand)
    return found


def closes_cycle(grouping: Grouping, group: Group, added: Operation, *, consumer: bool) -> bool:
    """Whether the group with `added` would read something that is computed from the group's own results outside it.

    Other groups count as one operation each: they need all their inputs before any of their results exists.
    """
    inside: set[Operation] = {*group.members, *group.producers, added}
    results: set[Operation] = {*group.members, added} if consumer else {*group.members}
    pending = [owner for op in inside for owner in grouping.sources(op) if owner not in inside]
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
            pending.extend(owner for owner in grouping.sources(source) if owner not in sources)
    return False
