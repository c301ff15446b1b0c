"""AMD's part of a kernel: ids, lanes, barriers, matrix instructions, accumulators as whole vectors.

Barriers wait for shared memory only: a workgroup fence would also wait for loads from global memory on RDNA, which ends every prefetch. In
kernels that read what they write they order global memory too.
"""

from collections.abc import Mapping, Sequence
from math import gcd

from treadle.codegen.llvm_text import F32, FALSE, I32, TRUE, Builder, Value, bit_width, i32, i64, key_value, vector, zero
from treadle.dialects.sync import SchedFenceOp
from treadle.dialects.tile import ContractOp, CopyOp, KernelOp, LoadOp, LocalLoadOp, OrderedCounterOp, ProgramIdOp, layout_of, tile_type
from treadle.errors import InternalError
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.layout.tile_layout import TileLayout
from treadle.machine import MatrixInstruction, Queue, QueueRole, TargetSpec
from treadle.targets.amd.at_counters import AtCounters, of_the_device
from treadle.targets.amd.direct_copies import copies_left, direct_copies, emit_direct_copy, read_scope
from treadle.targets.amd.global_order import global_barriers
from treadle.targets.amd.matrix import emit_matrix, instruction_fragments, zero_accumulator
from treadle.targets.amd.one_wait import wait_once
from treadle.targets.amd.planned import schedule_points
from treadle.targets.interface import ExpectedFacts
from treadle.targets.simt.addresses import MAX_PLACE
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.hooks import SHARED_ALIGN, Place, SimtHooks
from treadle.targets.simt.shared import read_width
from treadle.targets.simt.types import type_name

# What the runtime could pass beside the arguments; none is used, and each would take registers or argument bytes.
_ABSENT = (
    "dispatch-ptr",
    "queue-ptr",
    "dispatch-id",
    "implicitarg-ptr",
    "workitem-id-y",
    "workitem-id-z",
    "cluster-id-x",
    "cluster-id-y",
    "cluster-id-z",
    "lds-kernel-id",
    "heap-ptr",
    "hostcall-ptr",
    "multigrid-sync-arg",
    "default-queue",
    "completion-action",
    "flat-scratch-init",
)


# Instructions with errors of 1 unit in the last place; numbers below the normal range count as zero.
_RAW = {"exp2.flush": "llvm.amdgcn.exp2.f32", "reciprocal.flush": "llvm.amdgcn.rcp.f32"}
# LLVM puts the scaling of small numbers around the machine's instruction.
_SCALED = {"exp2": "llvm.exp2", "log2.approximate": "llvm.log2"}

ROW_LANES = 16
"""Lanes among which a move with data-parallel primitives (DPP) can exchange values."""

WORD = 32
_BUFFER_BITS = (16, WORD, 2 * WORD, 4 * WORD)
_OFFSET_BYTES = 1 << 16
"""That the offset in an instruction on shared memory reaches."""
_ONE_FILE = 256
"""Registers of a thread where accumulators have no file of their own."""
_CLOCK_BITS = 32
"""A counter of fewer bits comes round too often to time a kernel by."""
_TIMER_MHZ = 100
"""The rate of the timer that all compute units share."""

_ROW_MIRROR, _ROW_HALF_MIRROR, _ROW_XMASK = 0x140, 0x141, 0x160


def dpp_controls(mask: int, *, xor_mask: bool) -> list[int]:
    """DPP control words whose moves, one after the other, exchange lanes `l` and `l ^ mask` of a row (one move with `xor_mask`).

    Mirrors of 16 and 8 lanes are exclusive ors with 15 and 7, permutations of four lanes those with 1 to 3; together they reach every mask.
    """
    if xor_mask:
        return [_ROW_XMASK + mask] if mask else []
    controls: list[int] = []
    if mask & 8:
        controls.append(_ROW_MIRROR)
        mask ^= 15
    if mask & 4:
        controls.append(_ROW_HALF_MIRROR)
        mask ^= 7
    if mask:
        controls.append(sum((lane ^ mask) << 2 * lane for lane in range(4)))
    return controls


