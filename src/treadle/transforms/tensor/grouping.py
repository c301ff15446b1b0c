"""Which generics of a function become one kernel: pure decisions over the data-flow graph, no rewriting.

Roots take turns in program order: contractions and reductions first, then what is left of the elementwise operations. A group grows by
*consumers* (elementwise operations over the root's result space, which run on the tile while it is in registers) and by *producers*
(elementwise operations whose results only this group reads, or that cost no more to recompute than to read back). A group never closes a
cycle with another.
"""

from dataclasses import dataclass, field

from treadle.analysis.indexing import (
    Contraction,
    Copy,
    Fill,
    Reduction,
    StructuredOp,
    body_cost,
    classify,
    is_permutation,
    is_projection,
    tensor_of,
)
from treadle.ir.core import AffineMap, Block, Operation, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.ir.locations import location_of
from treadle.remarks import emit
from treadle.transforms.tensor.generics import origin_of, view_of

NAME = "form-dispatches"

CHEAP_OPERATIONS = 2
"""A contraction's operand is recomputed for every tile that reads it: only casts and scalings may be."""
BROADCAST_OPERATIONS = 8
"""What is computed once per row and recomputed for every tile of the row may cost this many operations."""
RECOMPUTED_OPERATIONS = 16
"""What several kernels recompute instead of reading it back may cost this many operations per element."""
RECOMPUTING_KERNELS = 4


@dataclass(eq=False, slots=True)
class Group:
    """One kernel to be: `members` (root and consumers) in program order, `producers` (copied in) in program order."""

    root: linalg.ops.GenericOp
    members: list[linalg.ops.GenericOp]
    producers: list[linalg.ops.GenericOp] = field(default_factory=list[linalg.ops.GenericOp])

    def operations(self) -> list[linalg.ops.GenericOp]:
        """Everything the kernel computes."""
        return [*self.producers, *self.members]


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

    def free(self, op: Operation) -> bool:
        """Whether no group has taken the operation."""
        return op not in self.owner and op not in self.absorbed

    def needed_outside(self, result: SSAValue, group: Group) -> bool:
        """Whether something other than `group` reads the result: other groups that compute it themselves do not."""
        for use in result.uses:
            user = use.operation
            while user.parent_block() is not self.block and (parent := user.parent_op()) is not None:
                user = parent
            holders = [other for other in self.groups if user in other.operations()]
            if not holders or any(result.owner not in other.operations() for other in holders if other is not group):
                return True
        return False

    def position(self, op: Operation) -> int:
        """Place of a generic in program order."""
        return self.nodes.index(op) if isinstance(op, linalg.ops.GenericOp) else -1


def group_generics(block: Block) -> Grouping:
    """Assign every generic of the block to a group. Remarks tell of every fusion made and refused."""
    nodes = [op for op in block.ops if isinstance(op, linalg.ops.GenericOp)]
    grouping = Grouping(block, nodes)
    for op in nodes:
        if isinstance(classify(op), Contraction | Reduction):
            _start(grouping, op)
    for group in list(grouping.groups):
        _grow_consumers(grouping, group)
    for group in list(grouping.groups):
        _grow_producers(grouping, group)
    for wait in (True, False):
        for op in nodes:
            if grouping.free(op) and not (wait and _better_as_producer(op)):
                group = _start(grouping, op)
                _grow_consumers(grouping, group)
                _grow_producers(grouping, group)
    grouping.groups.sort(key=lambda group: grouping.position(group.members[-1]))
    return grouping


def _start(grouping: Grouping, root: linalg.ops.GenericOp) -> Group:
    group = Group(root, [root])
    grouping.groups.append(group)
    grouping.owner[root] = group
    return group


def _say(kind: str, subject: Operation, other: Operation, text: str, grouping: Grouping) -> None:
    if (subject, other) not in grouping.said:
        grouping.said.add((subject, other))
        emit("decision" if kind == "decision" else "refusal", NAME, origin_of(subject), text, location_of(other))


def _line(op: Operation) -> str:
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
    pending = [owner for op in inside for value in captured(op) if (owner := defining(value)) is not None and owner not in inside]
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
            pending.extend(owner for value in captured(source) if (owner := defining(value)) is not None and owner not in sources)
    return False


