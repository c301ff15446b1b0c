"""The smallest change that fixes a fault, found by trying: each candidate is made on a clone and verified, cheapest first.

Candidates: another count on a wait that is there, a fence, a flushing barrier for a bare one, another place for a wait, barrier or
arrival, an expect, arrival or wait for a phase (`phase_fixes.py`), a new wait, a new barrier, both, as many bytes as are copied, one slot
more. A change that makes the kernel right wins; failing that, one after which this fault is gone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import cast

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.limits import machine_of
from treadle.errors import TreadleError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.locations import location_of, set_location
from treadle.machine import Queue, TargetSpec
from treadle.verify.check import prove
from treadle.verify.faults import changed, faults, flip_parity, matters, set_pending
from treadle.verify.findings import Finding
from treadle.verify.phase_fixes import announced_bytes, proposals

MAX_TRIES = 120
MAX_SECONDS = 2.0
MAX_PLACES = 10
LAST_BARRIER_ID = 15


@dataclass(frozen=True, slots=True)
class Fix:
    """A change and what it is called."""

    text: str
    kernel: tile.KernelOp


def with_suggested_fix(kernel: tile.KernelOp, finding: Finding, spec: TargetSpec | None = None, *, stores: bool = False) -> Finding:
    """The finding with the smallest change that fixes it, where one was found."""
    start, partial = perf_counter(), ""
    for tries, fix in enumerate(_candidates(kernel, finding)):
        if tries >= MAX_TRIES or perf_counter() - start > MAX_SECONDS:
            break
        try:
            verdict = prove(fix.kernel, spec, stores=stores)
        except TreadleError:
            continue
        left = verdict.findings
        if verdict.is_proven:
            return replace(finding, fix=fix.text)
        shifted = {(f.rule, type(f.second.op), None if f.first is None else type(f.first.op)) for f in left}
        first = None if finding.first is None else type(finding.first.op)
        if not partial and (finding.rule, type(finding.second.op), first) not in shifted and all(f.rule != "V5" for f in left):
            partial = f"{fix.text} (another fault is left then)"
    return replace(finding, fix=partial)


def _proxy(finding: Finding) -> str:
    return "async_global" if finding.memory.endswith("(global)") else "async_shared"


def _name(op: Operation) -> str:
    where = location_of(op)
    return op.name + (f" at {where}" if where else "")


def _insert(ops: Callable[[], list[Operation]], *, after: bool = False) -> Callable[[Operation], None]:
    def change(anchor: Operation) -> None:
        block = cast(Block, anchor.parent)
        new = ops()
        for op in new if not after else reversed(new):
            set_location(op, anchor)
            if after:
                block.insert_op_after(op, anchor)
            else:
                block.insert_op_before(op, anchor)

    return change


def _candidates(kernel: tile.KernelOp, finding: Finding) -> Iterator[Fix]:
    # Findings number operations within the body; a walk of the kernel starts with the kernel itself.
    second = finding.second.op_index + 1
    first = None if finding.first is None else finding.first.op_index + 1
    ops = list(kernel.walk())

    def made(text: str, index: int, change: Callable[[Operation], None]) -> Fix:
        return Fix(text, changed(kernel, index, change))

    if finding.rule == "V4" and first is not None:
        text = f'add sync.fence "{_proxy(finding)}" after {_name(ops[first])}'
        yield made(text, first, _insert(lambda: [sync.FenceOp(_proxy(finding))], after=True))
    if finding.rule == "V5":
        yield from _announced(kernel, ops)
    found = _queue_of(ops[second if first is None else first])
    queue = "" if found is None else found.name
    for index, op in enumerate(ops):
        if isinstance(op, sync.WaitOp) and op.queue.data == queue and op.pending.value.data > 0:
            yield made(f"lower `pending` of {_name(op)} by one", index, lambda o: set_pending(o, -1))
    for index, op in enumerate(ops):
        if isinstance(op, sync.BarrierOp) and op.bare is not None:
            yield made(f"take `bare` from {_name(op)}", index, _flushing)
    for index, op in enumerate(ops):
        if isinstance(op, sync.BarrierOp) and op.groups is not None:
            yield made(f"let all groups execute {_name(op)}", index, _unconditional)
        if isinstance(op, sync.WaitPhaseOp) and finding.rule == "V5":
            yield made(f"wait for the other parity at {_name(op)}", index, flip_parity)
        if isinstance(op, sync.NamedBarrierOp) and op.arrive is not None:
            yield made(f"wait at {_name(op)} instead of arriving only", index, _waiting)
        if isinstance(op, sync.NamedBarrierOp) and op.per_group is None and _groups_of(op) > 1:
            yield made(f"give each group a barrier of its own at {_name(op)} (`per_group`)", index, _per_group)
    yield from _moved(kernel, ops, [i for i in (first, second) if i is not None])
    for proposal in proposals(kernel, ops, finding.rule, first, second):
        clone = kernel.clone()
        proposal.change(list(clone.walk()))
        yield Fix(proposal.text, clone)
    if queue:
        wait = f'sync.wait "{queue}" pending 0'
        yield made(f"add {wait} before {_name(ops[second])}", second, _insert(lambda: [sync.WaitOp(queue, 0)]))
        if first is not None and found is not None and found.is_committed:
            text = f"add a commit and {wait} after {_name(ops[first])}"
            yield made(text, first, _insert(lambda: [sync.CommitOp(queue), sync.WaitOp(queue, 0)], after=True))
    yield from _barriers(kernel, ops, first, second, queue, _proxy(finding))
    yield from _more_slots(kernel, ops)


def _queue_of(op: Operation) -> Queue | None:
    """The queue that waits for an operation; barriers flush local accesses."""
    spec = machine_of(op)
    roles = [effect.queue for effect in op.effects() if effect.queue not in ("", "local")] if isinstance(op, HasEffects) else []
    return spec.queue_for(roles[0]) if spec is not None and roles else None


def _flushing(op: Operation) -> None:
    cast(sync.BarrierOp, op).bare = None


def _unconditional(op: Operation) -> None:
    cast(sync.BarrierOp, op).groups = None


def _waiting(op: Operation) -> None:
    cast(sync.NamedBarrierOp, op).arrive = None


def _per_group(op: Operation) -> None:
    cast(sync.NamedBarrierOp, op).per_group = builtin.UnitAttr()


def _role_of(op: Operation) -> pipe.RolesOp | None:
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, pipe.RolesOp):
        parent = parent.parent_op()
    return parent


def _number_of_role(roles: pipe.RolesOp, op: Operation) -> int:
    return next(at for at, region in enumerate(roles.roles) if any(inner is op for inner in region.walk()))


def _groups_of(op: Operation) -> int:
    """Groups of the role that executes an operation; 1 outside roles."""
    roles = _role_of(op)
    return 1 if roles is None else roles.role_groups()[_number_of_role(roles, op)]


def _barriers(kernel: tile.KernelOp, ops: list[Operation], first: int | None, second: int, queue: str, proxy: str) -> Iterator[Fix]:
    roles = _role_of(ops[second])
    if roles is None:
        make, what = (lambda: cast(Operation, sync.BarrierOp())), "sync.barrier"
    else:
        warps, groups = roles.role_warps()[_number_of_role(roles, ops[second])], _groups_of(ops[second])
        make, what = (
            (lambda: cast(Operation, sync.NamedBarrierOp(LAST_BARRIER_ID + 1 - groups, warps, per_group=groups > 1))),
            f"sync.named_barrier of the group's {warps} warps",
        )
    for index in _nearest_first(ops, first, second):
        yield Fix(f"add {what} before {_name(ops[index])}", changed(kernel, index, _insert(lambda: [make()])))
    parent = ops[second].parent_op()
    if parent is not None and not isinstance(parent, tile.KernelOp | pipe.RolesOp):
        outer = ops.index(parent)
        yield Fix(f"add {what} before {_name(parent)}", changed(kernel, outer, _insert(lambda: [make()])))
    if queue:
        text = f'add sync.wait "{queue}" pending 0 and {what} before {_name(ops[second])}'
        yield Fix(text, changed(kernel, second, _insert(lambda: [sync.WaitOp(queue, 0), make()])))
    if first is not None:
        text = f'add sync.fence "{proxy}" and {what} after {_name(ops[first])}'
        yield Fix(text, changed(kernel, first, _insert(lambda: [sync.FenceOp(proxy), make()], after=True)))


def _nearest_first(ops: list[Operation], first: int | None, second: int) -> list[int]:
    """The places of the second operation's block before which a barrier can stand, the nearest before it first, then those behind it."""
    block = ops[second].parent
    places = [index for index, op in enumerate(ops) if op.parent is block and matters(op)]
    before = [index for index in places if index <= second]
    if first is not None and first + 1 < second and ops[first].parent is block:
        before = [index for index in before if index > first] + [index for index in before if index <= first]
    others = [index for index in places if index > second]
    if first is not None and ops[first].parent is not block:
        others += [index for index, op in enumerate(ops) if op.parent is ops[first].parent and matters(op)]
    return [*sorted(before, reverse=True), *others][:MAX_PLACES]


