"""From a schedule-level kernel to the steps of its agents: control is run on numbers, one workgroup, operation by operation.

Needs values for the kernel's index arguments; the workgroup is the grid's first. Conditions that are read from memory are taken to hold.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import NO_TIMELINE, TreadleError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import location_of
from treadle.machine import TargetSpec
from treadle.plan.expr import parse
from treadle.timeline.durations import ISSUE, LOCAL_LATENCY, Traffic, contraction, elementwise, local_access, transfer
from treadle.timeline.model import Agent
from treadle.timeline.steps import Step
from treadle.verify.scalars import constant_value, scalar_function

FREE = ("tile.splat", "tile.iota", "tile.broadcast", "tile.permute", "tile.slice", "tile.view", "arith.constant")
"""Operations that make no instruction worth a span."""


@dataclass(slots=True)
class Extracted:
    """The agents of one workgroup, arrivals of its mbarriers by key, and how many workgroups the grid has."""

    agents: list[Agent]
    mbarriers: dict[str, int]
    workgroups: int


def bytes_of(value: SSAValue) -> int:
    """Bytes of a tile or a buffer."""
    kind = tile.memref_type(value) if isinstance(value.type, builtin.MemRefType) else tile.tile_type(value)
    return prod(kind.get_shape()) * element_bytes(kind.element_type)


class Extractor:
    """Makes the steps of one kernel. `symbols`: values of the index arguments by name."""

    def __init__(self, kernel: tile.KernelOp, spec: TargetSpec, symbols: Mapping[str, int]) -> None:
        self.kernel, self.spec = kernel, spec
        names = kernel.symbol_names()
        missing = [name for name in names if name not in symbols]
        if missing:
            raise self.refusal(f"the sizes {', '.join(missing)} are not known", f"give --size {missing[0]}=1024 for each of them")
        self._symbols = {name: symbols[name] for name in names}
        self.workgroups = prod(parse(text).evaluate(self._symbols) for text in kernel.grid_text())
        self._pointers = len(kernel.body.block.args) - len(names)
        self._traffic: dict[SSAValue, Traffic] = {}
        self._mbarriers: dict[str, int] = {}
        self._keys: dict[Operation, str] = {}

    def refusal(self, reason: str, hint: str) -> TreadleError:
        """TR824 at this kernel."""
        return TreadleError(NO_TIMELINE, location_of(self.kernel), kernel=self.kernel.sym_name.data, reason=reason, hint=hint)

    def extract(self) -> Extracted:
        """The agents, with their steps still to be made: each is a generator."""
        ops = list(self.kernel.body.walk())
        allocs = [op for op in ops if isinstance(op, sync.MbarrierAllocOp)]
        for number, op in enumerate(allocs):
            key = f"%{op.result.name_hint}" if op.result.name_hint else f"mbarrier {number}"
            self._keys[op] = key
            self._mbarriers |= {f"{key}[{slot}]": op.arrivals.value.data for slot in range(op.slot_count())}
        self._count_traffic()
        warps = self.kernel.num_warps.value.data
        roles = next((op for op in ops if isinstance(op, pipe.RolesOp)), None)
        if roles is None:
            named = [g for op in ops if isinstance(op, sync.BarrierOp) and op.groups is not None for g in tile.ints(op.groups)]
            groups = max(2, max(named) + 1) if named else 1
            names = ["workgroup"] if groups == 1 else [f"group {g}" for g in range(groups)]
            whole = [self._agent(name, warps // groups, g, groups, None) for g, name in enumerate(names)]
            return Extracted(whole, self._mbarriers, self.workgroups)
        agents: list[Agent] = []
        for at, (name, count, each) in enumerate(zip(roles.role_names(), roles.role_groups(), roles.role_warps(), strict=True)):
            agents += [self._agent(name if count == 1 else f"{name} {g}", each, g, 1, at) for g in range(count)]
        return Extracted(agents, self._mbarriers, self.workgroups)

    def _agent(self, name: str, warps: int, group: int, groups: int, role: int | None) -> Agent:
        walk = _Walk(self, name, warps, group, groups, role)
        return Agent(name, warps, walk.block(self.kernel.body.block))

    def initial(self) -> dict[SSAValue, object]:
        """Values that are known when a kernel starts."""
        arguments = self.kernel.body.block.args[self._pointers :]
        return dict(zip(arguments, self._symbols.values(), strict=True))

    def mbarrier_key(self, op: sync.MbarrierAllocOp) -> str:
        """The key of an allocation's barriers, without the slot."""
        return self._keys[op]

    def total_warps(self) -> int:
        """Warps of the workgroup."""
        return self.kernel.num_warps.value.data

    def traffic(self, view: SSAValue) -> Traffic:
        """How the grid reads an array, estimated by what one workgroup reads of it."""
        return self._traffic.get(view, Traffic(1.0, 1.0))

    def _count_traffic(self) -> None:
        counting = _Walk(self, "", 1, 0, 1, None, is_counting=True)
        asked: Counter[SSAValue] = Counter()
        sizes: dict[SSAValue, int] = {}
        for _ in counting.block(self.kernel.body.block):
            pass
        for view, amount in counting.requested.items():
            asked[view] += amount
            sizes[view] = counting.view_bytes(view)
        self._traffic = {view: Traffic(float(amount * self.workgroups), float(sizes[view])) for view, amount in asked.items()}