def _grow_consumers(grouping: Grouping, group: Group) -> None:
    for op in grouping.nodes[grouping.position(group.root) + 1 :]:
        if not grouping.free(op):
            continue
        reads = [(value, map_) for value, map_ in view_of(op).operands() if defining(value) in group.members]
        if not reads:
            continue
        reason = _consumer_refusal(grouping, group, op, reads)
        if reason is None:
            group.members.append(op)
            grouping.owner[op] = group
            _say(
                "decision",
                group.root,
                op,
                f"{_line(op)} joins the kernel of {_line(group.root)}: it works on the result while it is at hand",
                grouping,
            )
        elif view_of(op).is_parallel:
            _say("refusal", group.root, op, f"{_line(op)} stays out of the kernel of {_line(group.root)}: {reason}", grouping)


def _consumer_refusal(grouping: Grouping, group: Group, op: linalg.ops.GenericOp, reads: list[tuple[SSAValue, AffineMap]]) -> str | None:
    view = view_of(op)
    if not view.is_parallel:
        return "it is a reduction or contraction itself"
    if not all(map_ == AffineMap.identity(view.rank) for map_ in view.output_maps[:1]):
        return "its result is not in the order of its loops"
    for _, map_ in reads:
        if not is_permutation(map_):
            return f"it reads the result through {map_}, so it needs more than the tile at hand"
    if closes_cycle(grouping, group, op, consumer=True):
        return "it also needs something that is computed from this kernel's results by another one"
    return None


def _users(op: Operation) -> list[tuple[Operation, SSAValue, int]]:
    return [(use.operation, result, use.index) for result in op.results for use in result.uses]


def _better_as_producer(op: linalg.ops.GenericOp) -> bool:
    """True where every reader broadcasts the result and recomputing it there is cheap."""
    users = _users(op)
    if not users or _producer_cost_refusal(op, broadcast=True) is not None:
        return False
    for user, _, index in users:
        if not isinstance(user, linalg.ops.GenericOp):
            return False
        view = view_of(user)
        if index >= len(view.inputs) or not view.is_parallel or is_permutation(view.input_maps[index]):
            return False
    return True


def _producer_cost_refusal(op: linalg.ops.GenericOp, broadcast: bool) -> str | None:
    arithmetic, transcendental = body_cost(view_of(op).body)
    if broadcast and (arithmetic > BROADCAST_OPERATIONS or transcendental > 1):
        return f"its {arithmetic} operations would be repeated for every tile that broadcasts it"
    return None