def _moved(kernel: tile.KernelOp, ops: list[Operation], near: list[int]) -> Iterator[Fix]:
    """Synchronisation of the same blocks, one operation further on or back."""
    blocks = {ops[index].parent for index in near}
    for fault in faults(kernel, ("earlier", "later")):
        op = ops[fault.index]
        if op.parent in blocks and isinstance(op, sync.WaitOp | sync.BarrierOp | sync.ArriveOp | sync.WaitPhaseOp):
            yield Fix(f"move {_name(op)} one operation {fault.kind}", cast(tile.KernelOp, fault.root))


def _announced(kernel: tile.KernelOp, ops: list[Operation]) -> Iterator[Fix]:
    """As many bytes as the copies of the same block bring."""
    for index, op in enumerate(ops):
        if not isinstance(op, sync.MbarrierExpectOp):
            continue
        copies = [use.operation for use in op.barrier.uses if isinstance(use.operation, tile.CopyOp)]
        total = announced_bytes(kernel, [copy for copy in copies if copy.parent is op.parent])
        if total and total != op.byte_count.value.data:
            text = f"announce {total} bytes at {_name(op)}"

            def change(o: Operation, total: int = total) -> None:
                cast(sync.MbarrierExpectOp, o).byte_count = builtin.IntegerAttr(total, builtin.i64)

            yield Fix(text, changed(kernel, index, change))


