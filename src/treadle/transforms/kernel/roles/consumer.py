"""A computing role: contractions of one tile on what the producer delivers, then everything after the loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.dialects import pipe, tile
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType, IntegerAttr, i64
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.transforms.kernel.roles.frame import Consumer, RoleFrame, clone
from treadle.transforms.kernel.roles.late_stores import LateStores
from treadle.transforms.kernel.roles.parts import loop_first
from treadle.transforms.kernel.roles.widths import TileWidth, decided, limit_columns
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end


@dataclass(slots=True)
class TileLoop:
    """One tile of one consumer while it is written.

    `mapping`: this consumer's value for each of the tile's program. `columns`: how many of its columns are needed, 0 for all.
    """

    frame: RoleFrame
    me: Consumer
    place: SSAValue
    mapping: dict[SSAValue, SSAValue]
    columns: int = 0

    def bounds(self) -> list[SSAValue]:
        """Lower bound, upper bound and step of the loop."""
        loop = self.frame.parts.loop
        return [self.mapping.get(v, v) for v in (loop.lb, loop.ub, loop.step)]

    def step(
        self, index: IndexBuilder, at: SSAValue, carried: Sequence[SSAValue], slot: SSAValue, under: Callable[[], None] = lambda: None
    ) -> list[SSAValue]:
        """The contractions of one slot; `under` writes what happens while they run. Returns what the next step starts from."""
        frame, old = self.frame, self.frame.parts.loop.body.block
        inner: dict[SSAValue, SSAValue] = dict(self.mapping)
        inner.update(zip(old.args, (at, *carried), strict=True))
        own = {copy.destination for copy in frame.own}
        for buffer in frame.slots:
            inner[buffer] = frame.slot_of(index, buffer, slot, self.me.group, buffer in own)
        for op in old.ops:
            if isinstance(op, tile.CopyOp | scf.YieldOp):
                continue
            clone(op, inner, index, self.me.group, self.place)
            if self.columns and isinstance(op, tile.ContractOp):
                limit_columns(inner[op.result], self.columns)
            if op is frame.parts.contracts[-1]:
                under()
        return [inner.get(v, v) for v in _yielded(old)]


def consume(
    frame: RoleFrame,
    index: IndexBuilder,
    known: Mapping[SSAValue, SSAValue],
    me: Consumer,
    place: SSAValue,
    slot: SSAValue,
) -> SSAValue:
    """One tile of one consumer. Returns the slot behind it."""
    tile_loop = TileLoop(frame, me, place, {**known, **me.scratch})
    for op in frame.parts.body:
        if op is frame.parts.loop:
            slot = (_one_in_flight if _may_run_ahead(tile_loop, index) else _none_in_flight)(tile_loop, index, slot)
        else:
            clone(op, tile_loop.mapping, index, me.group, place)
    return slot


def consume_late(
    frame: RoleFrame,
    index: IndexBuilder,
    known: Mapping[SSAValue, SSAValue],
    me: Consumer,
    place: SSAValue,
    slot: SSAValue,
    late: LateStores,
    before: Sequence[SSAValue],
    width: TileWidth,
) -> tuple[SSAValue, list[SSAValue]]:
    """As `consume`, storing the boxes of the tile `before` under the first steps. Returns the slot behind it and this tile's boxes.

    What the loop does not need comes after it: the matrix instructions do not wait for the place of their sums.
    """
    tile_loop = TileLoop(frame, me, place, {**known, **me.scratch}, width.columns)
    chosen = decided(frame.parts.body, frame.mixed, width)
    for op in loop_first(frame.parts):
        if op is frame.parts.loop:
            theirs = {**known, **me.scratch, **dict(zip(late.values(), before, strict=True))}
            slot = _with_late_stores(tile_loop, index, slot, late, theirs)
        elif op in chosen:
            tile_loop.mapping[op.results[0]] = tile_loop.mapping.get(chosen[op], chosen[op])
        elif op not in late.late():
            clone(op, tile_loop.mapping, index, me.group, place)
    return slot, [tile_loop.mapping.get(v, v) for v in late.values()]


def _yielded(block: Block) -> list[SSAValue]:
    last = block.last_op
    if not isinstance(last, scf.YieldOp):
        raise InternalError("a loop without scf.yield")
    return list(last.operands)


def _may_run_ahead(tile_loop: TileLoop, index: IndexBuilder) -> bool:
    """Whether a step's instructions may still run when the next step's are issued: wanted, a step is sure, and nothing else reads sums."""
    parts = tile_loop.frame.parts
    low, high, step = (index.static(v) for v in tile_loop.bounds())
    if not tile_loop.frame.plan.steps_in_flight or low is None or high is None or step is None or high <= low:
        return False
    contracts = set(parts.contracts)
    uses = [use.operation for contract in contracts for use in contract.result.uses]
    return all(isinstance(user, scf.YieldOp) or (isinstance(user, tile.ContractOp) and user in contracts) for user in uses)


def _none_in_flight(tile_loop: TileLoop, index: IndexBuilder, slot: SSAValue) -> SSAValue:
    """Each step hands its slot back."""
    low, _, _ = tile_loop.bounds()
    initial = [tile_loop.mapping.get(v, v) for v in tile_loop.frame.parts.loop.iter_args]
    return _steps(tile_loop, index, low, initial, slot).results[-1]


def _steps(tile_loop: TileLoop, index: IndexBuilder, low: SSAValue, initial: Sequence[SSAValue], slot: SSAValue) -> scf.ForOp:
    """The loop from `low` on; its results are the tile's."""
    frame = tile_loop.frame
    body = Block(arg_types=[IndexType(), *(v.type for v in initial), IndexType()])
    inside = builder_at_end(body, frame.symbols)
    carried = tile_loop.step(inside, body.args[0], body.args[1:-1], body.args[-1])
    body.add_op(scf.YieldOp(*carried, frame.ring.advance(inside, body.args[-1])))
    _, high, step = tile_loop.bounds()
    new = scf.ForOp(low, high, step, [*initial, slot], body)
    index.builder.insert(new)
    tile_loop.mapping.update(zip(frame.parts.loop.results, new.results[:-1], strict=True))
    return new


