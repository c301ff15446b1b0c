"""sm_90a's part of a kernel: ids, shuffles, barriers, transaction barriers, tensor copies, native math and conversions."""

from collections.abc import Sequence

from treadle import knobs
from treadle.codegen.llvm_text import I32, PTR, Builder, Parameter, Value, bit_width, i32, key_value
from treadle.dialects.agents import Role, arrival_unit, role_of
from treadle.dialects.pipe import PartOp, RolesOp, SlotOp
from treadle.dialects.sync import ArriveOp, BarrierOp, MbarrierAllocOp, NamedBarrierOp
from treadle.dialects.tile import AllocOp, ContractOp, CopyOp, CopyOutOp, KernelOp, LocalLoadOp, LocalStoreOp, layout_of, tile_type
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.machine import TargetSpec
from treadle.targets.interface import ExpectedFacts, Param, TensorMapParam
from treadle.targets.nvidia import role_registers
from treadle.targets.nvidia.accumulator_banks import free_accumulators
from treadle.targets.nvidia.approximate import approximate
from treadle.targets.nvidia.at_counters import AtCounters
from treadle.targets.nvidia.bf16_pairs import bf16_pairs
from treadle.targets.nvidia.clusters import CLUSTER_BARRIER, arrive, arrive_at_peers, load_from_peer, multicast_form
from treadle.targets.nvidia.cp_async import emit_cp_async
from treadle.targets.nvidia.early_loads import is_early
from treadle.targets.nvidia.elected import STORE_QUEUE, Elected, is_gathered
from treadle.targets.nvidia.folded_place import WINDOW, folded_place
from treadle.targets.nvidia.fp8 import cast_fp8
from treadle.targets.nvidia.global_access import predicated_load, predicated_store, predicated_update
from treadle.targets.nvidia.late_wait import hold_back
from treadle.targets.nvidia.ldmatrix import emit_ldmatrix
from treadle.targets.nvidia.refills import needs_fence
from treadle.targets.nvidia.residency import resident_workgroups
from treadle.targets.nvidia.shifted_copies import ShiftedCopies, stands_among
from treadle.targets.nvidia.stmatrix import emit_stmatrix
from treadle.targets.nvidia.stores import check_stores
from treadle.targets.nvidia.swizzle import SLOT_ALIGN
from treadle.targets.nvidia.tensor_map import ChosenMap, CopyPlan, plan_copy
from treadle.targets.nvidia.tf32 import allocation, rounded, tf32_buffers
from treadle.targets.nvidia.wgmma import emit_wait, emit_wgmma
from treadle.targets.simt.context import Buffer, KernelContext
from treadle.targets.simt.hooks import Reading, SimtHooks
from treadle.targets.simt.roles import moved_by
from treadle.targets.simt.types import element_bytes

MEMORY = "~{memory}"
_BY_WARPS = (RolesOp, ContractOp, CopyOp, CopyOutOp)
"""What makes descriptors, or takes branches, by the number of a warp."""
_PROXY_FENCES = {"async_shared": "shared::cta", "async_global": "global"}