def _grow_producers(grouping: Grouping, group: Group) -> None:
    budget: dict[Operation, int] = {}
    last = grouping.position(group.members[-1])
    for op in reversed(grouping.nodes[:last]):  # readers come before what they read, so all of them are decided
        if op in group.members or op in grouping.owner or op in grouping.absorbed or not view_of(op).is_parallel:
            continue
        reads = _reads_of(op, group)
        if not reads:
            continue
        arithmetic, transcendental = body_cost(view_of(op).body)
        feeds = [budget.get(read.reader, CHEAP_OPERATIONS) for read in reads if read.repeated or read.reader in budget]
        reason = next((text for read in reads if (text := _producer_refusal(grouping, group, read, op)) is not None), None)
        if reason is None and feeds and (transcendental or arithmetic > min(feeds)):
            reason = f"its {arithmetic} operations would be repeated for every tile of the result; it is computed once"
        if reason is not None:
            text = f"{_line(op)} is not computed inside the kernel of {_line(group.root)}: {reason}"
            _say("refusal", group.root, op, text, grouping)
            continue
        group.producers.insert(0, op)
        if feeds:
            budget[op] = min(feeds) - arithmetic
        if _only_used_in(grouping, op, group):
            grouping.absorbed.add(op)
            _say("decision", group.root, op, f"{_line(op)} is computed inside the kernel of {_line(group.root)}", grouping)
        else:
            text = f"{_line(op)} is recomputed inside the kernel of {_line(group.root)}: as cheap as reading it back"
            _say("decision", group.root, op, text, grouping)
    _absorb_fully_copied(grouping)


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a producer through `map_`; `initial`: as an initial value; `repeated`: by every tile of a contraction."""

    reader: linalg.ops.GenericOp
    map_: AffineMap
    initial: bool
    repeated: bool


def _reads_of(op: Operation, group: Group) -> list[Read]:
    found: list[Read] = []
    for reader in group.operations():
        view = view_of(reader)
        for number, (value, map_) in enumerate(view.operands()):
            if defining(value) is op:
                initial = number >= len(view.inputs)
                found.append(Read(reader, map_, initial, not initial and isinstance(classify(reader), Contraction)))
    return found


def _absorb_fully_copied(grouping: Grouping) -> None:
    """A producer that all its readers recompute needs no kernel of its own."""
    for op in reversed(grouping.nodes):  # readers first: one that needs no kernel reads nothing outside the groups that copy it
        users = {user for user, _, _ in _users(op)}
        if grouping.free(op) and users and all(_recomputes(grouping, user, op) for user in users):
            grouping.absorbed.add(op)


def _recomputes(grouping: Grouping, user: Operation, op: linalg.ops.GenericOp) -> bool:
    """Whether every kernel that will hold `user` is known and computes `op` itself."""
    holders = [group for group in grouping.groups if user in group.operations()]
    return bool(holders) and not grouping.free(user) and all(op in group.operations() for group in holders)


def _only_used_in(grouping: Grouping, op: Operation, group: Group) -> bool:
    """Whether no other kernel can come to need `op`: its readers are members of the group, or producers that live nowhere else."""
    return all(user in group.members or (user in group.producers and user in grouping.absorbed) for user, _, _ in _users(op))


def _producer_refusal(grouping: Grouping, group: Group, read: Read, op: linalg.ops.GenericOp) -> str | None:
    view = view_of(op)
    if any(output != AffineMap.identity(view.rank) for output in view.output_maps) or not is_projection(read.map_):
        return f"it is read through {read.map_}"
    if any(defining(value) in group.members for value, _ in view.operands()):
        return "it is computed from this kernel's own result"
    broadcast = len(read.map_.results) < read.map_.num_dims and not read.initial
    if (reason := _producer_cost_refusal(op, broadcast)) is not None:
        return reason
    if not _only_used_in(grouping, op, group) and (reason := _recompute_refusal(op)) is not None:
        return reason
    if closes_cycle(grouping, group, op, consumer=False):
        return "it depends on this kernel's results through another one"
    return None


def _recompute_refusal(op: linalg.ops.GenericOp) -> str | None:
    """Why several kernels should not each compute `op`: None where that costs no more memory traffic than reading its result."""
    view = view_of(op)
    users = {user for user, _, _ in _users(op)}
    if not all(isinstance(user, linalg.ops.GenericOp) for user in users):
        return "its result is needed as a tensor anyway"
    if len(users) > RECOMPUTING_KERNELS or len(view.outputs) > 1:
        return f"{len(users)} operations read it"
    arithmetic, _ = body_cost(view.body)
    if arithmetic > RECOMPUTED_OPERATIONS:
        return f"its {arithmetic} operations are computed once, not in every kernel that reads it"
    if isinstance(classify(op), Copy | Fill):
        return None
    if _bytes_read(view) > max(element_bytes(value) for value in view.outputs):
        return "computing it again reads more memory than its result holds"
    return None


def _bytes_read(view: StructuredOp) -> int:
    """Bytes read per element of the result; operands with fewer dimensions are read from caches and not counted."""
    full = [value for value, map_ in zip(view.inputs, view.input_maps, strict=True) if len(map_.used_dims()) == view.rank]
    return sum(element_bytes(value) for value in full)


def element_bytes(value: SSAValue) -> int:
    """Bytes of one element of a tensor, at least 1."""
    type_ = tensor_of(value)
    element = type_.element_type if type_ is not None else value.type
    width = element.bitwidth if isinstance(element, builtin.AnyFloat | builtin.IntegerType) else 64
    return max(1, width // 8)
