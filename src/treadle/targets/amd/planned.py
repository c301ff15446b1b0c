"""What a kernel's final schedule says about its machine code: which loads are under way at each operation that the audit can find again.

A forward data flow over structured control flow. A load is under way from where it stands to the first use of its tile; where paths meet,
it counts if it is under way on all of them. A direct copy is under way until a wait of its queue retires it; there any path counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from treadle.dialects import stamp
from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import BarrierOp, NamedBarrierOp, WaitOp
from treadle.dialects.tile import COPY_QUEUES, ContractOp, CopyOp, GatherOp, KernelOp, LoadOp, LocalLoadOp, LocalStoreOp, StoreOp
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.targets.interface import SchedulePoint
from treadle.targets.simt.ranges import Ranges

_KINDS: dict[type[Operation], str] = {
    BarrierOp: "barrier",
    NamedBarrierOp: "barrier",
    ContractOp: "matrix",
    CopyOp: "copy",
    LoadOp: "load",
    GatherOp: "load",
    StoreOp: "store",
    LocalLoadOp: "local_load",
    LocalStoreOp: "local_store",
    stamp.BeginOp: "store",
    stamp.EventOp: "store",
    stamp.EndOp: "store",
}
_MAX_SWEEPS = 100


@dataclass(frozen=True, slots=True)
class _State:
    """`loads`: the lines of the loads that a value under way may come from. `copies`: by line, how many direct copies are newer."""

    loads: Mapping[SSAValue, frozenset[int]] = field(default_factory=dict[SSAValue, frozenset[int]])
    copies: Mapping[int, int] = field(default_factory=dict[int, int])

    def join(self, other: "_State") -> "_State":
        loads = {value: lines | other.loads[value] for value, lines in self.loads.items() if value in other.loads}
        copies = {line: min(age, other.copies.get(line, age)) for line, age in self.copies.items()}
        return _State(loads, {**other.copies, **copies})

    def renamed(self, old: Sequence[SSAValue], new: Sequence[SSAValue]) -> "_State":
        """After values took new names, as carried values or results do; the old names are not read any more."""
        moved = {b: self.loads[a] for a, b in zip(old, new, strict=True) if a in self.loads}
        return _State({**{v: lines for v, lines in self.loads.items() if v not in set(old)}, **moved}, self.copies)

    def used(self, op: Operation) -> "_State":
        """After an operation that reads its operands."""
        return _State({v: lines for v, lines in self.loads.items() if v not in set(op.operands)}, self.copies)


class _Walk:
    def __init__(self, lines: Mapping[Operation, int], ranges: Ranges) -> None:
        self.lines, self.ranges = lines, ranges
        self.points: dict[Operation, SchedulePoint] = {}

    def block(self, block: Block, state: _State, loops: tuple[int, ...]) -> _State:
        for op in block.ops:
            if op in self.lines:
                state = self.operation(op, state, loops)
        return state

    def operation(self, op: Operation, state: _State, loops: tuple[int, ...]) -> _State:
        match op:
            case scf.ForOp():
                return self._loop(op, state, loops)
            case scf.IfOp():
                return self._branches(op, state, loops)
            case RolesOp():
                ends = [self.block(region.block, state, loops) for region in op.roles]
                for end in ends[1:]:
                    ends[0] = ends[0].join(end)
                return ends[0]
            case scf.YieldOp():
                return state
            case _:
                return self._simple(op, state.used(op), loops)

    def _simple(self, op: Operation, state: _State, loops: tuple[int, ...]) -> _State:
        kind, line = _KINDS.get(type(op)), self.lines[op]
        if isinstance(op, LoadOp):
            state = _State({**state.loads, op.result: frozenset({line})}, state.copies)
        elif isinstance(op, CopyOp) and op.path.data == "direct":
            state = _State(state.loads, {**{other: age + 1 for other, age in state.copies.items()}, line: 0})
        elif isinstance(op, WaitOp) and op.queue.data == COPY_QUEUES["direct"]:
            left = op.pending.value.data
            state = _State(state.loads, {other: age for other, age in state.copies.items() if age < left})
        if kind is not None and not (isinstance(op, ContractOp) and op.instruction.data == "fma"):
            ahead = frozenset[int]().union(*state.loads.values()) if self._is_pipelined(op) else ()
            self.points[op] = SchedulePoint(line, kind, loops, tuple(sorted(ahead)), tuple(sorted(state.copies)))
        return state

    @staticmethod
    def _is_pipelined(op: Operation) -> bool:
        parent = op.parent_op()
        while parent is not None and not isinstance(parent, scf.ForOp):
            parent = parent.parent_op()
        return parent is not None and "pipelined" in parent.attributes

    def _loop(self, op: scf.ForOp, state: _State, loops: tuple[int, ...]) -> _State:
        block = op.body.block
        arguments, starts, ends = list(block.args[1:]), list(op.iter_args), _yielded(block)
        entry = state.renamed(starts, arguments)
        inner = (*loops, self.lines[op]) if self.ranges.may_repeat(op) else loops
        top = entry
        for _ in range(_MAX_SWEEPS):
            after = self.block(block, top, inner)
            joined = top.join(after.renamed(ends, arguments))
            if joined == top:
                return state.renamed(starts, list(op.results)).join(after.renamed(ends, list(op.results)))
            top = joined
        raise InternalError("the loads under way around a loop do not settle")

    def _branches(self, op: scf.IfOp, state: _State, loops: tuple[int, ...]) -> _State:
        ends: list[_State] = []
        for region in (op.true_region, op.false_region):
            if not region.blocks:
                ends.append(state)
            elif any(inner in self.lines for inner in region.block.ops):  # the emitter leaves out what never runs
                after = self.block(region.block, state, loops)
                ends.append(after.renamed(_yielded(region.block), list(op.results)) if op.results else after)
        return ends[0].join(ends[-1]) if ends else state


def _yielded(block: Block) -> list[SSAValue]:
    last = block.last_op
    return list(last.operands) if isinstance(last, scf.YieldOp) else []


def schedule_points(kernel: KernelOp, lines: Mapping[Operation, int], ranges: Ranges) -> tuple[SchedulePoint, ...]:
    """The operations of a kernel that access memory, meet or multiply, in order; `lines`: the number of each emitted operation."""
    walk = _Walk(lines, ranges)
    walk.block(kernel.body.block, _State(), ())
    return tuple(sorted(walk.points.values(), key=lambda point: point.line))
