"""Writes a whole loop as the steps of its expansion: prologue, steady loop, epilogue; or that beside the loop as it was, by its length."""

from collections.abc import Mapping

from treadle.analysis.loop_body import LoopBody
from treadle.dialects import pipe, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Builder, InsertPoint, Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.emitter import INDEX
from treadle.plan.expansion import Expansion, Step
from treadle.plan.stages import Schedule
from treadle.records import dataclass
from treadle.transforms.kernel.pipelining.emission import StepEmitter
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(frozen=True, slots=True)
class Emitted:
    """The steady loop (None where it never runs), what stands for the results of the original, and the sequential version beside it."""

    loop: scf.ForOp | None
    results: tuple[SSAValue, ...]
    sequential: scf.ForOp | None = None


def emit_expansion(
    source: LoopBody,
    schedule: Schedule,
    expansion: Expansion,
    slots: Mapping[SSAValue, tile.AllocOp],
    builder: Builder,
    unroll: int = 1,
) -> Emitted:
    """Emit all steps; the original loop is left as it is. `unroll`: steps in a trip of the steady loop, where their number is known; those
    left over stand behind it.
    """
    loop = source.loop
    emitter = StepEmitter(source, schedule, slots)
    index = IndexBuilder(builder, {})
    for step in expansion.prologue:
        emitter.emit(step, loop.lb, builder, loop.ub, loop.step)
    steady: scf.ForOp | None = None
    base = loop.lb
    if expansion.steady is not None and expansion.after is not None:
        steady = _emit_counted(emitter, expansion, expansion.steady, builder, unroll)
    elif expansion.steady is not None:
        upper = _upper(emitter, expansion, builder)
        steady, base = _emit_loop(emitter, expansion.steady, builder, loop.lb, upper, 1, needs_end=bool(expansion.epilogue))
    elif expansion.after:
        raise InternalError("an epilogue after a loop that never runs begins late")
    if expansion.after is not None and expansion.epilogue:
        width = index.static(loop.step) or 0
        base = index.add(loop.lb, index.constant(expansion.after * width))
        emitter.skip_to(expansion.after + expansion.stages - 1)
    for at, step in enumerate(expansion.epilogue):
        emitter.emit(step, base, builder, loop.ub, loop.step, is_last=at == len(expansion.epilogue) - 1)
    return Emitted(steady, tuple(emitter.state.carried))


def _emit_counted(emitter: StepEmitter, expansion: Expansion, step: Step, builder: Builder, unroll: int) -> scf.ForOp:
    """The steady loop for a known number of trips, and the steps that make no whole trip."""
    loop, index = emitter.source.loop, IndexBuilder(builder, {})
    width = index.static(loop.step)
    trips = (expansion.iterations or 0) - expansion.shortened
    unroll = unroll if width is not None and expansion.shortened and trips >= 2 * unroll else 1
    whole = trips // unroll * unroll
    upper = _upper(emitter, expansion, builder)
    if unroll > 1 and width is not None:
        upper = index.add(loop.lb, index.constant(whole * width))
    steady, _ = _emit_loop(emitter, step, builder, loop.lb, upper, unroll, needs_end=False)
    for at in range(whole, trips if unroll > 1 else whole):
        emitter.skip_to(at + expansion.stages - 1)
        emitter.emit(step, index.add(loop.lb, index.constant(at * (width or 0))), builder, loop.ub, loop.step)
    return steady


def _upper(emitter: StepEmitter, expansion: Expansion, builder: Builder) -> SSAValue:
    """The upper bound of the steady loop."""
    loop, index, shortened = emitter.source.loop, IndexBuilder(builder, {}), expansion.shortened
    if not shortened:
        return loop.ub
    width = index.static(loop.step)
    less = index.constant(width * shortened) if width is not None else index.multiply(loop.step, shortened)
    return index.subtract(loop.ub, less)


def emit_versions(source: LoopBody, schedule: Schedule, expansion: Expansion, slots: Mapping[SSAValue, tile.AllocOp]) -> Emitted:
    """Emit the steps for trip counts that fill the pipeline, and the sequential loop, in the first slots, for the others.

    One trip fills two stages: what is left makes none, and needs no loop.
    """
    loop = source.loop
    builder = Builder(InsertPoint.before(loop))
    index = IndexBuilder(builder, {})
    last_filled = index.add(loop.lb, index.multiply(loop.step, schedule.stages - 2))
    fills = index.insert(arith.CmpiOp(last_filled, loop.ub, "slt"))
    long, short = Block(), Block()
    inside = Builder(InsertPoint.at_end(long))
    emitted = emit_expansion(source, schedule, expansion, slots, inside)
    inside.insert(scf.YieldOp(*emitted.results))
    inside = Builder(InsertPoint.at_end(short))
    sequential = _emit_sequential(loop, slots, inside) if schedule.stages > 2 else None
    inside.insert(scf.YieldOp(*(loop.iter_args if sequential is None else sequential.results)))
    version = scf.IfOp(fills, [r.type for r in loop.results], Region(long), Region(short))
    builder.insert(version)
    return Emitted(emitted.loop, tuple(version.results), sequential)


def _emit_sequential(loop: scf.ForOp, slots: Mapping[SSAValue, tile.AllocOp], builder: Builder) -> scf.ForOp:
    """The loop as it was, in the first slots."""
    index = IndexBuilder(builder, {})
    mapping: dict[SSAValue, SSAValue] = {}
    for memory, alloc in slots.items():
        mapping[memory] = index.insert(pipe.SlotOp(alloc.result, [index.constant(0)], tile.shared_layout_of(memory)))
    sequential = loop.clone(mapping)
    builder.insert(sequential)
    return sequential


def _emit_loop(
    emitter: StepEmitter, step: Step, builder: Builder, lower: SSAValue, upper: SSAValue, unroll: int, *, needs_end: bool
) -> tuple[scf.ForOp, SSAValue]:
    """A loop of `unroll` steps a trip, and the induction value at which it ends (its lower bound where nobody needs it)."""
    loop, index = emitter.source.loop, IndexBuilder(builder, {})
    emitter.settle(index)
    emitter.repeat_every(unroll)
    initial = emitter.flat_state(builder)
    if needs_end:
        initial.append(lower)
    body = Block(arg_types=[INDEX, *(v.type for v in initial)])
    inside = Builder(InsertPoint.at_end(body))
    emitter.set_state(body.args[1:])
    index_inside = IndexBuilder(inside, {})
    base = body.args[0]
    for _ in range(unroll):
        emitter.emit(step, base, inside, loop.ub, loop.step)
        base = index_inside.add(base, loop.step)
    following = emitter.flat_state(inside)
    if needs_end:
        following.append(base)
    inside.insert(scf.YieldOp(*following))
    width = index.static(loop.step)
    stride = loop.step if unroll == 1 else index.constant(width * unroll) if width is not None else index.multiply(loop.step, unroll)
    steady = scf.ForOp(lower, upper, stride, initial, Region(body))
    builder.insert(steady)
    emitter.set_state(steady.results)
    return steady, steady.results[-1] if needs_end else lower