def static_steps(index: IndexBuilder, bounds: Sequence[SSAValue]) -> int:
    """How many steps a loop surely makes; 0 where that is not known."""
    low, high, step = (index.static(v) for v in bounds)
    return 0 if low is None or high is None or not step else max(0, -(-(high - low) // step))


def _with_late_stores(
    tile_loop: TileLoop, index: IndexBuilder, first_slot: SSAValue, late: LateStores, theirs: dict[SSAValue, SSAValue]
) -> SSAValue:
    """In each of the first steps, boxes of the tile before are stored while the step's instructions run.

    A counter that ends behind the last of them says which, rather than steps in front of the loop: the tools' time goes with the number of
    contractions in the code, and steps repeat once the counter stands.
    """
    frame, loop = tile_loop.frame, tile_loop.frame.parts.loop
    low, high, step = tile_loop.bounds()
    carried = [tile_loop.mapping.get(v, v) for v in loop.iter_args]
    chunks = late.chunks(static_steps(index, (low, high, step)))
    body = Block(arg_types=[IndexType(), *(v.type for v in carried), IndexType(), IndexType()])
    slot, stored = body.args[-2:]
    inside = builder_at_end(body, frame.symbols)

    def under() -> None:
        for number, boxes in enumerate(chunks):
            branch = Block()
            # One box after the other: two at once were 1.2 % slower at 8192^3 (H200).
            mapping = dict(theirs)
            for box in boxes:
                late.emit(builder_at_end(branch, frame.symbols), box, mapping)
            branch.add_op(scf.YieldOp())
            is_next = inside.insert(arith.CmpiOp(stored, inside.constant(number), "eq"))
            inside.builder.insert(scf.IfOp(is_next, [], [branch]))

    inner = tile_loop.step(inside, body.args[0], body.args[1:-2], slot, under)
    following = inside.minimum(inside.add(stored, inside.constant(1)), inside.constant(len(chunks)))
    body.add_op(scf.YieldOp(*inner, frame.ring.advance(inside, slot), following))
    new = scf.ForOp(low, high, step, [*carried, first_slot, index.constant(0)], body)
    index.builder.insert(new)
    tile_loop.mapping.update(zip(loop.results, new.results[:-2], strict=True))
    return new.results[-2]


def _one_in_flight(tile_loop: TileLoop, index: IndexBuilder, slot: SSAValue) -> SSAValue:
    """A step's instructions may still run when the next step's are issued; the first step stands before the loop."""
    frame = tile_loop.frame
    low, _, step = tile_loop.bounds()
    initial = [tile_loop.mapping.get(v, v) for v in frame.parts.loop.iter_args]
    first = tile_loop.step(index, low, initial, slot)
    new = _steps(tile_loop, index, index.add(low, step), first, frame.ring.advance(index, slot))
    new.attributes[pipe.STEPS_IN_FLIGHT] = IntegerAttr(1, i64)
    return new.results[-1]