class _Walk:
    """One agent's way through the kernel."""

    def __init__(
        self, owner: Extractor, name: str, warps: int, group: int, groups: int, role: int | None, *, is_counting: bool = False
    ) -> None:
        self.owner, self.spec, self.warps = owner, owner.spec, warps
        self._group, self._groups, self._role, self._is_counting = group, groups, role, is_counting
        self._env: dict[SSAValue, object] = owner.initial()
        self._tokens = 0
        self._meetings: Counter[str] = Counter()
        self.requested: Counter[SSAValue] = Counter()

    # --- control

    def block(self, block: Block) -> Iterator[Step]:
        for op in block.ops:
            match op:
                case scf.ForOp():
                    yield from self._for(op)
                case scf.IfOp():
                    yield from self._if(op)
                case pipe.RolesOp():
                    yield from self._roles(op)
                case _:
                    step = self._op(op)
                    if step is not None and not self._is_counting:
                        yield step

    def _roles(self, op: pipe.RolesOp) -> Iterator[Step]:
        if self._is_counting:
            for region in op.roles:
                yield from self.block(region.block)
        elif self._role is not None:
            yield from self.block(op.roles[self._role].block)

    def _int(self, value: SSAValue, op: Operation) -> int:
        found = self._env.get(value)
        if not isinstance(found, int):
            raise self.owner.refusal(f"what {op.name} does depends on data", "kernels whose control depends on data have no timeline")
        return found

    def _for(self, op: scf.ForOp) -> Iterator[Step]:
        block, env = op.body.block, self._env
        end = block.last_op
        carried = [env.get(v) for v in op.iter_args]
        for number in range(self._int(op.lb, op), self._int(op.ub, op), self._int(op.step, op)):
            env[block.args[0]] = number
            env.update(zip(block.args[1:], carried, strict=True))
            yield from self.block(block)
            carried = [env.get(v) for v in end.operands] if end is not None else []
        env.update(zip(op.results, carried, strict=True))

    def _if(self, op: scf.IfOp) -> Iterator[Step]:
        known = self._env.get(op.cond)
        region = op.true_region if known is None or known else op.false_region
        if not region.blocks:
            return
        yield from self.block(region.block)
        end = region.block.last_op
        if end is not None:
            self._env.update(zip(op.results, [self._env.get(v) for v in end.operands], strict=True))

    # --- operations

    def _fresh(self, value: SSAValue) -> int:
        self._tokens += 1
        self._env[value] = ("tile", self._tokens)
        return self._tokens

    def _uses(self, op: Operation) -> tuple[int, ...]:
        found = (self._env.get(v) for v in op.operands if isinstance(v.type, builtin.TensorType))
        return tuple(value[1] for value in found if isinstance(value, tuple) and isinstance(value[1], int))

    def _op(self, op: Operation) -> Step | None:
        match op:
            case tile.ProgramIdOp():
                self._env[op.result] = 0
            case pipe.GroupIdOp():
                self._env[op.result] = self._group
            case sync.MbarrierAllocOp():
                self._env[op.result] = (self.owner.mbarrier_key(op), 0)
            case sync.MbarrierSlotOp():
                base = self._env[op.source]
                self._env[op.result] = (base[0] if isinstance(base, tuple) else "", self._int(op.index, op))
            case tile.CopyOp() | tile.CopyOutOp() | tile.LoadOp() | tile.StoreOp():
                return self._memory(op)
            case tile.LocalLoadOp() | tile.LocalStoreOp():
                return self._local(op)
            case tile.ContractOp():
                return self._contract(op)
            case _ if op.name.startswith("sync."):
                return self._sync(op)
            case _:
                return self._other(op)
        return None

    def _other(self, op: Operation) -> Step | None:
        tiles = [r for r in op.results if isinstance(r.type, builtin.TensorType)]
        if tiles and not self._is_counting:
            uses, defines = self._uses(op), tuple(self._fresh(r) for r in tiles)
            shapes = [_shape(v) for v in (*op.operands, *op.results) if isinstance(v.type, builtin.TensorType)]
            clocks = 0.0 if op.name in FREE else elementwise(self.spec, max(shapes, key=prod), op.name, self.warps) / self._groups
            return Step("work", op.name, clocks, 0.0, uses, defines)
        if op.name == "arith.constant":
            self._env[op.results[0]] = constant_value(op)
        elif isinstance(op, arith.SelectOp) and self._env.get(op.cond) is None:
            self._env[op.result] = self._env.get(op.lhs)  # as the way that a branch takes whose condition is read from memory
        elif len(op.results) == 1 and (function := scalar_function(op)) is not None:
            operands = [self._env.get(v) for v in op.operands]
            known = all(isinstance(v, int) for v in operands)
            self._env[op.results[0]] = function(*operands) if known else None
        return None

    def view_bytes(self, view: SSAValue) -> int:
        """Bytes of the elements that a view shows, broadcast dimensions once."""
        op = view.owner
        if not isinstance(op, tile.ViewOp):
            return 0
        sizes = [s if isinstance(s, int) else self._env.get(s) for s in op.size_values()]
        strides = [s if isinstance(s, int) else self._env.get(s) for s in op.stride_values()]
        count = prod(size for size, stride in zip(sizes, strides, strict=True) if isinstance(size, int) and stride != 0)
        return count * element_bytes(tile.memref_type(view).element_type)

    def _memory(self, op: "tile.CopyOp | tile.CopyOutOp | tile.LoadOp | tile.StoreOp") -> Step | None:
        match op:
            case tile.CopyOp():
                moved, what = op.destination, "copy"
            case tile.CopyOutOp():
                moved, what = op.source, "copy out"
            case tile.LoadOp():
                moved, what = op.result, "load"
            case tile.StoreOp():
                moved, what = op.value, "store"
        amount = bytes_of(moved)
        if self._is_counting:
            if isinstance(op, tile.CopyOp | tile.LoadOp):
                self.requested[op.view] += amount
            return None
        amount //= self._groups if not isinstance(op, tile.CopyOutOp) else 1
        is_read = isinstance(op, tile.CopyOp | tile.LoadOp)
        clocks, latency = transfer(self.spec, amount, self.owner.traffic(op.view) if is_read else Traffic(1.0, 1.0))
        label = f"{what} {'x'.join(map(str, _shape(moved)))}"
        match op:
            case tile.CopyOp():
                key = "" if op.barrier is None else self._key(op.barrier)
                queue = None if op.is_bulk else self.spec.queue_for("copy_in")
                name, is_group = ("", False) if queue is None else (queue.name, not queue.is_committed)
                return Step("copy", label, clocks, latency, barrier=key, count=amount, queue=name, is_group=is_group)
            case tile.CopyOutOp():
                queue = self.spec.queue_for("copy_out")
                return Step("store_async", label, clocks, latency, queue="" if queue is None else queue.name)
            case tile.LoadOp():
                return Step("load", label, clocks, latency, defines=(self._fresh(op.result),))
            case tile.StoreOp():
                return Step("store", label, clocks, latency, uses=self._uses(op))

    def _local(self, op: "tile.LocalLoadOp | tile.LocalStoreOp") -> Step | None:
        if self._is_counting:
            return None
        is_load = isinstance(op, tile.LocalLoadOp)
        moved = op.result if isinstance(op, tile.LocalLoadOp) else op.value
        clocks = local_access(self.spec, bytes_of(moved) / self._groups)
        label = f"{'local load' if is_load else 'local store'} {'x'.join(map(str, _shape(moved)))}"
        uses = self._uses(op)
        defines = (self._fresh(moved),) if is_load else ()
        return Step("work", label, max(clocks, ISSUE), LOCAL_LATENCY if is_load else 0.0, uses, defines, is_local=True)

    def _contract(self, op: tile.ContractOp) -> Step | None:
        if self._is_counting:
            return None
        (m, k), (_, n) = op.operand_shape(op.a), op.operand_shape(op.b)
        clocks = contraction(self.spec, op.instruction.data, m, n, k, self.warps) / self._groups
        uses = self._uses(op)
        queue = self.spec.queue_for("matrix") if is_shared(op.a.type) or is_shared(op.b.type) else None
        label = f"contract {m}x{n}x{k}"
        if queue is not None:
            # The accumulator is chained through the queue; whoever reads it stands behind a wait.
            self._env[op.result] = self._env.get(op.accumulator)
            return Step("matrix", label, clocks, uses=uses, queue=queue.name)
        return Step("matrix", label, clocks, uses=uses, defines=(self._fresh(op.result),))

    # --- synchronisation

    def _key(self, barrier: SSAValue) -> str:
        found = self._env.get(barrier)
        return f"{found[0]}[{found[1]}]" if isinstance(found, tuple) else ""

    def _sync(self, op: Operation) -> Step | None:
        if self._is_counting:
            return None
        match op:
            case sync.CommitOp():
                return Step("commit", "commit", queue=op.queue.data)
            case sync.WaitOp():
                label = f"{op.queue.data} <= {op.pending.value.data}"
                return Step("wait", label, queue=op.queue.data, pending=op.pending.value.data, is_read=op.read is not None)
            case sync.MbarrierExpectOp():
                return Step("expect", "expect", barrier=self._key(op.barrier), count=op.byte_count.value.data)
            case sync.ArriveOp():
                key = self._key(op.barrier)
                return Step("arrive", f"arrive {key}", barrier=key, count=1 if self._role is not None else self.warps)
            case sync.WaitPhaseOp():
                key = self._key(op.barrier)
                return Step("wait_phase", f"phase of {key}", barrier=key, parity=self._int(op.parity, op) & 1)
            case sync.BarrierOp():
                if op.groups is not None and self._group not in tile.ints(op.groups):
                    return None
                self._meetings["all"] += 1
                return Step("barrier", "barrier", barrier=f"all {self._meetings['all']}", count=self.owner.total_warps())
            case sync.NamedBarrierOp():
                key = f"named {op.number(self._group)}"
                return Step("barrier", key, barrier=key, count=op.warps.value.data, is_arrival=op.arrive is not None)
            case _:
                return None


def _shape(value: SSAValue) -> tuple[int, ...]:
    kind = tile.memref_type(value) if isinstance(value.type, builtin.MemRefType) else tile.tile_type(value)
    return tuple(kind.get_shape())
