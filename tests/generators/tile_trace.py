"""A second opinion on synchronisation and layouts: linear traces checked pair by pair, layouts checked for what emitters need.

The trace check knows nothing of data flow: loops are unrolled for a trip count, and every two conflicting accesses must have what orders
them in between.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from treadle.analysis.shared_accesses import SharedAccess, shared_accesses
from treadle.dialects import sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.core import IsTerminator, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.layout.access import address_plan, global_access, global_vector_width
from treadle.layout.conversion import convert
from treadle.layout.grouping import group_layout
from treadle.layout.tile_layout import TileLayout, broadcast_registers
from treadle.plan.access import contiguous_dim

Environment = dict[SSAValue, int]


@dataclass(frozen=True)
class Event:
    """One executed operation; `parity` of a wait_phase."""

    op: Operation
    parity: int = 0


def trace(kernel: tile.KernelOp, trips: int) -> list[Event]:
    """The operations of a kernel in order of execution, every loop taken `trips` times and every branch's first region."""
    env: Environment = {}

    def block(ops: Iterator[Operation]) -> Iterator[Event]:
        for op in ops:
            match op:
                case scf.ForOp():
                    values = [env.get(v, 0) for v in op.iter_args]
                    for _ in range(trips):
                        env.update(zip(op.body.block.args[1:], values, strict=True))
                        yield from block(iter(op.body.block.ops))
                        last = op.body.block.last_op
                        assert last is not None
                        values = [env.get(v, 0) for v in last.operands]
                    env.update(zip(op.results, values, strict=True))
                case scf.IfOp():
                    yield from block(iter(op.regions[0].block.ops))
                case arith.ConstantOp() if isinstance(op.value, builtin.IntegerAttr):
                    env[op.result] = op.value.value.data
                case arith.XOrIOp():
                    env[op.result] = env.get(op.lhs, 0) ^ env.get(op.rhs, 0)
                case sync.WaitPhaseOp():
                    yield Event(op, env[op.parity])
                case _:
                    yield Event(op)

    return list(block(iter(kernel.body.block.ops)))


def problems(kernel: tile.KernelOp, trips: int, *, queued: bool, keep: Callable[[Operation], bool] = lambda _: True) -> list[str]:
    """What is unordered in the trace of `trips` iterations, leaving out the operations that `keep` refuses. `queued`: contractions are."""
    events = [event for event in trace(kernel, trips) if keep(event.op)]
    found: list[str] = []
    accesses: list[tuple[int, SharedAccess]] = []
    unfinished: dict[SSAValue, int] = {}
    phases: dict[SSAValue, int] = {}
    done: dict[int, int] = {}  # event of a copy -> event after which every thread knows it is complete

    def between(first: int, last: int, *wanted: Callable[[Operation], bool]) -> bool:
        """Whether operations of these kinds follow one another strictly between two events."""
        at = first + 1
        for test in wanted:
            while at < last and not test(events[at].op):
                at += 1
            if at >= last:
                return False
            at += 1
        return True

    def barrier(op: Operation) -> bool:
        return isinstance(op, sync.BarrierOp)

    def fence(op: Operation) -> bool:
        return isinstance(op, sync.FenceOp)

    def commit(op: Operation) -> bool:
        return isinstance(op, sync.CommitOp)

    def wait(op: Operation) -> bool:
        return isinstance(op, sync.WaitOp)

    for at, event in enumerate(events):
        op = event.op
        if isinstance(op, sync.WaitPhaseOp):
            pending = [
                i for i, e in enumerate(events[:at]) if isinstance(e.op, tile.CopyOp) and e.op.barrier is op.barrier and i not in done
            ]
            expects = sum(isinstance(e.op, sync.MbarrierExpectOp) and e.op.barrier is op.barrier for e in events[:at])
            phase = phases.get(op.barrier, 0)
            if event.parity != phase % 2 or expects != phase + 1:
                found.append(f"wait_phase of phase {phase} with parity {event.parity} after {expects} arrival(s)")
            phases[op.barrier] = phase + 1
            done.update(dict.fromkeys(pending, at))
        if queued:
            is_chained = isinstance(op, tile.ContractOp)
            for index, operand in enumerate(op.operands):
                passed_on = isinstance(op, scf.YieldOp) or (is_chained and index == 2)
                if operand in unfinished and not passed_on and not between(unfinished[operand], at, commit, wait):
                    found.append(f"{op.name} uses a result that was not waited for")
            if isinstance(op, scf.YieldOp) and isinstance(loop := op.parent_op(), scf.ForOp):
                for operand, argument, result in zip(op.operands, loop.body.block.args[1:], loop.results, strict=True):
                    if operand in unfinished:
                        unfinished[argument] = unfinished[result] = unfinished[operand]
            elif op.has_trait(IsTerminator):
                unfinished = {v: i for v, i in unfinished.items() if not between(i, at, commit, wait)}
            elif is_chained and is_shared(op.operands[0].type):
                unfinished[op.results[0]] = at
        mine = shared_accesses(op)
        for access in mine:
            for earlier_at, earlier in accesses:
                if not earlier.conflicts(access):
                    continue
                source = events[earlier_at].op
                if isinstance(source, tile.CopyOp):
                    ok = earlier_at in done if source.is_bulk else between(earlier_at, at, commit, wait, barrier)
                elif isinstance(source, tile.ContractOp) and queued:
                    ok = between(earlier_at, at, commit, wait, barrier)
                elif earlier.is_write and access.is_async:
                    ok = between(earlier_at, at, fence, barrier)
                else:
                    ok = between(earlier_at, at, barrier)
                if not ok:
                    found.append(f"{source.name} and {op.name} are not ordered")
        accesses.extend((at, access) for access in mine)
    return found


