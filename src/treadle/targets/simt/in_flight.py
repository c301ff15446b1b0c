"""Which register tiles a matrix instruction is still writing, and which wait makes each of them ready.

A forward data flow over the structured control flow: a tile's *age* is the number of groups committed since its own (-1: its group is
still open). At joins the smaller age counts, so a wait for `pending` groups surely retires the tiles of age `pending` and more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import CommitOp, WaitOp
from treadle.dialects.tile import ContractOp, KernelOp
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf

QUEUE = "wgmma"
OPEN = -1
_MAX_SWEEPS = 64
Ages = dict[SSAValue, int]


@dataclass(frozen=True, slots=True)
class InFlight:
    """`retired`: the tiles each wait makes ready. `renewed`: the tiles from outside that waits within a loop or branch make ready."""

    retired: dict[Operation, tuple[SSAValue, ...]] = field(default_factory=dict[Operation, tuple[SSAValue, ...]])
    renewed: dict[Operation, tuple[SSAValue, ...]] = field(default_factory=dict[Operation, tuple[SSAValue, ...]])


def is_queued(op: Operation) -> bool:
    """Whether an operation is a matrix instruction that runs on after it was issued: a contraction of shared buffers."""
    return isinstance(op, ContractOp) and (is_shared(op.a.type) or is_shared(op.b.type))


def analyse(kernel: KernelOp) -> InFlight:
    """The waits of a kernel. Raises InternalError for a tile that is read while an instruction writes it."""
    found = InFlight()
    _block(kernel.body.block, {}, found)
    return found


def _joined(a: Ages, b: Ages) -> Ages:
    return {value: min(a.get(value, b.get(value, 0)), b.get(value, a.get(value, 0))) for value in (*a, *(v for v in b if v not in a))}


def _yielded(block: Block) -> list[SSAValue]:
    last = block.last_op
    return list(last.operands) if isinstance(last, scf.YieldOp) else []


def _renamed(ages: Ages, old: Sequence[SSAValue], new: Sequence[SSAValue]) -> Ages:
    """The ages after tiles took new names (block arguments, results); of the rest, those tiles that had one keep nothing."""
    moved = {b: ages[a] for a, b in zip(old, new, strict=True) if a in ages}
    return {**{v: age for v, age in ages.items() if v not in set(old)}, **moved}


def _block(block: Block, ages: Ages, found: InFlight) -> Ages:
    for op in block.ops:
        ages = _operation(op, ages, found)
    return ages


def _operation(op: Operation, ages: Ages, found: InFlight) -> Ages:
    match op:
        case CommitOp() if op.queue.data == QUEUE:
            return {value: age + 1 for value, age in ages.items()}
        case WaitOp() if op.queue.data == QUEUE:
            ready = tuple(value for value, age in ages.items() if age >= op.pending.value.data)
            found.retired[op] = ready
            return {value: age for value, age in ages.items() if value not in ready}
        case ContractOp() if is_queued(op):
            return {**{v: age for v, age in ages.items() if v is not op.accumulator}, op.result: OPEN}
        case scf.ForOp():
            return _loop(op, ages, found)
        case scf.IfOp():
            return _branches(op, ages, found)
        case RolesOp():
            for region in op.roles:
                _block(region.block, {}, found)
            return ages
        case scf.YieldOp():
            return ages
        case _:
            if any(operand in ages for operand in op.operands):
                raise InternalError(f"{op.name} reads a tile that a matrix instruction is still writing")
            return ages


def _loop(op: scf.ForOp, ages: Ages, found: InFlight) -> Ages:
    block = op.body.block
    arguments, starts, ends = list(block.args[1:]), list(op.iter_args), _yielded(block)
    entry = _renamed(ages, starts, arguments)
    top = entry
    for _ in range(_MAX_SWEEPS):
        after = _block(block, top, found)
        # Names of the body do not live around the back edge.
        around = {v: age for v, age in _renamed(after, ends, arguments).items() if v in arguments or not _is_inside(v, op)}
        joined = _joined(entry, around)
        if joined == top:
            break
        top = joined
    else:
        raise InternalError("the groups in flight around a loop do not settle")
    _note_renewed(op, found)
    skipped = _renamed(ages, starts, list(op.results))
    ran = {v: age for v, age in _renamed(after, ends, list(op.results)).items() if not _is_inside(v, op)}
    return _joined(skipped, ran)


def _branches(op: scf.IfOp, ages: Ages, found: InFlight) -> Ages:
    ends: list[Ages] = []
    for region in (op.true_region, op.false_region):
        if not region.blocks:
            ends.append(ages)
            continue
        after = _renamed(_block(region.block, ages, found), _yielded(region.block), list(op.results)) if op.results else None
        after = _block(region.block, ages, found) if after is None else after
        ends.append({v: age for v, age in after.items() if not _is_inside(v, op)})
    _note_renewed(op, found)
    return _joined(*ends)


def _is_inside(value: SSAValue, op: Operation) -> bool:
    owner = value.owner
    current = owner.parent_op() if isinstance(owner, Block | Operation) else None
    while current is not None:
        if current is op:
            return True
        current = current.parent_op()
    return False


def _note_renewed(op: Operation, found: InFlight) -> None:
    inner = [value for wait in op.walk() for value in found.retired.get(wait, ())]
    found.renewed[op] = tuple(dict.fromkeys(value for value in inner if not _is_inside(value, op)))
