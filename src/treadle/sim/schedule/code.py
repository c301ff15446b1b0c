"""A kernel's blocks as lists of steps that agents execute."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dialects import pipe, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.sim.element_types import Array, poison, storage_dtype
from treadle.sim.index_values import is_index
from treadle.sim.schedule.agents import Agent, Coroutine, Frame
from treadle.sim.schedule.queues import PendingTile, Wait
from treadle.sim.values import operation_function

Act = Callable[[Agent], Wait | None]
"""An operation on memory or on what orders it: None where it is done, else what the agent waits for."""
Control = Callable[[Agent], Coroutine]


class Step:
    """One operation. Exactly one of `pure`, `act`, `control` is set."""

    __slots__ = ("act", "control", "op", "pure")

    def __init__(
        self, op: Operation, *, pure: Callable[[Agent, Frame], None] | None = None, act: Act | None = None, control: Control | None = None
    ) -> None:
        self.op, self.pure, self.act, self.control = op, pure, act, control


Code = list[Step]


def execute(code: Code, agent: Agent) -> Coroutine:
    """Run steps; yields what the agent waits for, and None where others may run in between."""
    frame, findings = agent.frame, agent.world.findings
    interleave = agent.world.interleave
    for step in code:
        if step.pure is not None:
            step.pure(agent, frame)
        elif step.act is not None:
            findings.steps += 1
            wait = step.act(agent)
            if wait is not None:
                while not wait.ready():
                    yield wait
                wait.finish()
            if interleave:
                yield None
        elif step.control is not None:
            yield from step.control(agent)


class Slots:
    """Where values live in a frame. The first three places hold the workgroup's id."""

    def __init__(self) -> None:
        self._of: dict[SSAValue, int] = {}
        self.count = 3

    def of(self, value: SSAValue) -> int:
        """The place of a value."""
        if value not in self._of:
            self._of[value] = self.count
            self.count += 1
        return self._of[value]

    def each(self, values: Sequence[SSAValue]) -> list[int]:
        """The places of values."""
        return [self.of(v) for v in values]


def resolver(value: SSAValue, op: Operation) -> Callable[[Agent, Any], Array]:
    """How an operation gets a register tile from its frame: waiting for it where that is implied, poison where it is not there."""
    kind = tile.tile_type(value)
    shape, dtype = tuple(kind.get_shape()), storage_dtype(kind.element_type)

    def resolve(agent: Agent, stored: Any) -> Array:
        if isinstance(stored, PendingTile):
            stored = agent.resolve(stored, op)
        return poison(shape, dtype) if stored is None else stored

    return resolve


def pure_step(op: Operation, slots: Slots) -> Step:
    """An operation that only computes."""
    function = operation_function(op)
    ins, outs = slots.each(op.operands), slots.each(op.results)
    resolvers = {at: resolver(v, op) for at, v in enumerate(op.operands) if isinstance(v.type, builtin.TensorType)}

    def run(agent: Agent, frame: Frame) -> None:
        values = [frame[i] for i in ins]
        for at, resolve in resolvers.items():
            if values[at].__class__ is PendingTile:
                values[at] = resolve(agent, values[at])
        result = function(*values)
        if len(outs) == 1:
            frame[outs[0]] = result
        elif outs:
            for slot, value in zip(outs, result, strict=True):
                frame[slot] = value

    return Step(op, pure=run)


def _yielded(block: Block, slots: Slots) -> list[int]:
    if not isinstance(block.last_op, scf.YieldOp):
        raise InternalError("a loop or branch of a kernel does not end in scf.yield")
    return slots.each(block.last_op.operands)


class Compiler:
    """Turns blocks into code.

    `memory_step` knows the operations that touch memory or order it, and gives None for all others; `run_roles` is an agent's way through
    pipe.roles with the code of each role.
    """

    def __init__(
        self,
        memory_step: Callable[[Operation, Slots], Step | None],
        run_roles: Callable[[pipe.RolesOp, Sequence[Code], Agent], Coroutine],
    ) -> None:
        self.slots = Slots()
        self._run_roles = run_roles
        self._memory_step = memory_step

    def block(self, block: Block) -> Code:
        """The code of a block."""
        return [step for op in block.ops if (step := self._step(op)) is not None]

    def _step(self, op: Operation) -> Step | None:
        match op:
            case tile.ReturnOp() | scf.YieldOp() | pipe.EndRoleOp():
                return self._memory_step(op, self.slots)
            case tile.ProgramIdOp():
                axis, out = int(op.axis.value.data), self.slots.of(op.result)

                def place(_: Agent, frame: Frame) -> None:
                    frame[out] = frame[axis]

                return Step(op, pure=place)
            case scf.ForOp():
                return self._for(op)
            case scf.IfOp():
                return self._if(op)
            case pipe.RolesOp():
                return self._roles(op)
            case _:
                return self._memory_step(op, self.slots) or pure_step(op, self.slots)

    def _for(self, op: scf.ForOp) -> Step:
        lower, upper, step = self.slots.each((op.lb, op.ub, op.step))
        initial = self.slots.each(op.iter_args)
        block = op.body.block
        induction, *carried = self.slots.each(block.args)
        body = self.block(block)
        yielded, results = _yielded(block, self.slots), self.slots.each(op.results)
        wrap: Callable[[int], Any] = int if is_index(op.lb.type) else np.int32

        def run(agent: Agent) -> Coroutine:
            frame = agent.frame
            values = [frame[s] for s in initial]
            for i in range(int(frame[lower]), int(frame[upper]), int(frame[step])):
                frame[induction] = wrap(i)
                for slot, value in zip(carried, values, strict=True):
                    frame[slot] = value
                yield from execute(body, agent)
                values = [frame[s] for s in yielded]
            for slot, value in zip(results, values, strict=True):
                frame[slot] = value

        return Step(op, control=run)

    def _if(self, op: scf.IfOp) -> Step:
        condition = self.slots.of(op.cond)
        regions = [op.true_region, op.false_region]
        bodies = [self.block(region.block) if region.blocks else [] for region in regions]
        yields = [_yielded(region.block, self.slots) if region.blocks else [] for region in regions]
        results = self.slots.each(op.results)

        def run(agent: Agent) -> Coroutine:
            taken = 0 if agent.frame[condition] else 1
            yield from execute(bodies[taken], agent)
            values = [agent.frame[s] for s in yields[taken]]
            for slot, value in zip(results, values, strict=True):
                agent.frame[slot] = value

        return Step(op, control=run)

    def _roles(self, op: pipe.RolesOp) -> Step:
        codes = [self.block(region.block) for region in op.roles]
        return Step(op, control=lambda agent: self._run_roles(op, codes, agent))
