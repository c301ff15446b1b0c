"""From a `tile.kernel` to LLVM text: the signature, the ids, shared memory, and one handler an operation."""

from collections.abc import Callable
from dataclasses import replace

from treadle.codegen.llvm_text import FALSE, Builder, Module, Parameter, i32, pointer
from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import arrival_unit, arrivals_at, arriving_warps, barrier_of, reads_peers, role_of, split_of
from treadle.dialects.effects import HasEffects
from treadle.dialects.global_arrays import accessed_pointers
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import UNSUPPORTED, InternalError, TreadleError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.locations import location_of
from treadle.targets.interface import EmittedKernel, IndexParam, Param, PointerParam
from treadle.targets.simt.arrivals import emit_await_turn, emit_count_in, emit_local_flag, emit_pass_turn
from treadle.targets.simt.atomics import emit_atomic
from treadle.targets.simt.casts import CASTS, emit_cast
from treadle.targets.simt.constants import emit_constant, emit_lookup
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.contract import emit_fma
from treadle.targets.simt.control import emit_for, emit_if
from treadle.targets.simt.elementwise import ELEMENTWISE, emit_elementwise, no_code
from treadle.targets.simt.gather import emit_gather
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.in_flight import matrix_queue
from treadle.targets.simt.memory import emit_load, emit_store, emit_view
from treadle.targets.simt.moves import (
    emit_broadcast,
    emit_convert_layout,
    emit_extract,
    emit_iota,
    emit_permute,
    emit_reduce,
    emit_reshape,
    emit_rounded_place,
    emit_slice,
    emit_splat,
)
from treadle.targets.simt.roles import emit_barrier_slot, emit_part, emit_roles, emit_slot
from treadle.targets.simt.shared import bind_buffers, emit_local_load, emit_local_store, place_buffers
from treadle.targets.simt.stamps import emit_stamp

# Contraction of a product and a sum is allowed: it only loses a rounding.
FAST_MATH = "contract"


