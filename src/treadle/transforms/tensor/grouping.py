"""Which generics of a function become one kernel: decisions over the data-flow graph, no rewriting.

What the user has put into groups (`group_attributes.py`) stays there; the rest is decided here and may join these groups.

Roots take turns in program order: contractions and reductions first, then what is left of the elementwise operations. Contractions that
share an operand may become roots of one group (`siblings.py`), and reductions of the same rows (`row_groups.py`). A group grows by
*consumers* (elementwise operations over the root's result space, which run on the tile while it is in registers) and by *producers*
(elementwise operations whose results only this group reads, or that cost no more to recompute than to read back). A group never closes a
cycle with another.
"""

from treadle.analysis.convolution import PADDED
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import (
    Contraction,
    Copy,
    Fill,
    Reduction,
    StructuredOp,
    body_cost,
    classify,
    gathered_tensors,
    is_permutation,
    tensor_of,
    view_of,
)
from treadle.analysis.kernel_structure import consumer_refusal, producer_refusal
from treadle.ir.ancestry import maker
from treadle.ir.core import AffineMap, Operation, SSAValue
from treadle.ir.dialects import linalg, tensor
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.tensor.groups import Group, Grouping, closes_cycle, line_of
from treadle.transforms.tensor.row_groups import join_rows
from treadle.transforms.tensor.siblings import join_siblings

CHEAP_OPERATIONS = 2
"""A contraction's operand is recomputed for every tile that reads it: only casts and scalings may be."""
BROADCAST_OPERATIONS = 8
"""What is computed once per row and recomputed for every tile of the row may cost this many operations."""
RECOMPUTED_OPERATIONS = 16
"""What several kernels recompute instead of reading it back may cost this many operations per element."""
RECOMPUTING_KERNELS = 4


def decide_groups(grouping: Grouping, spec: TargetSpec | None, *, tf32: bool) -> None:
    """Assign every generic that has no group yet. Remarks tell of every fusion made and refused.

    `spec`: the machine, None where nobody knows it. `tf32`: f32 operands are rounded for matrix instructions.
    """
    nodes = grouping.nodes
    for op in nodes:
        if grouping.free(op) and isinstance(classify(op), Contraction | Reduction):
            grouping.start(op)
    grouping.groups.sort(key=lambda group: grouping.flow.position(group.root))
    join_siblings(grouping, spec, tf32=tf32)
    join_rows(grouping, spec)
    for group in list(grouping.groups):
        if not group.is_rows:
            _grow_consumers(grouping, group)
    for group in list(grouping.groups):
        _grow_producers(grouping, group)
    # What its readers had better compute themselves starts a kernel only where, after all others, no reader does.
    for may_be_producer in (False, True):
        for op in nodes:
            if grouping.free(op) and (may_be_producer or not _better_as_producer(op)):
                group = grouping.start(op)
                _grow_consumers(grouping, group)
                _grow_producers(grouping, group)
    for group in grouping.groups:
        group.consumers.sort(key=grouping.flow.position)
        group.producers.sort(key=grouping.flow.position)
    grouping.groups.sort(key=grouping.last_position)


def _grow_consumers(grouping: Grouping, group: Group) -> None:
    start = grouping.flow.position(group.root) + 1
    named = group.consumers  # each waits for its place, so that what it reads can join before
    group.consumers = [op for op in named if grouping.flow.position(op) < start]
    for op in grouping.nodes[start:]:
        if op in named:
            group.consumers.append(op)
            group.follow(op)
        if not grouping.free(op) or not any(value in group.axes for value, _ in view_of(op).operands()):
            continue
        reason = _consumer_refusal(grouping, group, op)
        if reason is None:
            grouping.join(group, op, "it is fused as an epilogue on the tile of the result")
        elif view_of(op).is_parallel:
            grouping.say("refusal", group, op, f"{line_of(op)} stays out of the kernel of {line_of(group.root)}: {reason}")