def _other_row(b: Builder, value: Value) -> Value:
    """The value of lane `l ^ 16` (32 lanes)."""
    identity = [i32(0x76543210), i32(-0x01234568)]  # each lane takes its own place of the other row
    return b.intrinsic("llvm.amdgcn.permlanex16.i32", I32, [i32(0), value, *identity, FALSE, FALSE], attributes=["convergent"])


def _loaded_together(value: SSAValue) -> int:
    """Registers that loops carry as one vector because loads bring them so: taking a vector apart waits for its load."""
    layout = layout_of(value) if isinstance(value.type, builtin.TensorType) else None
    widths = [
        op.vector.value.data if isinstance(op, LoadOp) else read_width(op, layout)
        for op in _origins(value)
        if layout is not None and isinstance(op, LoadOp | LocalLoadOp)
    ]
    layout = layout if widths else None
    return gcd(*widths, layout.num_registers) if layout is not None else 1


def _origins(value: SSAValue) -> list[Operation]:
    """The operations that give a value carried by a loop: before it, and at the end of a trip."""
    block = value.owner
    loop = block.parent_op() if isinstance(block, Block) else value.owner
    if not isinstance(loop, scf.ForOp):
        return []
    carried: list[SSAValue] = list(loop.results) if loop is value.owner else list(loop.body.block.args[1:])
    at = carried.index(value)
    last = loop.body.block.last_op
    found = [loop.iter_args[at], *([last.operands[at]] if last is not None else [])]
    return [one.owner for one in found if isinstance(one.owner, Operation)]


def _epilogue(kernel: KernelOp) -> Operation | None:
    """The first operation behind the last fence outside of loops that goes by the place of its thread; None without such a fence."""
    fences = [op for op in kernel.body.block.ops if isinstance(op, SchedFenceOp)]
    found = fences[-1].next_op if fences else None
    while found is not None and found.name.startswith(("arith.", "math.", "tile.alloc", "sync.")):
        found = found.next_op
    return found


