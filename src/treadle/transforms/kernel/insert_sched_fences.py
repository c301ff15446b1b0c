"""insert-sched-fences: where the machine's own scheduler must not mix the stages of a pipelined loop.

Level: schedule. Reads: the loops that pipeline-loops has left, their barriers and accesses; `stage_fence` of the machine's row. Writes:
`sync.sched_fence` at the borders of stages. Leaves alone: loops that are not pipelined, and machines whose rows ask for none. In warp
pipelines the slots have theirs; what is left are stages that multiply and then store what an iteration has loaded.

Nothing ties matrix instructions to a barrier, or to the stores behind it: they touch no memory. A scheduler that mixes them makes them wait
for the loads that the stores wait for, and the loop has prefetched for nothing. A border is each side of a barrier, with the waits in
front of it, and the first operation of the write stage behind a matrix instruction, which is where loads are first used: conversions of
what they brought belong to that stage. Where the write stage comes first, the border is behind it, else the matrix instructions would stand
among its waits. Where copies fill shared memory, what a step reads a step ahead has a border behind it: left to the scheduler, such reads
stand at the end of the step, and the next one waits for them. The steps that a loop leaves to do behind it have the same borders, and one
at their end: else what they read, and the addresses of the results, come among the matrix instructions of the steps before, where registers
are scarcest. The fence orders the compiler alone: without it the kernel is as right as before, and slower. docs/audits.md has the figures.
"""

from collections.abc import Sequence
from itertools import takewhile

from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before
from treadle.transforms.kernel.pipelining.request import PIPELINED

_OTHER_STAGES = (tile.LoadOp, tile.GatherOp, tile.LocalLoadOp, tile.ContractOp)


def _writes(body: Sequence[Operation]) -> frozenset[Operation]:
    """The write stages of a loop's body: stores to shared memory, and what computes the tiles they store from loads."""
    return _made_for([op for op in body if any(isinstance(inner, tile.LocalStoreOp) for inner in op.walk())], body)


def _made_for(stores: Sequence[Operation], body: Sequence[Operation]) -> frozenset[Operation]:
    """Some stores of a loop's body, and what computes the tiles they store from loads."""
    within, found, todo = set(body), set(stores), list(stores)
    while todo:
        for op in [one.owner for inner in todo.pop().walk() for one in inner.operands]:
            if isinstance(op, Operation) and op in within and op not in found and not isinstance(op, _OTHER_STAGES):
                if any(is_tile(result) for result in op.results):
                    found.add(op)
                    todo.append(op)
    return frozenset(found)


def _first_wait(barrier: Operation) -> Operation:
    """The first of the waits that stand in front of a barrier, or the barrier."""
    first = barrier
    while isinstance(first.prev_op, sync.WaitOp):
        first = first.prev_op
    return first


def borders(body: Sequence[Operation], *, multiplied: bool = False) -> list[Operation]:
    """The operations of steps, of a loop's body or behind it, that a stage begins with, in order.

    `multiplied`: matrix instructions may stand ahead of `body` in one block: a loop of one trip is none in the code.
    """
    writes = _writes(body)
    found: list[Operation] = []
    wrote = False
    fetched: set[SSAValue] = set()
    behind: Operation | None = None  # what stands behind a write stage that comes before the matrix instructions
    for op in body:
        if isinstance(op, sync.BarrierOp):
            found += [_first_wait(op), *([op.next_op] if op.next_op is not None else [])]
            multiplied, wrote, behind = False, False, None
            fetched.clear()
        elif op in writes:
            found += [op] if multiplied else []
            multiplied, wrote, behind = False, True, None
        elif wrote and isinstance(op, _OTHER_STAGES):
            behind, wrote = op, False
        if isinstance(op, tile.LocalLoadOp):
            fetched.add(op.result)
        if isinstance(op, tile.ContractOp):
            found += [behind] if behind is not None else []
            found += [op] if fetched and not writes and not multiplied and fetched.isdisjoint(op.operands) else []
            multiplied, behind = True, None
    return list(dict.fromkeys(found))


def borders_within_stages(body: Sequence[Operation]) -> list[Operation]:
    """The operations of a warp pipeline's body at which its stages begin to store what was loaded, behind what they multiply."""
    found: list[Operation] = []
    writes: set[Operation] = set()
    for op in body:
        if isinstance(op, tile.LocalStoreOp):
            made = _made_for([op], body)
            if any(isinstance(value.owner, tile.LoadOp | tile.GatherOp) for each in made for value in each.operands):
                writes |= made
    multiplied = False
    for op in body:
        if multiplied and op in writes:
            found.append(op)
        multiplied = isinstance(op, tile.ContractOp) or (multiplied and op not in writes and not isinstance(op, sync.BarrierOp))
    return found


def left_over(loop: scf.ForOp) -> list[Operation]:
    """The steps that a loop leaves to do behind it, up to the last contraction and what follows it; empty where it leaves none."""
    found: list[Operation] = []
    op = loop.next_op
    while op is not None and not isinstance(op, scf.ForOp):
        found.append(op)
        op = op.next_op
    last = max((at for at, one in enumerate(found) if isinstance(one, tile.ContractOp)), default=-2)
    return found[: last + 2]


def begun(loop: scf.ForOp) -> list[Operation]:
    """Where the steps end that are begun ahead of a loop and bring what it carries, but for the last: write stages behind such loads.

    Loads are waited for in the order of their issue: those of two steps in another order would be waited for ahead of their time.
    """
    block = loop.parent
    before = [] if block is None else list(takewhile(lambda op: op is not loop, block.ops))
    writes, carried = _writes(before), set(loop.iter_args)
    found: list[Operation] = []
    brought = False
    for op in before:
        if isinstance(op, tile.LoadOp) and op.result in carried:
            brought = True
        elif brought and op in writes:
            found.append(op)
            brought = False
    return found


@register_pass
@dataclass(frozen=True)
class InsertSchedFencesPass(KernelPass):
    """Puts `sync.sched_fence` at the borders of stages."""

    name = "insert-sched-fences"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Mark the borders of one kernel's pipelined loops."""
        if spec.stage_fence is None:
            return
        loops = [op for op in kernel.body.walk() if isinstance(op, scf.ForOp) and PIPELINED in op.attributes]
        for loop in loops:
            body, behind = list(loop.body.block.ops), left_over(loop)
            found = borders_within_stages(body)
            if WARP_PIPELINED not in loop.attributes:
                found = begun(loop) + borders(body) + borders(behind[:-1], multiplied=True) + behind[-1:]
            for op in dict.fromkeys(found):
                if not isinstance(op.prev_op, sync.SchedFenceOp):
                    insert_before(op, sync.SchedFenceOp(spec.stage_fence))
