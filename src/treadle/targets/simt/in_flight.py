"""Which register tiles a matrix instruction is still writing or reading, and which wait makes each of them ready.

A forward data flow over the structured control flow: a tile's *age* is the number of groups committed since its own (-1: its group is
still open). At joins the smaller age counts, so a wait for `pending` groups surely retires the tiles of age `pending` and more.
"""

from collections.abc import Sequence
from dataclasses import field

from treadle.analysis.structured_flow import StructuredFlow, is_inside, yielded
from treadle.dialects.limits import machine_of
from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import CommitOp, WaitOp
from treadle.dialects.tile import ContractOp, KernelOp
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.core import Operation, Region, SSAValue
from treadle.ir.dialects import scf
from treadle.records import dataclass

OPEN = -1
Ages = dict[SSAValue | Operation, int]
"""By tile that is written, and by contraction that reads registers."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """`retired`: the tiles each wait makes ready. `renewed`: the tiles from outside that waits within a loop or branch make ready.

    `released`: the contractions whose registers each wait gives back.
    """

    retired: dict[Operation, tuple[SSAValue, ...]] = field(default_factory=dict[Operation, tuple[SSAValue, ...]])
    renewed: dict[Operation, tuple[SSAValue, ...]] = field(default_factory=dict[Operation, tuple[SSAValue, ...]])
    released: dict[Operation, tuple[Operation, ...]] = field(default_factory=dict[Operation, tuple[Operation, ...]])


def matrix_queue(kernel: KernelOp) -> str:
    """The name of the queue of a kernel's matrix instructions; "" where its machine has none."""
    spec = machine_of(kernel)
    queue = spec.queue_for("matrix") if spec is not None else None
    return "" if queue is None else queue.name


def is_queued(op: Operation) -> bool:
    """Whether an operation is a matrix instruction that runs on after it was issued: a contraction of shared buffers."""
    return isinstance(op, ContractOp) and (is_shared(op.a.type) or is_shared(op.b.type))


def analyse(kernel: KernelOp) -> InFlight:
    """The waits of a kernel. Raises InternalError for a tile that is read while an instruction writes it."""
    flow = _Ages(kernel)
    flow.block(kernel.body.block, {}, emit=True)
    return flow.found


class _Ages(StructuredFlow[Ages]):
    """The data flow of the ages."""

    def __init__(self, kernel: KernelOp) -> None:
        self.found = InFlight()
        self.queue = matrix_queue(kernel)

    def join(self, one: Ages, other: Ages) -> Ages:
        return {value: min(one.get(value, other.get(value, 0)), other.get(value, one.get(value, 0))) for value in {**one, **other}}

    def plain(self, op: Operation, state: Ages, *, emit: bool) -> Ages:
        match op:
            case CommitOp() if op.queue.data == self.queue:
                return {value: age + 1 for value, age in state.items()}
            case WaitOp() if op.queue.data == self.queue:
                ready = tuple(value for value, age in state.items() if age >= op.pending.value.data)
                if emit:
                    self.found.retired[op] = tuple(one for one in ready if isinstance(one, SSAValue))
                    self.found.released[op] = tuple(one for one in ready if isinstance(one, Operation))
                return {value: age for value, age in state.items() if value not in ready}
            case ContractOp() if is_queued(op):
                held: Ages = {op: OPEN} if op.holds_registers() else {}
                return {**{v: age for v, age in state.items() if v is not op.accumulator}, op.result: OPEN, **held}
            case _:
                if any(operand in state for operand in op.operands):
                    raise InternalError(f"{op.name} reads a tile that a matrix instruction is still writing")
                return state

    def terminator(self, op: scf.YieldOp, state: Ages, *, emit: bool) -> Ages:
        """Registers that are read beyond the end of their contraction's block could be given to other tiles there."""
        for one in state:
            if isinstance(one, Operation) and one.parent is op.parent:
                raise InternalError(f"{one.name} may still read registers when its block ends: no wait behind it retires it")
        return super().terminator(op, state, emit=emit)

    def roles(self, op: RolesOp, state: Ages, *, emit: bool) -> Ages:
        for region in op.roles:
            self.block(region.block, {}, emit=emit)
        return state

    def enter(self, loop: scf.ForOp, state: Ages) -> Ages:
        return _renamed(state, tuple(loop.iter_args), loop.body.block.args[1:])

    def around(self, loop: scf.ForOp, state: Ages) -> Ages:
        """Names of the body do not live around the back edge."""
        arguments = loop.body.block.args[1:]
        renamed = _renamed(state, yielded(loop.body.block), arguments)
        return {v: age for v, age in renamed.items() if v in arguments or isinstance(v, Operation) or not is_inside(v, loop)}

    def leave(self, loop: scf.ForOp, state: Ages) -> Ages:
        return _renamed(state, loop.body.block.args[1:], loop.results)

    def leave_branch(self, op: scf.IfOp, region: Region, state: Ages) -> Ages:
        after = _renamed(state, yielded(region.block), op.results) if op.results else state
        return {v: age for v, age in after.items() if isinstance(v, Operation) or not is_inside(v, op)}

    def emitted(self, op: Operation) -> None:
        inner = [value for wait in op.walk() for value in self.found.retired.get(wait, ())]
        self.found.renewed[op] = tuple(dict.fromkeys(value for value in inner if not is_inside(value, op)))


def _renamed(ages: Ages, old: Sequence[SSAValue], new: Sequence[SSAValue]) -> Ages:
    """The ages after tiles took new names (block arguments, results); of the rest, those tiles that had one keep nothing."""
    moved = {b: ages[a] for a, b in zip(old, new, strict=True) if a in ages}
    return {**{v: age for v, age in ages.items() if v not in set(old)}, **moved}