class NvidiaHooks(SimtHooks):
    """Hooks of sm_90a; one object a kernel."""

    triple = "nvptx64-nvidia-cuda"
    calling_convention = "ptx_kernel"
    names_lines = True

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__(spec)
        self.cpu = spec.name
        self._copies: dict[CopyOp | CopyOutOp, CopyPlan] = {}
        self._maps, self._unfetched = dict[TensorMapParam, str](), list[str]()
        self._elected, self._shifted = Elected(), ShiftedCopies()
        self._cluster, self._resident = 1, 1
        self._is_uniform, self._is_early = True, False
        self._tf32: frozenset[AllocOp] = frozenset()
        self._lanes_arriving = spec.subgroup_size if knobs.EVERY_LANE.get() else 1

    # --- the function

    def function_attributes(self, threads: int) -> Sequence[str]:
        cluster = (key_value("nvvm.cluster_dim", f"{self._cluster},1,1"),) if self._cluster > 1 else ()
        return (key_value("nvvm.maxntid", threads), key_value("nvvm.minctasm", self._resident), *cluster, "nounwind")

    def extra_parameters(self, kernel: KernelOp) -> Sequence[tuple[Param, Parameter]]:
        self._cluster, self._resident = kernel.cluster_size(), resident_workgroups(kernel, self.spec)
        self._is_uniform = any(
            isinstance(op, _BY_WARPS) or (isinstance(op, BarrierOp) and op.groups is not None) for op in kernel.body.walk()
        )
        if self.spec.bulk_tensor is None:
            return ()
        self._tf32 = tf32_buffers(kernel, self.spec)
        for op in kernel.body.walk():
            if isinstance(op, CopyOutOp) or (isinstance(op, CopyOp) and op.is_bulk):
                tf32 = isinstance(op, CopyOp) and allocation(op.destination) in self._tf32
                self._copies[op] = plan_copy(kernel, op, self.spec.bulk_tensor, tf32=tf32)
                for param in self._copies[op].maps:
                    self._maps.setdefault(param, f"map{len(self._maps)}")
        # Without grid_constant LLVM copies the map to local memory, where the copy engine cannot read it.
        self._unfetched, words = list(self._maps.values()), 'byval([128 x i8]) align 64 "nvvm.grid_constant"'
        return [(param, Parameter(PTR, name, words)) for param, name in self._maps.items()]

    def shared_alignment(self, alloc: AllocOp) -> int:
        return (
            self.spec.descriptor_align_bytes
            if any(isinstance(user, CopyOp | CopyOutOp | ContractOp) for user in _users(alloc.result))
            else 16
        )

    def begin(self, ctx: KernelContext) -> None:
        check_stores(ctx.kernel)
        self._fetch_maps(ctx)
        if ctx.kernel.overlaps is not None:
            # All threads wait, so that the end of this kernel says that all before it have ended. The next one may come in at once: it
            # waits in its turn, and finds room only where this one leaves some.
            ctx.b.asm("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;", MEMORY)

    def _fetch_maps(self, ctx: KernelContext) -> None:
        """One thread asks for all tensor maps, once: in front of the barriers' start, of which another warp's thread takes care."""
        if not self._unfetched:
            return
        maps, self._unfetched = [ctx.parameters[name] for name in self._unfetched], []
        lines = "\n".join(f"prefetch.tensormap [${i}];" for i in range(len(maps)))
        thread = ctx.lanes if ctx.warps > 1 else 0
        text = f"{{ .reg .pred p;\nsetp.ne.u32 p, ${len(maps)}, {thread};\n@p bra DONE;\n{lines}\nDONE: }}"
        ctx.b.asm(text, ",".join(["l"] * len(maps) + ["r", MEMORY]), [*maps, ctx.thread])

    def after_loop(self, ctx: KernelContext, loop: scf.ForOp) -> None:
        free_accumulators(ctx, loop)

    def expected(self, ctx: KernelContext) -> ExpectedFacts:
        counts = ctx.counts
        return ExpectedFacts(
            matrix_instructions=counts.matrix_instructions,
            bulk_copies=counts.bulk_copies,
            contraction=counts.contractions > 0,
            bulk_stores=counts.bulk_stores,
            matrix_waits=counts.matrix_waits,
        )

    def before(self, ctx: KernelContext, op: Operation | None) -> None:
        if op is None or not is_gathered(op):
            self._elected.flush(ctx)
        if op is None or not stands_among(op):
            self._shifted.flush(ctx)
        if op is not None:
            hold_back(ctx, op)
        self._is_early = is_early(op)

    # --- ids and lanes

    def thread_id(self, b: Builder) -> Value:
        return b.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", I32, pure=True)

    def warp_id(self, b: Builder, thread: Value) -> Value:
        number = b.lshr(thread, i32(5))
        # The shuffle tells ptxas that all lanes agree, which keeps descriptors in uniform registers.
        return self.shuffle_index(b, number, i32(0)) if self._is_uniform else number

    def program_id(self, b: Builder, axis: int) -> Value:
        return b.intrinsic(f"llvm.nvvm.read.ptx.sreg.ctaid.{'xyz'[axis]}", I32, pure=True)

    def compute_unit(self, b: Builder) -> Value:
        return b.intrinsic("llvm.nvvm.read.ptx.sreg.smid", I32)

    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        return b.intrinsic("llvm.nvvm.shfl.sync.bfly.i32", I32, [i32(-1), value, i32(mask), i32(31)], attributes=["convergent"])

    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        return b.intrinsic("llvm.nvvm.shfl.sync.idx.i32", I32, [i32(-1), value, lane, i32(31)], attributes=["convergent"])

    def carried_group(self, value: SSAValue) -> int:
        """Narrow elements fill whole registers: one alone would take one of its own."""
        if not isinstance(value.type, builtin.TensorType) or (layout := layout_of(value)) is None:
            return 1
        element = tile_type(value).element_type
        if element == builtin.i1:
            return 1
        size = element_bytes(element)
        return 4 // size if size < 4 and layout.num_registers % (4 // size) == 0 else 1

    def settled(self, ctx: KernelContext, registers: Sequence[Value]) -> Sequence[Value]:
        # LLVM narrows a pair where it is packed, at the end of the iteration, and holds twice the registers until then.
        if bit_width(registers[0].type) != 16 or len(registers) % 2:
            return registers
        found: list[Value] = []
        for at in range(0, len(registers), 2):
            pair = ctx.pack(registers[at : at + 2])
            word = ctx.b.asm("", "=r,0", [ctx.b.bitcast(pair, I32)], I32, convergent=False)
            found += ctx.unpack(ctx.b.bitcast(word, pair.type))
        return found

    # --- order

    def barrier(self, b: Builder, threads: int = 0) -> None:
        # bar.sync is the aligned form, which promises that all threads execute the same instruction; the code of both is the same.
        b.asm(f"barrier.sync 0, {threads};" if threads else "bar.sync 0;", MEMORY)

    def update_global(self, b: Builder, op: str, address: Value, value: Value, align: int, predicate: Value) -> None:
        if not predicated_update(b, op, address, value, predicate):
            super().update_global(b, op, address, value, align, predicate)

    @property
    def counters(self) -> AtCounters:
        return AtCounters()

    def uniform(self, b: Builder, value: Value) -> Value:
        return self.shuffle_index(b, value, i32(0))

    def cluster_rank(self, b: Builder) -> Value:
        return b.intrinsic("llvm.nvvm.read.ptx.sreg.cluster.ctarank", I32, pure=True)

    def cluster_barrier(self, b: Builder, *, is_first: bool) -> None:
        # The start of barriers has a fence of its own; a release would be one for all memory.
        b.asm(CLUSTER_BARRIER.replace("release", "relaxed", 1) if is_first else CLUSTER_BARRIER, MEMORY)

    def named_barrier(self, ctx: KernelContext, op: NamedBarrierOp) -> None:
        first, threads, role = op.number(0), op.warps.value.data * ctx.lanes, role_of(op)
        last = op.number(role.groups - 1 if role is not None else 0)
        if not 0 < first <= last < 16:
            raise InternalError(f"named barrier {first if first < 1 else last}: there are 1 to 15 beside the workgroup's")
        if threads > ctx.kernel.num_warps.value.data * ctx.lanes:
            raise InternalError(f"named barrier of {threads} threads in a kernel of {ctx.kernel.num_warps.value.data * ctx.lanes}")
        word = "bar.arrive" if op.arrive is not None else "bar.sync"
        if first == last:
            # An immediate: with a number in a register ptxas reserves all 16 barriers.
            ctx.b.asm(f"{word} {first}, {threads};", MEMORY)
        else:
            ctx.b.asm(f"{word} $0, {threads};", f"r,{MEMORY}", [ctx.b.add(ctx.group, i32(first))])

    def check_roles(self, ctx: KernelContext, roles: Sequence[Role]) -> None:
        role_registers.check(ctx, roles, self.spec)

    def begin_role(self, ctx: KernelContext, role: Role) -> None:
        role_registers.move(ctx, role, self.spec)
        self._elected.votes = not any(isinstance(op, ContractOp) for op in role.operations())

    def fence(self, b: Builder, proxy: str) -> None:
        if proxy not in _PROXY_FENCES:
            super().fence(b, proxy)
        b.asm(f"fence.proxy.async.{_PROXY_FENCES[proxy]};", MEMORY)

    def commit(self, b: Builder, queue: str) -> None:
        if queue == STORE_QUEUE:
            self._elected.add("cp.async.bulk.commit_group;")
        elif queue == "wgmma":
            b.asm("wgmma.commit_group.sync.aligned;", MEMORY)
        elif queue == "cp_async":
            b.asm("cp.async.commit_group;", MEMORY)
        else:
            super().commit(b, queue)

    def wait(self, ctx: KernelContext, queue: str, pending: int) -> None:
        if queue == STORE_QUEUE:
            self._elected.add(f"cp.async.bulk.wait_group {pending};")
        elif queue == "wgmma":
            emit_wait(ctx, pending)
        elif queue == "cp_async":
            ctx.b.asm(f"cp.async.wait_group {pending};", MEMORY)
        else:
            super().wait(ctx, queue, pending)

    def wait_read(self, ctx: KernelContext, queue: str, pending: int) -> None:
        if queue == STORE_QUEUE:
            self._elected.add(f"cp.async.bulk.wait_group.read {pending};")
        else:
            super().wait_read(ctx, queue, pending)

    def mbarriers_init(self, ctx: KernelContext, barriers: Sequence[tuple[MbarrierAllocOp, Value]]) -> None:
        b = ctx.b
        if not barriers:
            return
        self._fetch_maps(ctx)
        with b.when(b.icmp("eq", ctx.thread, i32(0))):
            for op, address in barriers:
                count = op.arrivals.value.data * arrival_unit(op) * self._lanes_arriving
                for slot in range(op.slot_count()):
                    at = b.ptrtoint(b.gep(address, i32(slot * self.spec.barrier_bytes)), I32)
                    b.asm("mbarrier.init.shared::cta.b64 [$0], $1;", f"r,r,{MEMORY}", [at, i32(count)])
            b.asm("fence.mbarrier_init.release.cluster;", MEMORY)
        self.barrier(b)

    def mbarrier_expect(self, ctx: KernelContext, address: Value, byte_count: int, unit: int) -> None:
        at, unit = self._elected.operand(ctx.b.ptrtoint(address, I32)), unit * self._lanes_arriving
        if unit == 1:
            self._elected.add(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{at}], {byte_count};")
            return
        self._elected.add(f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{at}], {byte_count};")
        self._elected.add(f"mbarrier.arrive.shared::cta.b64 _, [{at}], {unit};")

    def arrive(self, ctx: KernelContext, op: ArriveOp, address: Value, count: int) -> None:
        if op.peer_ranks():
            arrive_at_peers(ctx, op, address, count * self._lanes_arriving)
        else:
            arrive(ctx, op, address, count, every_lane=self._lanes_arriving > 1)

    def hold_reads(self, ctx: KernelContext, op: BarrierOp | NamedBarrierOp) -> None:
        if needs_fence(ctx, op):
            self.fence(ctx.b, "async_shared")

    def wait_phase(self, ctx: KernelContext, address: Value, parity: Value, *, of_cluster: bool) -> None:
        b = ctx.b
        order = ".acquire.cluster" if of_cluster else ""
        text = f"{{ .reg .pred p;\nWAIT:\nmbarrier.try_wait.parity{order}.shared::cta.b64 p, [$0], $1;\n@p bra DONE;\nbra WAIT;\nDONE: }}"
        b.asm(text, f"r,r,{MEMORY}", [b.ptrtoint(address, I32), parity])

    # --- memory

    def load_global(
        self, b: Builder, address: Value, type: str, align: int, predicate: Value | None, other: Value, reading: Reading
    ) -> Value:
        if predicate is None and reading in ("plain", "read_only"):
            return b.load(type, address, align, metadata=f"!invariant.load {b.module.metadata('!{}')}" if reading == "read_only" else "")
        return predicated_load(b, address, type, predicate, other, reading, stays=self._is_early)

    def store_global(self, b: Builder, address: Value, value: Value, align: int, predicate: Value | None) -> None:
        if predicate is None:
            b.store(value, address, align)
            return
        predicated_store(b, address, value, predicate)

    def copy(self, ctx: KernelContext, op: CopyOp) -> None:
        if op.path.data == "cp_async":
            emit_cp_async(ctx, op, self._shifted, tf32=allocation(op.destination) in self._tf32)
            return
        if op.barrier is None:
            raise InternalError("tile.copy without a barrier to signal")
        todo = self._elected
        form, mask = multicast_form(ctx, op, todo)
        barrier = todo.operand(ctx.b.ptrtoint(ctx.scalar(op.barrier), I32))
        for target, source, at in self._boxes(ctx, op, ctx.buffer(op.destination)):
            start, _, window = at.partition(WINDOW)
            mode, window = ("im2col", f", {{{window}}}") if window else ("tile", "")
            todo.add(
                f"cp.async.bulk.tensor.{start.count(',') + 1}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes{form} "
                f"[{target}], [{source}, {{{start}}}], [{barrier}]{window}{mask};"
            )
            ctx.counts.bulk_copies += 1

    def copy_out(self, ctx: KernelContext, op: CopyOutOp) -> None:
        for source, target, at in self._boxes(ctx, op, ctx.buffer(op.source)):
            text = f"cp.async.bulk.tensor.{at.count(',') + 1}d.global.shared::cta.tile.bulk_group [{target}, {{{at}}}], [{source}];"
            self._elected.add(text)
            ctx.counts.bulk_stores += 1

    def _boxes(self, ctx: KernelContext, op: CopyOp | CopyOutOp, buffer: Buffer) -> list[tuple[str, str, str]]:
        """`(shared address, tensor map, coordinates)` of each box, as operands of what one thread issues."""
        b, todo, plan = ctx.b, self._elected, self._copies[op]
        moved_by(ctx, buffer, SLOT_ALIGN[plan.param.map.swizzle])  # slots keep the boxes aligned
        source = todo.operand(self._map(ctx, plan.chosen or plan.param))
        base = b.ptrtoint(buffer.address, I32)
        if plan.folded is not None:
            return [
                (todo.operand(b.add(base, i32(box.byte_offset))), source, folded_place(ctx, op, plan, box, todo.operand))
                for box in plan.boxes
            ]
        starts = [ctx.small_index(op.offsets[dim]) for dim in plan.view_dims]
        found: list[tuple[str, str, str]] = []
        for box in plan.boxes:
            target = todo.operand(b.add(base, i32(box.byte_offset)))
            at = ", ".join(todo.operand(b.add(start, i32(c))) for start, c in zip(starts, box.start, strict=True))
            found.append((target, source, at))
        return found

    def _map(self, ctx: KernelContext, found: TensorMapParam | ChosenMap) -> Value:
        """Where a tensor map lies."""
        if isinstance(found, TensorMapParam):
            return ctx.parameters[self._maps[found]]
        return ctx.b.select(ctx.scalar(found.condition), self._map(ctx, found.one), self._map(ctx, found.other))

    def local_load(self, ctx: KernelContext, op: LocalLoadOp) -> bool:
        return op.peer is None and emit_ldmatrix(ctx, op)

    def load_from_peer(self, b: Builder, type: str, address: Value, peer: int) -> Value:
        return load_from_peer(b, type, address, peer)

    def local_store(self, ctx: KernelContext, op: LocalStoreOp) -> bool:
        return emit_stmatrix(ctx, op)

    def stored_values(self, ctx: KernelContext, op: LocalStoreOp, values: Sequence[Value]) -> Sequence[Value]:
        return rounded(ctx, values) if allocation(op.destination) in self._tf32 else values

    # --- arithmetic

    def can_start_sums(self, op: ContractOp) -> bool:
        return any(row.name == op.instruction.data for row in self.spec.matrix_instructions)

    def contract(self, ctx: KernelContext, op: ContractOp) -> None:
        try:
            row = self.spec.instruction(op.instruction.data)
        except KeyError:
            super().contract(ctx, op)
            return
        emit_wgmma(ctx, op, row)

    def math(self, b: Builder, name: str, args: Sequence[Value]) -> Value | None:
        return approximate(b, name, args)

    def cast_float(self, b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
        return cast_fp8(b, values, source, result)

    def cast_pairs(self, ctx: KernelContext, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
        return bf16_pairs(ctx, values, source, result)


def _users(value: SSAValue) -> list[Operation]:
    """What uses a shared buffer or slots of it."""
    found: list[Operation] = []
    for use in value.uses:
        found += _users(use.operation.result) if isinstance(use.operation, SlotOp | PartOp) else [use.operation]
    return found
