"""A computing role: contractions of one tile on what the producer delivers, then everything after the loop."""

from collections.abc import Mapping

from treadle.dialects import sync, tile
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType, i32
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import scf
from treadle.transforms.kernel.roles.frame import RoleFrame, clone
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end

MATRIX_QUEUE = "wgmma"


def consume(
    frame: RoleFrame,
    index: IndexBuilder,
    known: Mapping[SSAValue, SSAValue],
    group: int,
    place: SSAValue,
    slot: SSAValue,
    phase: SSAValue,
) -> tuple[SSAValue, SSAValue]:
    """One tile of one group. Returns the ring's place."""
    mapping: dict[SSAValue, SSAValue] = {**known, **frame.scratch[group]}
    for op in frame.parts.body:
        if op is frame.parts.loop:
            slot, phase = _contract(frame, index, group, place, mapping, slot, phase)
        else:
            clone(op, mapping, index, group, place)
    return slot, phase


def _contract(
    frame: RoleFrame,
    index: IndexBuilder,
    group: int,
    place: SSAValue,
    mapping: dict[SSAValue, SSAValue],
    slot: SSAValue,
    phase: SSAValue,
) -> tuple[SSAValue, SSAValue]:
    """The loop: wait for a slot, contract it, hand it back."""
    ring, loop = frame.ring, frame.parts.loop
    old = loop.body.block
    initial = [mapping.get(v, v) for v in loop.iter_args]
    body = Block(arg_types=[IndexType(), *(a.type for a in old.args[1:]), IndexType(), i32])
    inner_slot, inner_phase = body.args[-2:]
    inside = builder_at_end(body, frame.symbols)
    inner: dict[SSAValue, SSAValue] = dict(mapping)
    inner.update(zip(old.args, body.args[: len(old.args)], strict=True))
    inside.builder.insert(sync.WaitPhaseOp(inside.insert(sync.MbarrierSlotOp(ring.full, inner_slot)), inner_phase))
    own = {copy.destination for copy in frame.own}
    for buffer in frame.slots:
        inner[buffer] = frame.slot_of(inside, buffer, inner_slot, group, buffer in own)
    last = frame.parts.contracts[-1]
    for op in old.ops:
        if isinstance(op, tile.CopyOp | scf.YieldOp):
            continue
        clone(op, inner, inside, group, place)
        if op is last:
            inside.builder.insert(sync.CommitOp(MATRIX_QUEUE))
            inside.builder.insert(sync.WaitOp(MATRIX_QUEUE, 0))
            inside.builder.insert(sync.ArriveOp(inside.insert(sync.MbarrierSlotOp(ring.empty, inner_slot))))
    terminator = old.last_op
    if not isinstance(terminator, scf.YieldOp):
        raise InternalError("a loop without scf.yield")
    carried = [inner.get(v, v) for v in terminator.operands]
    body.add_op(scf.YieldOp(*carried, *ring.advance(inside, inner_slot, inner_phase)))
    bounds = [mapping.get(v, v) for v in (loop.lb, loop.ub, loop.step)]
    new = scf.ForOp(bounds[0], bounds[1], bounds[2], [*initial, slot, phase], body)
    index.builder.insert(new)
    mapping.update(zip(loop.results, new.results[: len(loop.results)], strict=True))
    return new.results[-2], new.results[-1]