def _more_slots(kernel: tile.KernelOp, ops: list[Operation]) -> Iterator[Fix]:
    counts = {tile.memref_type(op.source).get_shape()[0] for op in ops if isinstance(op, pipe.SlotOp)}
    for count in sorted(counts):
        clone = kernel.clone()
        if _add_slot(clone, count):
            yield Fix(f"give the buffers of {count} slots one more ({count + 1})", clone)


def _add_slot(kernel: tile.KernelOp, count: int) -> bool:
    """Make rings of `count` slots one deeper: buffers, mbarriers, and the constants they wrap at."""
    done = False
    for op in list(kernel.walk()):
        if isinstance(op, tile.AllocOp) and any(isinstance(u.operation, pipe.SlotOp) for u in op.result.uses):
            kind, layout = tile.memref_type(op.result), tile.shared_layout_of(op.result)
            if kind.get_shape()[0] == count and layout.repeat[0] == count:
                deeper = layout.slot().stacked(count + 1)
                wider = tile.AllocOp(tile.shared_buffer_type(deeper.shape, kind.element_type, deeper))
                _replace(op, wider)
                done = True
        elif isinstance(op, sync.MbarrierAllocOp) and op.slot_count() == count > 1:
            op.slots = builtin.IntegerAttr(count + 1, builtin.i64)
        elif op.name in ("arith.remui", "arith.divui", "arith.remsi", "arith.divsi", "arith.cmpi") and _constant(op.operands[1]) == count:
            if op.name == "arith.cmpi" and cast(builtin.IntegerAttr, op.properties["predicate"]).value.data != 0:
                continue
            deeper_count = arith.ConstantOp(builtin.IntegerAttr(count + 1, cast(builtin.IndexType, op.operands[1].type)))
            cast(Block, op.parent).insert_op_before(deeper_count, op)
            op.operands[1] = deeper_count.result
    return done


def _constant(value: SSAValue) -> int | None:
    if not isinstance(value.owner, Operation) or value.owner.name != "arith.constant":
        return None
    attribute = value.owner.properties["value"]
    return attribute.value.data if isinstance(attribute, builtin.IntegerAttr) else None


def _replace(old: tile.AllocOp, new: tile.AllocOp) -> None:
    set_location(new, old)
    cast(Block, old.parent).insert_op_before(new, old)
    new.result.name_hint = old.result.name_hint
    old.result.replace_all_uses_with(new.result)
    old.detach()
    old.erase()