SYNC = (sync.BarrierOp, sync.FenceOp, sync.CommitOp, sync.WaitOp, sync.WaitPhaseOp)


def needless(kernel: tile.KernelOp, *, queued: bool) -> list[str]:
    """The synchronisation whose removal goes unnoticed in a trace of three iterations."""
    found: list[str] = []
    for op in kernel.body.walk():
        if isinstance(op, SYNC) and not problems(kernel, 3, queued=queued, keep=lambda other, op=op: other is not op):
            found.append(op.name)
    return found


def _layout(value: SSAValue) -> TileLayout:
    found = tile.layout_of(value)
    assert found is not None, f"{value} has no layout"
    return found


def check_layouts(kernel: tile.KernelOp) -> None:
    """Every tile has a layout that its operations can be emitted with: the plans of accesses and conversions come out."""
    warps = kernel.num_warps.value.data
    for op in kernel.body.walk():
        tiles = [v for v in (*op.operands, *op.results) if isinstance(v.type, builtin.TensorType)]
        for value in tiles:
            assert _layout(value).shape == tuple(tile.tile_type(value).get_shape())
            assert _layout(value).num_warps == warps
        match op:
            case tile.LoadOp() | tile.StoreOp():
                value = op.result if isinstance(op, tile.LoadOp) else op.value
                along = contiguous_dim(tile.view_strides(op.view), tile.ints(op.dims), tile.tile_type(value).get_shape())
                if along is not None:
                    width = global_vector_width(_layout(value), along, op.vector.value.data)
                    assert global_access(_layout(value), along, width).groups
            case tile.LocalLoadOp() | tile.LocalStoreOp():
                value, buffer = (op.result, op.source) if isinstance(op, tile.LocalLoadOp) else (op.value, op.destination)
                assert address_plan(_layout(value), tile.shared_layout_of(buffer), 1, 1, tile.ints(op.offsets)).groups
            case tile.BroadcastOp():
                assert broadcast_registers(_layout(op.source), _layout(op.result)) is not None
            case tile.ReduceOp():
                for source, result in zip(op.inputs, op.results, strict=True):
                    assert _layout(result) == group_layout(_layout(source), op.axis.value.data, op.groups())
                    assert not any(basis[op.axis.value.data] & ~op.groups() for basis in _layout(source).warp)
            case tile.ConvertLayoutOp():
                assert convert(_layout(op.source), _layout(op.result)).kind in ("register", "shuffle")
            case tile.PermuteOp():
                assert _layout(op.result) == _layout(op.source).permute(tile.ints(op.order))
            case tile.ContractOp() | scf.ForOp() | scf.IfOp() | scf.YieldOp():
                pass
            case _:
                assert len({_layout(v) for v in tiles}) <= 1, op.name