class KernelEmitter:
    """Emits one kernel; use once."""

    def __init__(self, kernel: tile.KernelOp, hooks: SimtHooks) -> None:
        self.kernel = kernel
        self.hooks = hooks
        self.symbol = kernel.sym_name.data
        self.params: list[Param] = []
        self.module = Module(hooks.triple, self.symbol)
        self.ctx: KernelContext
        self._scope = ""
        self._sources: list[str] = []

    def emit(self) -> EmittedKernel:
        """The kernel's text and launch facts."""
        if self.kernel.group_count() != 1:
            raise InternalError(f"kernel {self.symbol} has {self.kernel.group_count()} groups and no roles")
        threads = self.kernel.num_warps.value.data * self.hooks.spec.subgroup_size
        _, written = accessed_pointers(self.kernel)
        parameters = self._parameters(written)
        function = self.module.function(
            self.symbol, parameters, convention=self.hooks.calling_convention, attributes=self.hooks.function_attributes(threads)
        )
        b = Builder(function, FAST_MATH)
        ctx = self.ctx = KernelContext(self.kernel, self.hooks, self.module, b, written)
        ctx.parameters = {parameter.name: value for parameter, value in zip(parameters, function.parameters, strict=True)}
        for argument, value in zip(self.kernel.body.block.args, function.parameters, strict=False):
            ctx.bind(argument, value)
        ctx.thread = self.hooks.thread_id(b)
        ctx.lane = b.and_(ctx.thread, i32(self.hooks.spec.subgroup_size - 1))
        ctx.warp = self.hooks.warp_id(b, ctx.thread) if ctx.warps > 1 else i32(0)
        shared_bytes = self._shared_memory()
        self.hooks.begin(ctx)
        self._scope = self.module.line_table(function, self.symbol) if self.hooks.names_lines else ""
        self._block(self.kernel.body.block)
        self.hooks.end(ctx)
        b.ret()
        return EmittedKernel(
            symbol=self.symbol,
            llvm_text=str(self.module),
            params=tuple(self.params),
            block=(threads, 1, 1),
            cluster=(self.kernel.cluster_size(), 1, 1),
            shared_bytes=shared_bytes,
            grid=self.kernel.grid_text(),
            triple=self.hooks.triple,
            cpu=self.hooks.cpu,
            features=self.hooks.features,
            expected=replace(self.hooks.expected(ctx), sources=tuple(self._sources)),
            overlaps=self.kernel.overlaps is not None,
        )

    def _parameters(self, written: frozenset[SSAValue]) -> list[Parameter]:
        aligns = iter(tile.ints(self.kernel.arg_align))
        inputs = len(tile.ints(self.kernel.arg_align)) - self.kernel.output_count.value.data
        found: list[Parameter] = []
        for index, argument in enumerate(self.kernel.body.block.args):
            if isinstance(argument.type, PointerType):
                # Inputs may alias each other and outputs alias nothing, so all are noalias in LLVM's sense.
                is_constant = index < inputs and argument not in written
                words = f"noalias {'readonly' if is_constant else ''} align {next(aligns)}".replace("  ", " ")
                found.append(Parameter(pointer(self.hooks.global_space), f"p{index}", words))
                self.params.append(PointerParam(index))
            else:
                bits = self.kernel.index_width()
                found.append(Parameter(f"i{bits}", f"s{index}"))
                self.params.append(IndexParam(index, bits))
        for param, parameter in self.hooks.extra_parameters(self.kernel):
            self.params.append(param)
            found.append(parameter)
        return found

    def _shared_memory(self) -> int:
        """Place buffers and barriers, bind them; the dynamic bytes to pass at launch."""
        ctx = self.ctx
        offsets, end = place_buffers(ctx)
        barriers = [op for op in self.kernel.body.walk() if isinstance(op, sync.MbarrierAllocOp)]
        at = -(-end // 8) * 8
        places: list[int] = []
        for op in barriers:
            places.append(at)
            at += op.slot_count() * self.hooks.spec.barrier_bytes
        total = at if barriers else end
        if total > self.hooks.spec.shared_bytes_per_workgroup:
            raise InternalError(
                f"kernel {self.symbol} needs {total} bytes of shared memory, {self.hooks.spec.name} has "
                f"{self.hooks.spec.shared_bytes_per_workgroup}"
            )
        if not total:
            return 0
        ctx.shared, dynamic = self.hooks.shared_array(ctx, total)
        bind_buffers(ctx, offsets)
        placed = [(op, ctx.b.gep(ctx.shared, i32(place))) for op, place in zip(barriers, places, strict=True)]
        for op, address in placed:
            ctx.bind(op.result, address)
        self.hooks.mbarriers_init(ctx, placed)
        return dynamic

    def _block(self, block: Block) -> None:
        for op in block.ops:
            handler = HANDLERS.get(op.name)
            if handler is None:
                if isinstance(op, tile.PrintOp):
                    hint = "run the kernel with target='sim', or take the print out"
                    raise TreadleError(UNSUPPORTED, location_of(op), what=f"printing on {self.hooks.spec.name}", hint=hint)
                if op.name.startswith(("arith.", "math.")):
                    raise no_code(op, self.hooks.spec.name)
                raise InternalError(f"{op.name} has no code on {self.hooks.spec.name}")
            self.hooks.before(self.ctx, op)
            self._enter(op)
            handler(self, op)
        self.hooks.before(self.ctx, None)

    def _enter(self, op: Operation) -> None:
        """What is emitted next comes from `op`: its number is a line of the code's line table."""
        if self._scope:
            place = location_of(op)
            self._sources.append(f"{op.name} at {place}" if place is not None else op.name)
            self.ctx.lines[op] = len(self._sources)
            self.ctx.b.location = self.module.location(self._scope, len(self._sources))

    # --- handlers that need more than the context

    def control(self, op: Operation) -> None:
        """Scf, and roles."""
        if isinstance(op, scf.ForOp):
            emit_for(self.ctx, op, self._block)
        elif isinstance(op, scf.IfOp):
            emit_if(self.ctx, op, self._block)
        elif isinstance(op, pipe.RolesOp):
            emit_roles(self.ctx, op, self._block)

    def memory(self, op: Operation) -> None:
        """Views, loads, stores, copies."""
        if isinstance(op, tile.ViewOp):
            emit_view(self.ctx, op)
        elif isinstance(op, tile.LoadOp):
            emit_load(self.ctx, op)
        elif isinstance(op, tile.GatherOp):
            emit_gather(self.ctx, op)
        elif isinstance(op, tile.AtomicOp):
            emit_atomic(self.ctx, op)
        elif isinstance(op, tile.StoreOp):
            emit_store(self.ctx, op)
        elif isinstance(op, tile.LocalLoadOp):
            emit_local_load(self.ctx, op)
        elif isinstance(op, tile.LocalStoreOp):
            emit_local_store(self.ctx, op)
        elif isinstance(op, tile.CountInOp):
            emit_count_in(self.ctx, op)
        elif isinstance(op, tile.LocalFlagOp):
            emit_local_flag(self.ctx, op)
        elif isinstance(op, tile.AwaitTurnOp):
            emit_await_turn(self.ctx, op)
        elif isinstance(op, tile.PassTurnOp):
            emit_pass_turn(self.ctx, op)
        elif isinstance(op, tile.CopyOp):
            self.hooks.copy(self.ctx, op)
        elif isinstance(op, tile.CopyOutOp):
            self.hooks.copy_out(self.ctx, op)
        elif isinstance(op, pipe.SlotOp):
            emit_slot(self.ctx, op)
        elif isinstance(op, pipe.PartOp):
            emit_part(self.ctx, op)

    def tiles(self, op: Operation) -> None:
        """What makes tiles from tiles."""
        ctx = self.ctx
        if isinstance(op, tile.ProgramIdOp):
            ctx.bind(op.result, ctx.as_index(self.hooks.program_id(ctx.b, op.axis.value.data)))
        elif isinstance(op, pipe.GroupIdOp):
            ctx.bind(op.result, ctx.as_index(ctx.group))
        elif isinstance(op, pipe.ClusterRankOp):
            ctx.bind(op.result, ctx.as_index(self.hooks.cluster_rank(ctx.b)))
        elif isinstance(op, tile.ContractOp):
            if op.instruction.data == "fma":
                emit_fma(ctx, op)
            else:
                ctx.counts.contractions += 1
                self.hooks.contract(ctx, op)
        elif isinstance(op, tile.ReduceOp):
            emit_reduce(ctx, op)
        elif isinstance(op, tile.SplatOp):
            emit_splat(ctx, op)
        elif isinstance(op, tile.IotaOp):
            emit_iota(ctx, op)
        elif isinstance(op, tile.BroadcastOp):
            emit_broadcast(ctx, op)
        elif isinstance(op, tile.PermuteOp):
            emit_permute(ctx, op)
        elif isinstance(op, tile.ReshapeOp):
            emit_reshape(ctx, op)
        elif isinstance(op, tile.ExtractOp):
            emit_extract(ctx, op)
        elif isinstance(op, tile.LookupOp):
            emit_lookup(ctx, op)
        elif isinstance(op, tile.OpaqueOp):
            ctx.bind(op.result, ctx.scalar(op.source))
        elif isinstance(op, tile.SliceOp):
            emit_slice(ctx, op)
        elif isinstance(op, tile.ConvertLayoutOp):
            emit_convert_layout(ctx, op)

    def order(self, op: Operation) -> None:
        """Sync."""
        ctx, hooks = self.ctx, self.hooks
        if isinstance(op, sync.BarrierOp | sync.NamedBarrierOp):
            hooks.hold_reads(ctx, op)
        if isinstance(op, sync.BarrierOp):
            self._barrier(op)
        elif isinstance(op, sync.NamedBarrierOp):
            hooks.named_barrier(ctx, op)
        elif isinstance(op, sync.ClusterBarrierOp):
            hooks.cluster_barrier(ctx.b, is_first=_is_first(op))
        elif isinstance(op, sync.FenceOp):
            hooks.fence(ctx.b, op.proxy.data)
        elif isinstance(op, sync.CommitOp):
            hooks.commit(ctx.b, op.queue.data)
        elif isinstance(op, sync.WaitOp):
            is_matrix = op.queue.data == matrix_queue(self.kernel)
            ctx.retired = ctx.in_flight.retired.get(op, ()) if is_matrix else ()
            ctx.released = ctx.in_flight.released.get(op, ()) if is_matrix else ()
            (hooks.wait if op.read is None else hooks.wait_read)(ctx, op.queue.data, op.pending.value.data)
        elif isinstance(op, sync.MbarrierSlotOp):
            emit_barrier_slot(ctx, op)
        elif isinstance(op, sync.MbarrierExpectOp):
            unit = arrival_unit(barrier_of(op.barrier))
            hooks.mbarrier_expect(ctx, ctx.scalar(op.barrier), op.byte_count.value.data, unit)
        elif isinstance(op, sync.ArriveOp):
            hooks.arrive(ctx, op, ctx.scalar(op.barrier), arrival_unit(barrier_of(op.barrier)) // arriving_warps(op))
        elif isinstance(op, sync.WaitPhaseOp):
            of_cluster = reads_peers(self.kernel) and any(arrive.peer_ranks() for arrive in arrivals_at(barrier_of(op.barrier)))
            hooks.wait_phase(ctx, ctx.scalar(op.barrier), ctx.scalar(op.parity), of_cluster=of_cluster)
        elif isinstance(op, sync.SchedFenceOp):
            hooks.sched_fence(ctx.b, [str(c).strip('"') for c in op.classes])
        elif isinstance(op, sync.SetPriorityOp):
            hooks.set_priority(ctx.b, op.priority.value.data)

    def _barrier(self, op: sync.BarrierOp) -> None:
        """A meeting of the workgroup. With `groups`, only these of the role, or of the kernel's warps, execute it: the hardware counts
        arrivals anywhere.
        """
        ctx = self.ctx
        meet = self.hooks.barrier if op.bare is None else self.hooks.bare_barrier
        in_role, split = role_of(op) is not None, split_of(self.kernel)
        threads = ctx.kernel.num_warps.value.data * ctx.lanes if in_role or split > 1 else 0
        if op.groups is None:
            meet(ctx.b, threads)
            return
        group = ctx.group if in_role else ctx.b.udiv(ctx.warp, i32(ctx.warps // split))
        condition = FALSE
        for number in tile.ints(op.groups):
            condition = ctx.b.or_(condition, ctx.b.icmp("eq", group, i32(number)))
        with ctx.b.when(condition):
            meet(ctx.b, threads)

    def constant(self, op: Operation) -> None:
        """arith.constant."""
        if isinstance(op, arith.ConstantOp):
            emit_constant(self.ctx, op)

    def elementwise(self, op: Operation) -> None:
        """Arith and math."""
        if not emit_rounded_place(self.ctx, op):
            emit_elementwise(self.ctx, op)

    def cast(self, op: Operation) -> None:
        """Conversions."""
        emit_cast(self.ctx, op)

    def stamps(self, op: Operation) -> None:
        """Records of when an agent does what."""
        emit_stamp(self.ctx, op)

    def nothing(self, op: Operation) -> None:
        """Terminators, and what was placed before the body."""


def _is_first(op: sync.ClusterBarrierOp) -> bool:
    """Whether nothing ahead of a meeting touches memory, but for the start of barriers."""
    before = op.prev_op
    while before is not None:
        orders = before.name.startswith("sync.") and not isinstance(before, sync.MbarrierAllocOp)
        if orders or before.regions or (isinstance(before, HasEffects) and before.effects()):
            return False
        before = before.prev_op
    return isinstance(op.parent_op(), tile.KernelOp)


Handler = Callable[[KernelEmitter, Operation], None]
_TILES = (
    "program_id",
    "contract",
    "reduce",
    "splat",
    "iota",
    "broadcast",
    "permute",
    "reshape",
    "slice",
    "convert_layout",
    "extract",
    "lookup",
    "opaque",
)
_MEMORY = ("view", "load", "gather", "atomic", "store", "local_load", "local_store", "copy", "copy_out")
_AT_COUNTERS = ("count_in", "local_flag", "await_turn", "pass_turn")
_ORDER = (
    "barrier",
    "named_barrier",
    "cluster_barrier",
    "fence",
    "commit",
    "wait",
    "mbarrier_slot",
    "mbarrier_expect",
    "arrive",
    "wait_phase",
    "sched_fence",
    "set_priority",
)

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ELEMENTWISE, KernelEmitter.elementwise),
    **dict.fromkeys(CASTS, KernelEmitter.cast),
    **dict.fromkeys(("scf.for", "scf.if", "pipe.roles"), KernelEmitter.control),
    **dict.fromkeys(("pipe.slot", "pipe.part"), KernelEmitter.memory),
    **dict.fromkeys(("pipe.group_id", "pipe.cluster_rank"), KernelEmitter.tiles),
    **dict.fromkeys((f"tile.{name}" for name in _TILES), KernelEmitter.tiles),
    **dict.fromkeys((f"tile.{name}" for name in (*_MEMORY, *_AT_COUNTERS)), KernelEmitter.memory),
    **dict.fromkeys((f"sync.{name}" for name in _ORDER), KernelEmitter.order),
    **dict.fromkeys(("scf.yield", "tile.return", "pipe.end_role", "tile.alloc", "sync.mbarrier_alloc"), KernelEmitter.nothing),
    **dict.fromkeys(("stamp.begin", "stamp.event", "stamp.end"), KernelEmitter.stamps),
    "arith.constant": KernelEmitter.constant,
}


def emit_kernel(kernel: tile.KernelOp, hooks: SimtHooks) -> EmittedKernel:
    """LLVM text of a kernel; `hooks` serve this kernel only."""
    return KernelEmitter(kernel, hooks).emit()
