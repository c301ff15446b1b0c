"""A machine that nobody builds, from outside the compiler: a row, hooks over `targets/simt`, a backend, a device. It runs on this CPU.

The loom has 16 lanes a warp and at most 64 threads a workgroup; a matrix instruction of 8 x 8 x 4 whose fragments are laid out like no
other machine's; a ferry that brings 4-byte elements to shared memory, with a queue of its own. Its threads are threads of this process:
barriers and what goes from lane to lane meet at barriers of the C library, and the ferry arrives as late as its queue allows, so an order
that a schedule forgets shows as a wrong result.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NoReturn

import llvmlite.binding as llvm
import numpy as np
from targets.host import BF16_ROUNDING, TRIPLE

from treadle.artifact import Kernel, Manifest
from treadle.codegen.llvm_text import F32, I32, PTR, Builder, Parameter, Value, i32
from treadle.codegen.worker import emit_assembly, emit_object
from treadle.dialects.tile import ContractOp, CopyOp, KernelOp, ints, memref_type
from treadle.layout.access import address_plan
from treadle.layout.bits import unpack
from treadle.layout.fragments import instruction_positions, instruction_registers, instruction_step
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.machine import FragmentLayouts, MatrixInstruction, Product, Queue, SharedBanks, TargetSpec, register_target
from treadle.runtime.argument_block import ArgumentBlock, TensorMapEncoder
from treadle.runtime.arrays import HostArray
from treadle.runtime.device import register_device
from treadle.runtime.gpu_program import GpuProgram, Limits
from treadle.runtime.invocation import PointerArg, ScalarArg, TensorMapArg
from treadle.runtime.pool import Pool
from treadle.targets.interface import CompiledKernel, EmittedKernel, IndexParam, KernelFacts, Param
from treadle.targets.registry import register_backend
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.kernel import emit_kernel
from treadle.targets.simt.memory import global_accesses
from treadle.targets.simt.shared import SharedAddresses
from treadle.targets.simt.threads import holds_first_copy, thread_coordinates

NAME: Final = "loom1"
LANES: Final = 16

# --- the row


def _a() -> TileLayout:
    """A (8, 4): rows in the lanes from the highest bit down, every other k in them too."""
    return TileLayout(((0, 1),), ((4, 0), (0, 2), (2, 0), (1, 0)), (), (1, 1))


def _b() -> TileLayout:
    """B (4, 8): columns in the lanes, k = 2, and columns in registers."""
    return TileLayout(((0, 4),), ((1, 0), (0, 1), (2, 0), (0, 2)), (), (1, 1))


def _c(n: int) -> TileLayout:
    """C (8, 8): every second row and column in the lanes."""
    return TileLayout(((2, 0), (0, 2)), ((0, 4), (1, 0), (0, 1), (4, 0)), (), (1, 1))


def _weave(element: str) -> MatrixInstruction:
    name, layouts = f"weave_8x8x4_{element}", FragmentLayouts(_c, _a, _b)
    return MatrixInstruction(name, element, element, "f32", 8, 8, 4, (("registers",), ("registers",)), layouts, "weave")


LOOM: Final = TargetSpec(
    name=NAME,
    vendor="loomworks",
    description="a loom",
    subgroup_size=LANES,
    product=Product("oak", NAME, "a loom of oak", compute_units=3, clock_mhz=1000, memory_gbps=10, l2_bytes=1 << 20),
    shared_bytes_per_workgroup=48 << 10,
    shared_bytes_per_unit=48 << 10,
    registers_per_unit=1 << 15,
    max_registers_per_thread=256,
    max_threads_per_workgroup=64,
    max_threads_per_unit=128,
    max_vector_bytes=16,
    banks=SharedBanks(16, 4),
    matrix_instructions=(_weave("bf16"), _weave("f32")),
    queues=(Queue("ferry", "copy_in", "thread", is_committed=True, is_ordered=False, max_pending=3, path="ferry"),),
    max_warps_per_workgroup=4,
)

# --- the emitter: what a thread finds in its frame, beside the kernel's arguments

_IDS: Final = 0
_SHARED, _EXCHANGE, _WORKGROUP, _WARP, _SCRATCH, _FERRY = 16, 24, 32, 40, 48, 56
_FRAME_BYTES: Final = 64
_SCRATCH_BYTES: Final = 32 << 10
_FERRY_BYTES: Final = 64 << 10
_ARRIVED: Final = 1 << 30
_FRAME: Final = Value(PTR, "%frame")


class LoomHooks(SimtHooks):
    """The loom's part of a kernel."""

    triple = TRIPLE
    calling_convention = ""
    global_space = 0
    shared_space = 0

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__(spec)
        self.cpu = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()

    def function_attributes(self, threads: int) -> Sequence[str]:
        return ("nounwind",)

    def extra_parameters(self, kernel: KernelOp) -> Sequence[tuple[Param, Parameter]]:
        return [(IndexParam(-1), Parameter(PTR, "frame"))]

    def shared_array(self, ctx: KernelContext, size: int) -> tuple[Value, int]:
        return _word(ctx.b, _SHARED), size

    def thread_id(self, b: Builder) -> Value:
        return b.load(I32, _FRAME, 4)

    def warp_id(self, b: Builder, thread: Value) -> Value:
        return b.udiv(thread, i32(LANES))

    def program_id(self, b: Builder, axis: int) -> Value:
        return b.load(I32, b.gep(_FRAME, i32(_IDS + 4 + 4 * axis)), 4)

    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        lane = b.and_(self.thread_id(b), i32(LANES - 1))
        return self.shuffle_index(b, value, b.xor(lane, i32(mask)))

    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        thread, exchange = self.thread_id(b), _word(b, _EXCHANGE)
        b.store(value, b.gep(exchange, thread, I32), 4)
        _meet(b, _WARP)
        found = b.load(I32, b.gep(exchange, b.or_(b.and_(thread, i32(-LANES)), lane), I32), 4)
        _meet(b, _WARP)
        return found

    def barrier(self, b: Builder, threads: int = 0) -> None:
        _meet(b, _WORKGROUP)

    # A thread's ferry: how many parcels there are, how many groups are closed; a parcel is a place, a value, the number of its group.

    def copy(self, ctx: KernelContext, op: CopyOp) -> None:
        """Each thread reads its elements, zero outside the view, and leaves them to the ferry."""
        b, buffer, ferry = ctx.b, ctx.buffer(op.destination), _word(ctx.b, _FERRY)
        shape = tuple(memref_type(op.destination).get_shape())
        tile = blocked(shape, tuple(reversed(range(len(shape)))), 1, LANES, ctx.warps)
        access = global_accesses(ctx, op, ctx.view(op.view), list(op.offsets), ints(op.dims), tile, 1)
        sources = {group.registers: group for group in access.plan.groups}
        plan = address_plan(tile, buffer.layout, 4, 4)
        places = SharedAddresses(ctx, buffer, plan)
        with b.when(holds_first_copy(ctx, tile)):
            for group in plan.groups:
                source = sources[group.registers]
                value = self.load_global(b, access.address(source), I32, 4, access.predicate(source), i32(0), "plain")
                count = b.load(I32, ferry, 4)
                parcel = b.gep(ferry, b.mul(b.add(count, i32(1)), i32(16)))
                b.store(places.of(group), parcel, 8)
                b.store(value, b.gep(parcel, i32(8)), 4)
                b.store(b.load(I32, b.gep(ferry, i32(4)), 4), b.gep(parcel, i32(12)), 4)
                b.store(b.add(count, i32(1)), ferry, 4)

    def commit(self, b: Builder, queue: str) -> None:
        assert queue == "ferry"
        closed = b.gep(_word(b, _FERRY), i32(4))
        b.store(b.add(b.load(I32, closed, 4), i32(1)), closed, 4)

    def wait(self, ctx: KernelContext, queue: str, pending: int) -> None:
        """What is in groups older than the last `pending` arrives; the list is empty again when all has."""
        assert queue == "ferry"
        b, ferry = ctx.b, _word(ctx.b, _FERRY)
        limit = b.sub(b.load(I32, b.gep(ferry, i32(4)), 4), i32(pending))
        with b.loop(i32(0), b.load(I32, ferry, 4), i32(1)) as loop:
            parcel = b.gep(ferry, b.mul(b.add(loop.index, i32(1)), i32(16)))
            group = b.gep(parcel, i32(12))
            with b.when(b.icmp("slt", b.load(I32, group, 4), limit)):
                b.store(b.load(I32, b.gep(parcel, i32(8)), 4), b.load(PTR, parcel, 8), 4)
                b.store(i32(_ARRIVED), group, 4)
        if not pending:
            b.store(i32(0), ferry, 4)

    def contract(self, ctx: KernelContext, op: ContractOp) -> None:
        """All instructions of a contraction: the warp lays its operands out in its scratch memory, then each lane adds up its sums."""
        b, row = ctx.b, self.spec.instruction(op.instruction.data)
        fragments = (_a(), _b(), _c(row.n))
        at = [_word(b, _SCRATCH), b.gep(_word(b, _SCRATCH), i32(_SCRATCH_BYTES // 2))]
        steps: list[tuple[int, ...]] = []
        for number, operand in enumerate((op.a, op.b)):
            layout, fragment, registers = ctx.layout(operand), fragments[number], ctx.tile(operand)
            # A warp has its own rows of A and columns of B, so what it holds is numbered by instruction.
            counts = [side // step for side, step in zip(layout.shape, instruction_step(layout, fragment), strict=True)]
            steps.append(tuple(counts))
            for position in instruction_positions(layout, fragment):
                block = b.gep(at[number], i32(4 * 32 * (position[0] * counts[1] + position[1])))
                for key, register in zip(fragment.register_keys(), instruction_registers(layout, fragment, position), strict=True):
                    value = registers[register]
                    b.store(value if value.type == F32 else b.fpext(value, F32), b.gep(block, _place(ctx, fragment, key), F32), 4)
        _meet(b, _WARP)
        sums, layout = list(ctx.tile(op.accumulator)), ctx.layout(op.accumulator)
        (_, depth), (_, columns) = steps
        for m, n in instruction_positions(layout, fragments[2]):
            for key, register in zip(fragments[2].register_keys(), instruction_registers(layout, fragments[2], (m, n)), strict=True):
                i, j = _coordinates(ctx, fragments[2], key)
                for k in range(4 * depth):
                    left = b.gep(at[0], i32(4 * 32 * (m * depth + k // 4)))
                    right = b.gep(at[1], i32(4 * 32 * (k // 4 * columns + n)))
                    x = b.load(F32, b.gep(left, b.add(b.mul(i, i32(4)), i32(k % 4)), F32), 4)
                    y = b.load(F32, b.gep(right, b.add(i32(8 * (k % 4)), j), F32), 4)
                    sums[register] = b.math("llvm.fma", [x, y, sums[register]])
        _meet(b, _WARP)
        ctx.bind(op.result, sums)


def _word(b: Builder, offset: int) -> Value:
    return b.load(PTR, b.gep(_FRAME, i32(offset)), 8)


def _meet(b: Builder, which: int) -> None:
    barrier = _word(b, which)
    b.module.declare("pthread_barrier_wait", I32, [PTR])
    b.call("pthread_barrier_wait", I32, [barrier])


def _coordinates(ctx: KernelContext, fragment: TileLayout, key: int) -> tuple[Value, Value]:
    row, column = (ctx.b.xor(value, i32(start)) for value, start in zip(thread_coordinates(ctx, fragment), unpack(key, 2), strict=True))
    return row, column


def _place(ctx: KernelContext, fragment: TileLayout, key: int) -> Value:
    row, column = _coordinates(ctx, fragment, key)
    return ctx.b.add(ctx.b.mul(row, i32(fragment.shape[1])), column)


@dataclass(frozen=True, slots=True)
class LoomBackend:
    """Code generation for looms: LLVM text to an object file of this machine."""

    spec: TargetSpec

    def emit(self, kernel: KernelOp) -> EmittedKernel:
        emitted = emit_kernel(kernel, LoomHooks(self.spec))
        return replace(emitted, llvm_text=emitted.llvm_text + BF16_ROUNDING, params=emitted.params[:-1])  # the frame is the device's

    def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
        text, triple, cpu, features = emitted.llvm_text, emitted.triple, emitted.cpu, emitted.features
        offsets, end = list[int](), 0
        for param in emitted.params:
            size = 4 if isinstance(param, IndexParam) and param.bits == 32 else 8
            offsets.append(-(-end // size) * size)
            end = offsets[-1] + size
        facts = KernelFacts(0, 0, 0, param_offsets=tuple(offsets), param_bytes=end)
        assembly = emit_assembly(text, triple=triple, cpu=cpu, features=features)
        return CompiledKernel(emitted, emit_object(text, triple=triple, cpu=cpu, features=features), "o", assembly, facts)


# --- the device

_C: Final = ctypes.CDLL(None)
_BARRIER_BYTES: Final = 64


class Workgroup:
    """Threads of this process that run kernels together, a workgroup at a time."""

    def __init__(self, threads: int, shared_bytes: int) -> None:
        warps = threads // LANES
        self.shared = ctypes.create_string_buffer(shared_bytes + 1024)
        self._exchange = ctypes.create_string_buffer(4 * threads)
        self._barriers = ctypes.create_string_buffer(_BARRIER_BYTES * (1 + warps))
        self._scratch = ctypes.create_string_buffer(_SCRATCH_BYTES * warps)
        self._ferries = ctypes.create_string_buffer(_FERRY_BYTES * threads)
        self._counts = [threads, *[LANES] * warps]
        for number, count in enumerate(self._counts):
            assert _C.pthread_barrier_init(ctypes.c_void_p(self._barrier(number)), None, count) == 0
        self.frames = [ctypes.create_string_buffer(_FRAME_BYTES) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)

    def _barrier(self, number: int) -> int:
        return ctypes.addressof(self._barriers) + _BARRIER_BYTES * number

    def run(self, function: Callable[..., None], arguments: Sequence[Any], place: Sequence[int]) -> None:
        """One workgroup, to its end; shared memory begins with what the one before left there."""
        shared = -(-ctypes.addressof(self.shared) // 1024) * 1024
        for thread, frame in enumerate(self.frames):
            warp = thread // LANES
            scratch = ctypes.addressof(self._scratch) + _SCRATCH_BYTES * warp
            ferry = ctypes.addressof(self._ferries) + _FERRY_BYTES * thread
            addresses = (shared, ctypes.addressof(self._exchange), self._barrier(0), self._barrier(1 + warp), scratch, ferry)
            struct.pack_into("<4i6Q", frame, 0, thread, *place, *addresses)
            ctypes.memset(ferry, 0, 16)
        for done in [self._pool.submit(function, *arguments, ctypes.addressof(frame)) for frame in self.frames]:
            done.result()


class LoomDevice:
    """The loom: this CPU, whose memory is the device's."""

    kind = "loom"
    dlpack_type = 1  # arrays in memory that the CPU reads
    ordinal = 0
    name = "a loom of threads"
    target = machine = NAME
    limits = Limits((1 << 20, 1 << 10, 1 << 10), LOOM.shared_bytes_per_workgroup)

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._arrays: dict[int, Any] = {}
        self._engines: list[Any] = []
        self._workgroups: dict[int, Workgroup] = {}
        self.pool = Pool(self._allocate, self._release, self.synchronize)

    def _allocate(self, nbytes: int) -> int:
        block = ctypes.create_string_buffer(nbytes + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        self._arrays[address] = block
        return address

    def _release(self, address: int) -> None:
        del self._arrays[address]

    def load(self, manifest: Manifest, files: Mapping[str, bytes]) -> GpuProgram:
        return GpuProgram(self, manifest, files)

    def load_kernel(self, kernel: Kernel, binary: bytes) -> int:
        return self.function(kernel.symbol, binary)

    def function(self, symbol: str, binary: bytes) -> int:
        """The address of a kernel in an object file."""
        host = llvm.Target.from_triple(TRIPLE).create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host)
        engine.add_object_file(llvm.ObjectFileRef.from_data(binary))
        engine.finalize_object()
        self._engines.append(engine)
        return engine.get_function_address(symbol)

    def prepare(self, function: int, block: ArgumentBlock, stream: int, early_start: bool = False) -> Callable[[], int]:
        launch, types, values = block.launch, list[Any](), list[Any]()
        for arg in launch.args:
            assert isinstance(arg, PointerArg | ScalarArg)
            kind: Any = ctypes.c_int32 if isinstance(arg, ScalarArg) and arg.kind == "i32" else ctypes.c_uint64
            types.append(kind)
            values.append(kind.from_address(block.address + arg.offset).value)
        call = ctypes.CFUNCTYPE(None, *types, ctypes.c_void_p)(function)

        def enqueue(keep: ArgumentBlock = block) -> int:
            threads = launch.kernel.block[0]
            workgroup = self._workgroups.setdefault(threads, Workgroup(threads, self.limits.shared_bytes))
            for z, y, x in product(*(range(extent) for extent in reversed(launch.grid))):
                workgroup.run(call, values, (x, y, z))
            return 0

        return enqueue

    def prepare_fill(self, address: int, nbytes: int, stream: int) -> Callable[[], int]:
        return lambda: 0 if ctypes.memset(address, 0, nbytes) else 1

    def copy_to_device(self, address: int, data: HostArray, stream: int) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def copy_to_host(self, address: int, nbytes: int, stream: int) -> HostArray:
        return np.frombuffer(ctypes.string_at(address, nbytes), np.uint8)

    def preparation(self, stream: int) -> tuple[Callable[[], int], ...]:
        return ()

    def activate(self) -> None: ...
    def synchronize(self) -> None: ...
    def wait_stream(self, stream: int) -> None: ...
    def is_capturing(self, stream: int) -> bool:
        return False

    def capture(self, stream: int) -> int:
        return 0

    def recovers(self, status: int) -> bool:
        return False

    def refuse(self, call: str, status: int) -> NoReturn:
        raise RuntimeError(f"{call}: {status}")

    def tensor_map_encoder(self, arg: TensorMapArg) -> TensorMapEncoder:
        raise RuntimeError("looms have no tensor maps")


def register() -> None:
    """Everything that makes the loom a target."""
    register_target(LOOM)
    register_backend(LOOM.vendor, LoomBackend)
    register_device(LoomDevice.kind, LoomDevice)