def _consumer_refusal(grouping: Grouping, group: Group, op: linalg.ops.GenericOp) -> str | None:
    if (reason := consumer_refusal(view_of(op), group.axes)) is not None:
        return reason
    if grouping.flow.blocks_of(op) != grouping.flow.blocks_of(group.root):
        return "only one of them is computed block by block"
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
    last = grouping.last_position(group)
    for op in reversed(grouping.nodes[:last]):  # readers come before what they read, so all of them are decided
        if op in group.members or op in grouping.owner or op in grouping.absorbed or not view_of(op).is_parallel:
            continue
        reads = _reads_of(op, group)
        if not reads:
            continue
        arithmetic, transcendental = body_cost(view_of(op).body)
        feeds = [budget.get(read.reader, CHEAP_OPERATIONS) for read in reads if read.repeated or read.reader in budget]
        reason = next((text for read in reads if (text := _producer_refusal(grouping, group, read, op)) is not None), None)
        # What a block computes has no memory of its own; zeros around an image cost the copies nothing.
        is_free = bool(grouping.flow.blocks_of(op)) or PADDED in op.attributes
        if reason is None and feeds and not is_free and (transcendental or arithmetic > min(feeds)):
            reason = f"its {arithmetic} operations would be repeated for every tile of the result; it is computed once"
        if reason is not None:
            text = f"{line_of(op)} is not computed inside the kernel of {line_of(group.root)}: {reason}"
            grouping.say("refusal", group, op, text)
            continue
        group.producers.insert(0, op)
        if feeds:
            budget[op] = min(feeds) - arithmetic
        if _only_used_in(grouping, op, group):
            grouping.absorbed.add(op)
            grouping.say("decision", group, op, f"{line_of(op)} is computed inside the kernel of {line_of(group.root)}")
        else:
            text = f"{line_of(op)} is recomputed inside the kernel of {line_of(group.root)}: as cheap as reading it back"
            grouping.say("decision", group, op, text)
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
            if maker(value) is op:
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
    holders = grouping.holders(user)
    return bool(holders) and not grouping.free(user) and all(op in group.operations() for group in holders)


def _only_used_in(grouping: Grouping, op: Operation, group: Group) -> bool:
    """Whether no other kernel can come to need `op`: its readers are members of the group, or producers that live nowhere else."""
    return all(user in group.members or (user in group.producers and user in grouping.absorbed) for user, _, _ in _users(op))


def _producer_refusal(grouping: Grouping, group: Group, read: Read, op: linalg.ops.GenericOp) -> str | None:
    view = view_of(op)
    if (reason := producer_refusal(view, read.map_)) is not None:
        return reason
    if any(maker(value) in group.members for value in (*(value for value, _ in view.operands()), *gathered_tensors(op))):
        return "it is computed from this kernel's own result"
    if _is_gathered(op):
        return "another operation gathers from it"
    if grouping.flow.blocks_of(op):
        return None if grouping.flow.blocks_of(op) <= grouping.flow.blocks_of(group.root) else "it is computed block by block"
    broadcast = len(read.map_.results) < read.map_.num_dims and not read.initial
    if PADDED not in op.attributes and (reason := _producer_cost_refusal(op, broadcast)) is not None:
        return reason
    if not _only_used_in(grouping, op, group) and (reason := _recompute_refusal(op)) is not None:
        return reason
    if closes_cycle(grouping, group, op, consumer=False):
        return "it depends on this kernel's results through another one"
    return None


def _is_gathered(op: Operation) -> bool:
    return any(isinstance(use.operation, tensor.ExtractOp) for result in op.results for use in result.uses)


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
    if isinstance(classify(op), Copy | Fill) or PADDED in op.attributes:
        return None
    if _bytes_read(view) > max(element_bytes(tensor_type(value).element_type) for value in view.outputs):
        return "computing it again reads more memory than its result holds"
    return None


def _bytes_read(view: StructuredOp) -> int:
    """Bytes read per element of the result; operands with fewer dimensions are read from caches and not counted."""
    full = [value for value, map_ in zip(view.inputs, view.input_maps, strict=True) if len(map_.used_dims()) == view.rank]
    return sum(element_bytes(tensor_type(value).element_type) for value in full if tensor_of(value) is not None)
