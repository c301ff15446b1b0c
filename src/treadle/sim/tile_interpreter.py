"""Executes tile kernels in NumPy: one workgroup after the other, each operation to its end before the next.

Workgroups of a cluster that read each other's shared memory go through the kernel together: each operation in all of them before the next.

A kernel is compiled once into a list of closures over slots of a frame; what an operation computes comes from `values.py`. Layouts do not
matter to values, so that a kernel gives the same results before and after every pass of the kernel pipeline.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from treadle.dialects import pipe, tile
from treadle.errors import NOT_EXECUTABLE, InternalError, TreadleError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.plan import expr
from treadle.sim.faults import SimulationFault
from treadle.sim.index_values import check_symbols, is_index
from treadle.sim.memory import Pointer
from treadle.sim.printing import show
from treadle.sim.values import operation_function

Frame = list[Any]
Step = Callable[[Frame], None]

PEERS = "the simulator reads other workgroups' buffers, or parts of them, outside of loops and branches only"


def _bind(function: Callable[..., Any], ins: Sequence[int], outs: Sequence[int]) -> Step:
    """A step that calls `function` on slots; the common arities without building argument lists."""
    if len(outs) == 1:
        out = outs[0]
        if len(ins) == 0:
            return lambda frame: frame.__setitem__(out, function())
        if len(ins) == 1:
            a = ins[0]
            return lambda frame: frame.__setitem__(out, function(frame[a]))
        if len(ins) == 2:
            a, b = ins
            return lambda frame: frame.__setitem__(out, function(frame[a], frame[b]))
        return lambda frame: frame.__setitem__(out, function(*[frame[i] for i in ins]))
    if not outs:
        return lambda frame: function(*[frame[i] for i in ins])

    def several(frame: Frame) -> None:
        for slot, value in zip(outs, function(*[frame[i] for i in ins]), strict=True):
            frame[slot] = value

    return several


def _reads_a_peer(op: Operation) -> bool:
    return isinstance(op, tile.LocalLoadOp) and op.peer is not None


class TileKernel:
    """A `tile.kernel` ready to run.

    `name`, `symbols` (names of its index arguments), `pointer_count`, `grid(symbol values) -> (x, y, z)`.
    """

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.name = kernel.sym_name.data
        self._kernel = kernel
        self.symbols = kernel.symbol_names()
        self._slots: dict[SSAValue, int] = {}
        self._next = 5  # slots 0..2: the workgroup's id; slot 3: the group's; slot 4: the frames of the cluster, by rank
        self._groups = kernel.group_count()
        self._together = kernel.cluster_size() if any(_reads_a_peer(op) for op in kernel.body.walk()) else 1
        arguments = kernel.body.block.args
        self.pointer_count = len(arguments) - len(self.symbols)
        self._output_count = kernel.output_count.value.data
        self._arguments = [self._slot(a) for a in arguments]
        self._steps = self._compile(kernel.body.block)
        self._grid = expr.compile_tuple([expr.parse(text) for text in kernel.grid_text()], self.symbols)

    def grid(self, symbols: Sequence[int]) -> tuple[int, int, int]:
        """Workgroups along x, y and z for values of the symbols."""
        x, y, z = self._grid(*symbols)
        return x, y, z

    def launch(
        self,
        pointers: Sequence[Pointer],
        symbols: Sequence[int],
        grid: Sequence[int] | None = None,
        places: Iterable[tuple[int, int, int]] | None = None,
    ) -> None:
        """Run every workgroup of the grid (by default the kernel's own); outputs are written through their pointers.

        `places`: run the workgroups with these ids (x, y, z) instead, and those that they read shared memory of.
        Raises SimulationFault where the program breaks a promise of its IR.
        """
        if len(pointers) != self.pointer_count or len(symbols) != len(self.symbols):
            raise SimulationFault(f"kernel {self.name} takes {self.pointer_count} pointers and symbols {list(self.symbols)}")
        check_symbols(self._kernel, symbols)
        template: Frame = [None] * self._next
        written = pointers[self.pointer_count - self._output_count :]
        known = [replace(p, constant=not any(np.may_share_memory(p.data, w.data) for w in written)) for p in pointers]
        for slot, value in zip(self._arguments, (*known, *(int(s) for s in symbols)), strict=True):
            template[slot] = value
        if places is None:
            x, y, z = grid if grid is not None else self.grid(symbols)
            places = ((place[2], place[1], place[0]) for place in np.ndindex(z, y, x))
        with np.errstate(all="ignore"):
            for cluster in self._clusters(places):
                for group in range(self._groups):
                    self._run(template, cluster, group)

    def _clusters(self, places: Iterable[tuple[int, int, int]]) -> Iterable[list[tuple[int, int, int]]]:
        """The workgroups with these ids, each with those that it goes through the kernel with, by rank."""
        if self._together == 1:
            return ([place] for place in places)
        firsts = dict.fromkeys((x - x % self._together, y, z) for x, y, z in places)
        return ([(x + rank, y, z) for rank in range(self._together)] for x, y, z in firsts)

    def _run(self, template: Frame, places: Sequence[tuple[int, int, int]], group: int) -> None:
        frames = [template.copy() for _ in places]
        for frame, place in zip(frames, places, strict=True):
            frame[0:5] = (*place, group, frames)
        for step in self._steps:
            for frame in frames:
                step(frame)
        frames.clear()  # each frame refers to all of them

    def _slot(self, value: SSAValue) -> int:
        if value not in self._slots:
            self._slots[value] = self._next
            self._next += 1
        return self._slots[value]

    def _compile(self, block: Block) -> list[Step]:
        return [step for op in block.ops if (step := self._step(op)) is not None]

    def _step(self, op: Operation) -> Step | None:
        match op:
            case tile.ReturnOp() | scf.YieldOp() | pipe.StageOp() | pipe.EndStageOp():
                return None
            case tile.ProgramIdOp():
                axis, out = op.axis.value.data, self._slot(op.result)
                return lambda frame: frame.__setitem__(out, frame[axis])
            case pipe.GroupIdOp():
                out = self._slot(op.result)
                return lambda frame: frame.__setitem__(out, frame[3])
            case pipe.ClusterRankOp():
                out, size = self._slot(op.result), self._kernel.cluster_size()
                return lambda frame: frame.__setitem__(out, frame[0] % size)
            case tile.LocalLoadOp() if op.peer is not None:
                if op.parent_op() is not self._kernel:  # the others are at another step
                    raise TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason=PEERS)
                return self._load_of_peer(op, op.peer.value.data)
            case tile.PrintOp():
                shown = [self._slot(v) for v in op.values]
                return lambda frame: show(op, (frame[0], frame[1], frame[2]), [frame[s] for s in shown])
            case scf.ForOp():
                return self._for(op)
            case scf.IfOp():
                return self._if(op)
            case _:
                function = operation_function(op)
                return _bind(function, [self._slot(v) for v in op.operands], [self._slot(r) for r in op.results])

    def _load_of_peer(self, op: tile.LocalLoadOp, peer: int) -> Step:
        function, out, memory = operation_function(op), self._slot(op.result), self._memory(op.source, op)

        def load(frame: Frame) -> None:
            frame[out] = function(memory(frame, frame[4][peer]))

        return load

    def _memory(self, buffer: SSAValue, reader: tile.LocalLoadOp) -> Callable[[Frame, Frame], Any]:
        """What a buffer is in another workgroup's memory (the second frame), its parts chosen by the reader (the first)."""
        match buffer.owner:
            case tile.AllocOp():
                place = self._slot(buffer)
                return lambda _, other: other[place]
            case pipe.PartOp() as op:
                function, index, whole = operation_function(op), self._slot(op.index), self._memory(op.source, reader)
                return lambda frame, other: function(whole(frame, other), frame[index])
            case _:
                raise TreadleError(NOT_EXECUTABLE, location_of(reader), name=reader.name, reason=PEERS)

    def _yielded(self, block: Block) -> list[int]:
        if not isinstance(block.last_op, scf.YieldOp):
            raise InternalError("a loop or branch of a tile kernel does not end in scf.yield")
        return [self._slot(v) for v in block.last_op.operands]

    def _for(self, op: scf.ForOp) -> Step:
        lower, upper, step = (self._slot(v) for v in (op.lb, op.ub, op.step))
        initial = [self._slot(v) for v in op.iter_args]
        block = op.body.block
        induction, *carried = [self._slot(a) for a in block.args]
        body = self._compile(block)
        yielded = self._yielded(block)
        results = [self._slot(r) for r in op.results]
        wrap: Callable[[int], Any] = int if is_index(op.lb.type) else np.int32

        def run(frame: Frame) -> None:
            values = [frame[s] for s in initial]
            for i in range(int(frame[lower]), int(frame[upper]), int(frame[step])):
                frame[induction] = wrap(i)
                for slot, value in zip(carried, values, strict=True):
                    frame[slot] = value
                for inner in body:
                    inner(frame)
                values = [frame[s] for s in yielded]
            for slot, value in zip(results, values, strict=True):
                frame[slot] = value

        return run

    def _if(self, op: scf.IfOp) -> Step:
        condition = self._slot(op.cond)
        regions = [op.true_region, op.false_region]
        bodies = [self._compile(region.block) if region.blocks else [] for region in regions]
        yields = [self._yielded(region.block) if region.blocks else [] for region in regions]
        results = [self._slot(r) for r in op.results]

        def run(frame: Frame) -> None:
            taken = 0 if frame[condition] else 1
            for inner in bodies[taken]:
                inner(frame)
            values = [frame[s] for s in yields[taken]]
            for slot, value in zip(results, values, strict=True):
                frame[slot] = value

        return run