class AmdHooks(SimtHooks):
    """Hooks of one AMD architecture; one object a kernel."""

    triple = "amdgcn-amd-amdhsa"
    calling_convention = "amdgpu_kernel"
    names_lines = True
    widens_late = True

    def __init__(self, spec: TargetSpec, kernel: KernelOp) -> None:
        super().__init__(spec)
        self.cpu = spec.name
        self.holds_many_places = spec.max_registers_per_thread > _ONE_FILE
        self._axes = {op.axis.value.data for op in kernel.body.walk() if isinstance(op, ProgramIdOp)}
        self._global_barriers = global_barriers(kernel)
        self._orders_global = False
        self._counts_in = any(isinstance(op, OrderedCounterOp) for op in kernel.body.walk())
        self._reads_sums = any(_is_read_each_step(op) for op in kernel.body.walk() if isinstance(op, ContractOp))
        self._copies = bool(direct_copies(kernel))
        self._at: Operation | None = None
        self._epilogue = _epilogue(kernel)
        self._copies_left: Mapping[Operation, int] = {}
        if self._copies and (queue := spec.queue_for("copy_in")) is not None:
            self._copies_left = copies_left(kernel, queue, spec.subgroup_size, kernel.num_warps.value.data)
        self._accumulators: dict[TileLayout, MatrixInstruction] = {}
        for op in kernel.body.walk():
            if isinstance(op, ContractOp) and op.instruction.data != "fma" and (layout := layout_of(op.accumulator)) is not None:
                self._accumulators[layout] = spec.instruction(op.instruction.data)

    # --- the function

    def function_attributes(self, threads: int) -> Sequence[str]:
        absent = [*_ABSENT, *(f"workgroup-id-{'xyz'[axis]}" for axis in range(3) if axis not in self._axes)]
        return (
            key_value("amdgpu-flat-work-group-size", f"{threads},{threads}"),
            key_value("uniform-work-group-size", "true"),
            *(key_value(f"amdgpu-no-{word}") for word in absent),
            # Accumulators that are read after every step would travel between the register files.
            *((key_value("amdgpu-agpr-alloc", "0"),) if self._reads_sums and self._accumulators else ()),
            "nounwind",
        )

    def shared_array(self, ctx: KernelContext, size: int) -> tuple[Value, int]:
        return ctx.module.shared_array("treadle_shared", size, SHARED_ALIGN, self.shared_space), 0

    def buffer_address(self, b: Builder, shared: Value, start: int, end: int) -> Value:
        # Places that no instruction's offset reaches would each be added anew in every trip of a loop; a number that LLVM does not know is
        # added once.
        reaches = not start or end <= _OFFSET_BYTES
        return b.gep(shared, i32(start) if reaches else b.asm("", "=s,0", [i32(start)], I32))

    def expected(self, ctx: KernelContext) -> ExpectedFacts:
        points = schedule_points(ctx.kernel, ctx.lines, ctx.ranges)
        return ExpectedFacts(ctx.counts.matrix_instructions, 0, ctx.counts.contractions > 0, points=points)

    # --- ids and lanes

    def thread_id(self, b: Builder) -> Value:
        return b.intrinsic("llvm.amdgcn.workitem.id.x", I32, pure=True)

    def _number_anew(self, ctx: KernelContext) -> None:
        """Threads and lanes as the machine counts them now: the loop that is over needed no register to keep them in."""
        b, bits = ctx.b, self.spec.subgroup_size.bit_length() - 1
        below = b.asm("", "=v,0", [i32(0)], I32)  # a zero that LLVM does not know, so that it does not count ahead of the loop
        for half in ("lo", "hi")[: self.spec.subgroup_size // 32]:
            below = b.intrinsic(f"llvm.amdgcn.mbcnt.{half}", I32, [i32(-1), below], pure=True)
        ctx.lane = below
        ctx.thread = b.or_(b.shl(ctx.warp, i32(bits)), ctx.lane, "disjoint")

    def warp_id(self, b: Builder, thread: Value) -> Value:
        first = b.lshr(thread, i32(self.spec.subgroup_size.bit_length() - 1))
        return b.intrinsic("llvm.amdgcn.readfirstlane.i32", I32, [first], pure=True, attributes=["convergent"])

    def program_id(self, b: Builder, axis: int) -> Value:
        return b.intrinsic(f"llvm.amdgcn.workgroup.id.{'xyz'[axis]}", I32, pure=True)

    def clock(self, b: Builder) -> Value:
        if self.spec.clock_bits < _CLOCK_BITS:  # the shared timer, in units near the clock's
            return b.mul(super().steady_clock(b), i64(max(1, self.spec.clock_mhz // _TIMER_MHZ)))
        return super().clock(b)

    def steady_clock(self, b: Builder) -> Value:
        return b.mul(super().steady_clock(b), i64(1000 // _TIMER_MHZ))

    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        wave64 = self.spec.subgroup_size == 64
        if mask >= ROW_LANES:
            if wave64:
                lane = b.and_(self.thread_id(b), i32(self.spec.subgroup_size - 1))
                return self.shuffle_index(b, value, b.xor(lane, i32(mask)))
            value = _other_row(b, value)
            mask -= ROW_LANES
        for control in dpp_controls(mask, xor_mask=not wave64):
            arguments = [i32(0), value, i32(control), i32(15), i32(15), TRUE]
            value = b.intrinsic("llvm.amdgcn.update.dpp.i32", I32, arguments, attributes=["convergent"])
        return value

    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        return b.intrinsic("llvm.amdgcn.ds.bpermute", I32, [b.shl(lane, i32(2)), value], attributes=["convergent"])

    # --- order

    def before(self, ctx: KernelContext, op: Operation | None) -> None:
        self._at = op
        if op is not None and op is self._epilogue:
            self._number_anew(ctx)
        self._orders_global = self._global_barriers is None or op in self._global_barriers
        wait_once(ctx, op)

    def barrier(self, b: Builder, threads: int = 0) -> None:
        metadata = ""
        if not self._orders_global:
            node = b.module.metadata('!{!"amdgpu-synchronize-as", !"local"}')
            metadata = f"!mmra {node}"
        b.fence("release", "workgroup", metadata)
        if self._orders_global and self._counts_in and self.spec.queue_for("store") is None:
            # One wave releases behind the barrier what all have stored, and its wait says nothing about the others' stores. The fence
            # asks for them where they are counted apart, for the waves of a workgroup may be on two units there.
            self._wait_for(b, "copy_in")
        self._wait_for(b, "local")
        b.intrinsic("llvm.amdgcn.s.barrier", "void", attributes=["convergent"])
        b.fence("acquire", "workgroup", metadata)

    def bare_barrier(self, b: Builder, threads: int = 0) -> None:
        if self._orders_global:
            self.barrier(b, threads)
            return
        # Fences of one thread keep LLVM from moving accesses past the meeting, and wait for nothing.
        b.fence("release", "singlethread")
        b.intrinsic("llvm.amdgcn.s.barrier", "void", attributes=["convergent"])
        b.fence("acquire", "singlethread")

    def wait(self, ctx: KernelContext, queue: str, pending: int) -> None:
        found = self.spec.queue(queue)
        if found is None:
            raise InternalError(f"{self.spec.name} has no queue '{queue}'")
        left = pending if self._at is None else self._copies_left.get(self._at, pending)
        self._wait(ctx.b, found, min(left, found.max_pending))

    def _wait_for(self, b: Builder, role: QueueRole) -> None:
        """What the release fence asks for, said again: LLVM may drop a fence's own wait before it has followed a loop back to its start.

        Rule A4 finds the access that is then pending.
        """
        queue = self.spec.queue_for(role)
        if queue is None:
            raise InternalError(f"{self.spec.name} has no queue of the role {role}")
        self._wait(b, queue, 0)

    def _wait(self, b: Builder, queue: Queue, pending: int) -> None:
        if queue.wait is None:
            raise InternalError(f"{self.spec.name} has no wait for the queue {queue.name}")
        count = queue.wait.immediate(pending)
        name = queue.wait.instruction.replace("_", ".")
        # The intrinsics of instructions with one count each take 16 bits, the common one 32.
        b.intrinsic(f"llvm.amdgcn.{name}", "void", [i32(count) if queue.wait.others else Value("i16", str(count))])

    @property
    def counters(self) -> AtCounters:
        return AtCounters(self._written_back)

    def _written_back(self, b: Builder) -> None:
        if self.spec.queue_for("store") is None:
            self._wait_for(b, "copy_in")  # the write-back that a release begins counts there, which LLVM does not follow

    def update_global(self, b: Builder, op: str, address: Value, value: Value, align: int, predicate: Value) -> None:
        with b.when(predicate):
            b.atomic(op, address, value, "monotonic", align, scope="agent", metadata=of_the_device(b))

    def uniform(self, b: Builder, value: Value) -> Value:
        return b.intrinsic("llvm.amdgcn.readfirstlane.i32", I32, [value], attributes=["convergent"])

    def bounded_load(self, b: Builder, place: Place, type: str, predicate: Value) -> Value | None:
        if not self.spec.buffer_flags or (bits := bit_width(type)) not in _BUFFER_BITS:
            return None
        arguments = [place.start, Value("i16", "0"), i64(MAX_PLACE), i32(self.spec.buffer_flags)]
        descriptor = b.intrinsic("llvm.amdgcn.make.buffer.rsrc.p8.p1", "ptr addrspace(8)", arguments, pure=True)
        result, suffix = (f"i{bits}", f"i{bits}") if bits <= WORD else (vector(bits // WORD, I32), f"v{bits // WORD}i32")
        # Beyond every place, and no word of the load wraps around.
        own = b.select(predicate, place.own, i32(-MAX_PLACE)) if place.outside is None else b.or_(place.own, place.outside)
        loaded = b.intrinsic(f"llvm.amdgcn.raw.ptr.buffer.load.{suffix}", result, [descriptor, own, place.common, i32(0)], flags="")
        return loaded if type == result else b.bitcast(loaded, type)

    def copy(self, ctx: KernelContext, op: CopyOp) -> None:
        emit_direct_copy(ctx, op, self.spec)

    def shared_read(self, b: Builder) -> str:
        return read_scope(b) if self._copies else ""

    def arrived(self, b: Builder, value: Value) -> Value:
        return b.asm("", "=v,0", [value], value.type)

    def sched_fence(self, b: Builder, classes: Sequence[str]) -> None:
        mask, known = 0, dict(self.spec.fence_classes)
        for name in classes:
            if name not in known:
                raise InternalError(f"sync.sched_fence of the unknown class '{name}' (known: {', '.join(known)})")
            mask |= known[name]
        b.intrinsic("llvm.amdgcn.sched.barrier", "void", [i32(mask)])

    def set_priority(self, b: Builder, priority: int) -> None:
        b.intrinsic("llvm.amdgcn.s.setprio", "void", [Value("i16", str(priority))])

    # --- arithmetic

    def contract(self, ctx: KernelContext, op: ContractOp) -> None:
        emit_matrix(ctx, op, self.spec)

    def carried_group(self, value: SSAValue) -> int:
        row = self._row(value)
        return _loaded_together(value) if row is None else instruction_fragments(row)[2].num_registers

    def carried_start(self, ctx: KernelContext, value: SSAValue, registers: Sequence[Value]) -> Value:
        row = self._row(value)
        if row is not None and all(register.text == zero(register.type).text for register in registers):
            return zero_accumulator(ctx.b, row)
        return ctx.pack(registers)

    def _row(self, value: SSAValue) -> MatrixInstruction | None:
        """The instruction whose accumulator a tile is."""
        if not isinstance(value.type, builtin.TensorType) or (layout := layout_of(value)) is None:
            return None
        row = self._accumulators.get(layout)
        return row if row is not None and type_name(tile_type(value).element_type) == row.accumulator_type else None

    def math(self, b: Builder, name: str, args: Sequence[Value]) -> Value | None:
        if args[0].type != F32:
            return None
        if name in _RAW:
            return b.intrinsic(_RAW[name], F32, args, pure=True)
        if name in _SCALED:
            return b.math(_SCALED[name], args)
        accuracy = f"!fpmath {b.module.metadata('!{float 2.5}')}"  # units in the last place
        if name == "divide.approximate":
            return b.pure(F32, f"fdiv contract {args[0].typed}, {args[1].text}, {accuracy}")
        if name in ("sqrt.approximate", "rsqrt.approximate"):
            root = b.intrinsic("llvm.sqrt.f32", F32, args, flags="contract", pure=True, metadata=accuracy)
            return root if name.startswith("sqrt") else b.pure(F32, f"fdiv contract float 1.0, {root.text}, {accuracy}")
        return None


def _is_read_each_step(contract: ContractOp) -> bool:
    """Whether something else than a sum that goes on uses a contraction's result in the loop around it."""
    loop = contract.parent_op()
    if not isinstance(loop, scf.ForOp):
        return False
    users = [use.operation for use in contract.result.uses]
    return any(loop in ancestors(user) and not isinstance(user, ContractOp | scf.YieldOp) for user in users)
