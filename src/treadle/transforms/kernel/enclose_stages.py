"""enclose-stages: stages in straight-line code become a loop of one iteration, which groups of warps can run some stages apart.

Level: tile. Reads: `pipe.stage` and `pipe.end_stage` outside of loops, and in loops that hold another loop with stages. Writes: `scf.for`
from 0 to 1 around each run of stages that follow one another, with the `warp_pipeline` of the loop with stages before it, else behind it;
ahead of the loop the arithmetic on indices in it that needs nothing of it. Leaves alone: stages that cut a loop.

What stands between two stages of a run is what may stand between stages of a loop: waits, barriers, arithmetic. Anything else ends the run.
"""

from collections.abc import Iterator, Sequence

from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINE, EndStageOp, StageOp
from treadle.ir.core import Attribute, Block, Operation
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.carried_values import zero_of
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before
from treadle.transforms.kernel.warp_pipelines.borders import Stage, is_plain, parted, refuse

Run = tuple[Stage, ...]


@register_pass
@dataclass(frozen=True)
class EncloseStagesPass(KernelPass):
    """Encloses the runs of stages of every kernel. Raises TR417 for a stage that stands alone."""

    name = "enclose-stages"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Enclose those of one kernel."""
        runs = [run for block in _straight_blocks(kernel) for run in _runs(block)]
        requests = [_request(run, kernel) for run in runs]
        for run, request in zip(runs, requests, strict=True):
            _enclose(run, request)


def _straight_blocks(kernel: tile.KernelOp) -> Iterator[Block]:
    """The blocks whose stages cut no loop."""
    if any(isinstance(op, StageOp | EndStageOp) for op in kernel.body.block.ops):
        yield kernel.body.block
    for loop in kernel.body.walk():
        if isinstance(loop, scf.ForOp) and _holds_loop_between_stages(loop):
            yield loop.body.block


def _holds_loop_between_stages(loop: scf.ForOp) -> bool:
    depth, has_stages, has_loop = 0, False, False
    for op in loop.body.block.ops:
        has_stages |= isinstance(op, StageOp)
        depth += isinstance(op, StageOp) - isinstance(op, EndStageOp)
        has_loop |= depth == 0 and isinstance(op, scf.ForOp) and any(isinstance(inner, StageOp) for inner in op.walk())
    return has_stages and has_loop


def _runs(block: Block) -> Iterator[Run]:
    """The stages of a block that follow one another. Raises TR417 for one alone."""
    stages, between = parted(block.ops)
    run: list[Stage] = []
    for number, stage in enumerate(stages):
        run.append(stage)
        following = between[number + 1]
        if number + 1 == len(stages) or any(map(_parts, following)):
            yield _checked(run, following if number + 1 < len(stages) else ())
            run = []


def _parts(op: Operation) -> bool:
    """Whether the stages ahead of an operation and those behind it do not belong together."""
    if isinstance(op, sync.WaitOp | sync.BarrierOp | sync.SchedFenceOp):
        return False
    return not is_plain(op) or any(isinstance(inner, StageOp) for inner in op.walk())


def _checked(run: Sequence[Stage], following: Sequence[Operation]) -> Run:
    if len(run) == 1:
        apart = next((op for op in following if _parts(op)), None)
        what = f": {apart.name} parts it from the next one" if apart is not None else ""
        fix = "let two stages or more follow one another, with waits, barriers and arithmetic alone between them, or cut a loop into stages"
        refuse(run[0].begin, f"stage '{run[0].label}' stands alone in straight-line code{what}", fix)
    return tuple(run)


def _request(run: Run, kernel: tile.KernelOp) -> Attribute | None:
    """What the loop with stages before a run asks for, or else that behind it."""
    ops = list(kernel.body.walk())
    at = ops.index(run[0].begin)
    return next((op.attributes[WARP_PIPELINE] for op in (*reversed(ops[:at]), *ops[at:]) if WARP_PIPELINE in op.attributes), None)


def _enclose(run: Run, request: Attribute | None) -> None:
    first, last = run[0].begin, run[-1].end
    _hoist(first, last)
    inside = _span(first, last)
    held = set(inside)
    results = [value for op in inside for value in op.results if any(_outermost(use.operation, first) not in held for use in value.uses)]
    bounds = [arith.ConstantOp(builtin.IntegerAttr(n, builtin.IndexType())) for n in (0, 1)]
    blanks = [zero_of(value) for value in results]
    insert_before(first, *bounds, *blanks)
    zero, one = (bound.result for bound in bounds)
    body = Block(arg_types=[zero.type, *(value.type for value in results)])
    loop = scf.ForOp(zero, one, one, [blank.result for blank in blanks], body)
    insert_before(first, loop)
    for value, outside in zip(results, loop.results, strict=True):
        for use in tuple(value.uses):
            if _outermost(use.operation, first) not in held:
                use.operation.operands[use.index] = outside
    for op in inside:
        op.detach()
        body.add_op(op)
    body.add_op(scf.YieldOp(*results))
    if request is not None:
        loop.attributes[WARP_PIPELINE] = request


def _span(first: Operation, last: Operation) -> list[Operation]:
    found = [first]
    while found[-1] is not last and (following := found[-1].next_op) is not None:
        found.append(following)
    return found


def _outermost(op: Operation, beside: Operation) -> Operation | None:
    """The operation of `beside`'s block that an operation is or lies in."""
    current: Operation | None = op
    while current is not None and current.parent is not beside.parent:
        current = current.parent_op()
    return current


def _hoist(first: Operation, last: Operation) -> None:
    """Put indices and views that need nothing of the run ahead of it, where what is behind it may use them too."""
    inside = set(_span(first, last))
    for op in _span(first, last):
        if op.results and not op.regions and is_plain(op) and not any(isinstance(r.type, builtin.TensorType) for r in op.results):
            if not any(value.owner in inside for value in op.operands):
                op.detach()
                insert_before(first, op)
                inside.discard(op)
