"""A loop of a tile kernel as the records of `plan/stages.py`: units, what they use, what they access. Reads IR, changes nothing."""

from collections.abc import Iterable, Iterator

from treadle.analysis.divisibility import constant_value
from treadle.analysis.element_bytes import buffer_bytes
from treadle.analysis.liveness import allocation
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.limits import machine_of
from treadle.ir.ancestry import ancestors
from treadle.ir.core import BlockArgument, IsTerminator, Operation, OpResult, SSAValue, is_side_effect_free
from treadle.ir.dialects import builtin, scf
from treadle.plan.loop_body import Access, Body, Resource, Result, Unit, Yielded
from treadle.plan.stages import Refusal
from treadle.records import dataclass

PLAIN_ALIGN = 16
"""Bytes by which buffers of the threads are aligned, each slot too."""
_COSTLY = (tile.ContractOp, tile.ReduceOp, tile.ConvertLayoutOp)


@dataclass(frozen=True, slots=True)
class LoopBody:
    """A loop with its records: `operations[i]` is unit i, `memory[r]` the buffer (result of tile.alloc) or pointer of resource r."""

    loop: scf.ForOp
    body: Body
    operations: tuple[Operation, ...]
    memory: tuple[SSAValue, ...]

    @property
    def iterations(self) -> int | None:
        """The trip count, where bounds and step are constants."""
        lower, upper, step = (constant_value(v) for v in (self.loop.lb, self.loop.ub, self.loop.step))
        if lower is None or upper is None or step is None or step < 1:
            return None
        return max(0, -((lower - upper) // step))


def refusal_text(refusal: Refusal, source: LoopBody) -> tuple[str, Operation]:
    """A refusal for the user: rule and sentence, and the operation at fault."""
    at = source.loop if refusal.unit is None else source.operations[refusal.unit]
    return f"not pipelined ({refusal.rule}): {refusal.text}", at


def used_values(op: Operation) -> Iterator[SSAValue]:
    """The values from outside that an operation and all that is nested in it read."""
    inside: set[SSAValue] = set()
    for inner in op.walk():
        for region in inner.regions:
            for block in region.blocks:
                inside.update(block.args)
        for value in inner.operands:
            if value not in inside:
                yield value
        inside.update(inner.results)


def is_pure(op: Operation) -> bool:
    """Whether an operation and all nested in it only compute; division does, as no stage runs for iterations that do not exist."""
    if isinstance(op, scf.IfOp | scf.ForOp):
        return all(is_pure(inner) for region in op.regions for block in region.blocks for inner in block.ops)
    return is_side_effect_free(op) or op.has_trait(IsTerminator) or op.name.split(".")[0] in ("arith", "math", "affine")


def is_repeatable(op: Operation) -> bool:
    """Whether every stage may compute the operation again, as far as its kind goes."""
    return is_pure(op) and not any(isinstance(inner, _COSTLY) for inner in op.walk())


def _is_arithmetic(op: Operation) -> bool:
    if isinstance(op, tile.ContractOp | tile.ReduceOp):
        return True
    is_tile = bool(op.operands and op.results) and isinstance(op.results[0].type, builtin.TensorType)
    return is_tile and op.name.split(".")[0] in ("arith", "math")


class _Reader:
    def __init__(self, loop: scf.ForOp) -> None:
        self.loop = loop
        self.block = loop.body.block
        terminator = self.block.last_op
        self.terminator = terminator
        self.operations = tuple(op for op in self.block.ops if op is not terminator)
        self.number = {op: at for at, op in enumerate(self.operations)}
        self.resources: dict[SSAValue, int] = {}
        self.free: set[int] = set()

    def read(self) -> LoopBody:
        units = tuple(self._unit(at, op) for at, op in enumerate(self.operations))
        yields = tuple(self._yielded(value) for value in (self.terminator.operands if self.terminator is not None else ()))
        resources = tuple(self._resource(value) for value in self.resources)
        return LoopBody(self.loop, Body(units, resources, yields), self.operations, tuple(self.resources))

    def _result(self, value: SSAValue) -> Result | None:
        if isinstance(value, OpResult) and value.op in self.number:
            return self.number[value.op], value.index
        return None

    def _carried(self, value: SSAValue) -> int | None:
        if isinstance(value, BlockArgument) and value.block is self.block and value.index > 0:
            return value.index - 1
        return None

    def _yielded(self, value: SSAValue) -> Yielded:
        return Yielded(self._result(value), self._carried(value))

    def _unit(self, at: int, op: Operation) -> Unit:
        values = tuple(used_values(op))
        uses = frozenset(r for v in values if (r := self._result(v)) is not None)
        carried = frozenset(j for v in values if (j := self._carried(v)) is not None)
        leaves = tuple(inner for inner in op.walk() if not isinstance(inner, scf.IfOp | scf.ForOp) and not inner.has_trait(IsTerminator))
        is_free = not carried and all(p in self.free for p, _ in uses) and is_repeatable(op)
        if is_free:
            self.free.add(at)
        return Unit(
            op.name,
            uses,
            carried,
            tuple(self._accesses(op, None)),
            is_free=is_free,
            loads=any(isinstance(leaf, tile.LoadOp) for leaf in leaves),
            copies=any(isinstance(leaf, tile.CopyOp) for leaf in leaves),
            computes=any(_is_arithmetic(leaf) for leaf in leaves),
            is_final=any(isinstance(leaf, tile.ContractOp | tile.ReduceOp | tile.StoreOp | tile.CopyOutOp) for leaf in leaves),
            synchronises=any(_synchronises(leaf) for leaf in leaves),
            is_opaque=any(not isinstance(leaf, HasEffects) and not is_pure(leaf) for leaf in leaves),
            is_portable=not any(isinstance(r.type, builtin.MemRefType) for r in op.results),
        )

    def _accesses(self, op: Operation, condition: object) -> Iterator[Access]:
        """Accesses of an operation that happens under `condition`."""
        if isinstance(op, scf.IfOp):
            yield from self._branches(op, condition)
            return
        if isinstance(op, HasEffects):
            for effect in op.effects():
                memory = _memory(effect.resource)
                if memory is not None:
                    yield Access(self.resources.setdefault(memory, len(self.resources)), effect.access == "write", condition)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:  # a loop may not run at all, and no two loops run alike as far as is known
                    yield from self._accesses(inner, ("in", op, condition))

    def _branches(self, op: scf.IfOp, condition: object) -> Iterator[Access]:
        found = [
            [a for block in region.blocks for inner in block.ops for a in self._accesses(inner, (op.cond, taken, condition))]
            for taken, region in enumerate(op.regions)
        ]
        always = {a.resource for a in found[0] if a.is_write} & {a.resource for a in found[1] if a.is_write}
        for access in (*found[0], *found[1]):
            yield Access(access.resource, True, condition) if access.is_write and access.resource in always else access

    def _resource(self, value: SSAValue) -> Resource:
        if isinstance(value.type, tile.PointerType):
            return Resource("global memory", is_shared=False, escapes=True)
        uses = [use.operation for use in value.uses]
        plain = all(self._is_inside(op) and isinstance(op, HasEffects) and any(e.resource is value for e in op.effects()) for op in uses)
        return Resource("the shared buffer", escapes=not plain, can_stack=_can_stack(value))

    def _is_inside(self, op: Operation) -> bool:
        return self.loop in (op, *ancestors(op))


def _synchronises(op: Operation) -> bool:
    return op.name.startswith("sync.") or (isinstance(op, tile.CopyOp) and op.barrier is not None)


def _memory(value: SSAValue) -> SSAValue | None:
    """The allocation or pointer behind what an effect names; None for register tiles."""
    if isinstance(value.owner, tile.ViewOp):
        return value.owner.pointer
    alloc = allocation(value)
    if alloc is not None:
        return alloc.result
    return value if isinstance(value.type, builtin.MemRefType) else None


def _can_stack(buffer: SSAValue) -> bool:
    """Whether each slot would be as aligned as the buffer is."""
    users: Iterable[Operation] = (use.operation for use in buffer.uses)
    through_descriptors = any(
        e.proxy == "async" for op in users if isinstance(op, HasEffects) for e in op.effects() if e.resource is buffer
    )
    if not isinstance(buffer.owner, tile.AllocOp):
        return False
    spec = machine_of(buffer.owner)
    return buffer_bytes(buffer) % (spec.descriptor_align_bytes if through_descriptors and spec is not None else PLAIN_ALIGN) == 0


def read_loop(loop: scf.ForOp) -> LoopBody:
    """The records of a loop."""
    return _Reader(loop).read()
