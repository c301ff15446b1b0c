"""What a kernel's final schedule says about its machine code: which loads are in flight at each operation that the audit can find again.

A forward data flow over structured control flow. A load is in flight from where it stands to the first use of its tile; where paths meet,
it counts if it is in flight on all of them. A direct copy is in flight until a wait of its queue retires it; there any path counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from treadle.analysis.structured_flow import StructuredFlow, yielded
from treadle.dialects import stamp
from treadle.dialects.sync import BarrierOp, NamedBarrierOp, WaitOp
from treadle.dialects.tile import ContractOp, CopyOp, GatherOp, KernelOp, LoadOp, LocalLoadOp, LocalStoreOp, StoreOp
from treadle.ir.core import Operation, Region, SSAValue
from treadle.ir.dialects import scf
from treadle.machine import target_spec
from treadle.records import dataclass
from treadle.targets.amd.stages import stage_point
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


@dataclass(frozen=True, slots=True)
class _State:
    """`loads`: the lines of the loads that a value in flight may come from. `copies`: by line, how many direct copies are newer. `local`:
    the lines of accesses to shared memory that nothing has waited for. `used`: those of the loads used since the point before.
    """

    loads: Mapping[SSAValue, frozenset[int]] = field(default_factory=dict[SSAValue, frozenset[int]])
    copies: Mapping[int, int] = field(default_factory=dict[int, int])
    local: frozenset[int] = frozenset()
    used: frozenset[int] = frozenset()

    def join(self, other: "_State") -> "_State":
        loads = {value: lines | other.loads[value] for value, lines in self.loads.items() if value in other.loads}
        copies = {line: min(age, other.copies.get(line, age)) for line, age in self.copies.items()}
        return _State(loads, {**other.copies, **copies}, self.local | other.local, self.used | other.used)

    def renamed(self, old: Sequence[SSAValue], new: Sequence[SSAValue]) -> "_State":
        """After values took new names, as carried values or results do; the old names are not read any more."""
        moved = {b: self.loads[a] for a, b in zip(old, new, strict=True) if a in self.loads}
        return replace(self, loads={**{v: lines for v, lines in self.loads.items() if v not in set(old)}, **moved})

    def reading(self, op: Operation) -> "_State":
        """After an operation that reads its operands."""
        read = self.loads.keys() & set(op.operands)
        if not read:
            return self
        used = self.used.union(*(self.loads[value] for value in read))
        return replace(self, loads={v: lines for v, lines in self.loads.items() if v not in read}, used=used)


class _Walk(StructuredFlow[_State]):
    def __init__(self, kernel: KernelOp, lines: Mapping[Operation, int], ranges: Ranges) -> None:
        self.lines, self.ranges = lines, ranges
        queue = target_spec(kernel.target.data).queue_for("copy_in")
        self.copy_queue = "" if queue is None else queue.name
        local = target_spec(kernel.target.data).queue_for("local")
        self.local_queue = "" if local is None else local.name
        self.points: dict[Operation, SchedulePoint] = {}

    def join(self, one: _State, other: _State) -> _State:
        return one.join(other)

    def operation(self, op: Operation, state: _State, *, emit: bool) -> _State:
        return super().operation(op, state, emit=emit) if op in self.lines else state

    def plain(self, op: Operation, state: _State, *, emit: bool) -> _State:
        state = state.reading(op)
        kind, line = _KINDS.get(type(op)), self.lines[op]
        if isinstance(op, LoadOp):
            state = replace(state, loads={**state.loads, op.result: frozenset({line})})
        elif isinstance(op, CopyOp) and not op.is_bulk:
            state = replace(state, copies={**{other: age + 1 for other, age in state.copies.items()}, line: 0})
        elif isinstance(op, WaitOp) and op.queue.data == self.copy_queue:
            left = op.pending.value.data
            state = replace(state, copies={other: age for other, age in state.copies.items() if age < left})
        elif isinstance(op, LocalLoadOp | LocalStoreOp):
            state = replace(state, local=state.local | {line})
        elif self._flushes(op):
            state = replace(state, local=frozenset())
        if kind is None or (isinstance(op, ContractOp) and op.instruction.data == "fma"):
            return state
        if emit:
            ahead = frozenset[int]().union(*state.loads.values()) if self._is_pipelined(op) else ()
            pending = {*state.copies, *(state.local if isinstance(op, BarrierOp) else ())}
            found = tuple(sorted(ahead)), tuple(sorted(pending))
            stage, used = stage_point(op, self.lines), tuple(sorted(state.used))
            self.points[op] = SchedulePoint(line, kind, self._loops(op), *found, stage=stage, used=used)
        return replace(state, used=frozenset()) if state.used else state

    def _flushes(self, op: Operation) -> bool:
        """Whether nothing that a warp has done to shared memory is pending behind an operation."""
        if isinstance(op, WaitOp):
            return op.queue.data == self.local_queue and not op.pending.value.data
        return isinstance(op, BarrierOp) and op.bare is None and op.groups is None

    @staticmethod
    def _is_pipelined(op: Operation) -> bool:
        parent = op.parent_op()
        while parent is not None and not isinstance(parent, scf.ForOp):
            parent = parent.parent_op()
        return parent is not None and "pipelined" in parent.attributes

    def _loops(self, op: Operation) -> tuple[int, ...]:
        """The lines of the loops around an operation that may repeat, the innermost last."""
        found: list[int] = []
        parent = op.parent_op()
        while parent is not None:
            if isinstance(parent, scf.ForOp) and self.ranges.may_repeat(parent):
                found.insert(0, self.lines[parent])
            parent = parent.parent_op()
        return tuple(found)

    def enter(self, loop: scf.ForOp, state: _State) -> _State:
        return state.renamed(tuple(loop.iter_args), loop.body.block.args[1:])

    def around(self, loop: scf.ForOp, state: _State) -> _State:
        return state.renamed(yielded(loop.body.block), loop.body.block.args[1:])

    def leave(self, loop: scf.ForOp, state: _State) -> _State:
        return state.renamed(loop.body.block.args[1:], loop.results)

    def branch(self, op: scf.IfOp, state: _State, *, emit: bool) -> _State:
        """Branches that never run are not emitted."""
        ends = [
            self.leave_branch(op, region, self.block(region.block, state, emit=emit)) if region.blocks else state
            for region in op.regions
            if not region.blocks or any(inner in self.lines for inner in region.block.ops)
        ]
        return self.join(ends[0], ends[-1]) if ends else state

    def leave_branch(self, op: scf.IfOp, region: Region, state: _State) -> _State:
        return state.renamed(yielded(region.block), op.results) if op.results else state


def schedule_points(kernel: KernelOp, lines: Mapping[Operation, int], ranges: Ranges) -> tuple[SchedulePoint, ...]:
    """The operations of a kernel that access memory, meet or multiply, in order; `lines`: the number of each emitted operation."""
    walk = _Walk(kernel, lines, ranges)
    walk.block(kernel.body.block, _State(), emit=True)
    return tuple(sorted(walk.points.values(), key=lambda point: point.line))
