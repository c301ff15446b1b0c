"""What a vendor supplies to `targets/simt`: thread ids, shuffles, barriers, matrix instructions, hardware copies, native math.

One hooks object serves one kernel: it may keep state between calls. All methods emit code at the builder's current place.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Literal, TypeAlias

from treadle.codegen.llvm_text import I64, TRUE, Builder, Parameter, Value, i32
from treadle.dialects.sync import ArriveOp, BarrierOp, MbarrierAllocOp, NamedBarrierOp
from treadle.dialects.tile import AllocOp, ContractOp, CopyOp, CopyOutOp, KernelOp, LocalLoadOp, LocalStoreOp, layout_of, tile_type
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.targets.interface import ExpectedFacts, Param
from treadle.targets.simt.counters import Counters
from treadle.targets.simt.types import element_bytes

if TYPE_CHECKING:
    from treadle.dialects.agents import Role
    from treadle.targets.simt.context import KernelContext


Reading: TypeAlias = Literal["plain", "ordered", "read_only", "streaming"]
"""Of a load from global memory: nothing is known; it stays where it is; no thread of the kernel writes there; and nobody reads it again."""
SHARED_ALIGN = 1024
"""Bytes by which the workgroup's shared memory begins: no buffer in it asks for more."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address as `start`, a pointer that all threads have, and bytes from there as i32: a thread's `own` and a `common` part, both of
    them and their sum natural numbers below 2^31 where the access is made. `outside`: where it is known, i32 whose highest bit, the only
    one, says that there is nothing to access; `own` is less than 2^31 then too.
    """

    start: Value
    own: Value
    common: Value
    outside: Value | None = None


class SimtHooks(ABC):
    """One vendor's part of a kernel's emission.

    `triple`, `cpu`, `features`: for LLVM. `calling_convention`: LLVM's word on kernels. Address spaces as LLVM numbers them.
    `native_floats`: LLVM float types with add, mul, fma of their own (others are computed in `float`, rounded after every operation).
    """

    triple: str
    cpu: str
    features: str = ""
    calling_convention: str
    global_space: int = 1
    constant_space: int = 4
    shared_space: int = 3
    native_floats: frozenset[str] = frozenset({"half", "float", "double"})

    names_lines: bool = False
    """Whether instructions carry the number of the operation they come from, for the audit of the machine code."""

    widens_late: bool = False
    """Whether 8-bit floats that are loaded ahead stay in whole words until they are widened: the compiler would wait for them before."""

    holds_many_places: bool = False
    """Whether registers hold the place of each of a thread's loads in a loop over windows beside its places along the axes: what all
    threads share is then added apart. It always is where a word of bits stands for these.
    """

    def __init__(self, spec: TargetSpec) -> None:
        self.spec = spec

    # --- the function

    @abstractmethod
    def function_attributes(self, threads: int) -> Sequence[str]:
        """Attributes of the kernel function (words or `key_value` strings) for workgroups of `threads`."""

    def extra_parameters(self, kernel: KernelOp) -> Sequence[tuple[Param, Parameter]]:
        """Parameters after the kernel's own (tensor maps)."""
        _ = kernel
        return ()

    def shared_array(self, ctx: "KernelContext", size: int) -> tuple[Value, int]:
        """`(address, dynamic bytes)` of the workgroup's shared memory of `size` bytes. Default: dynamic, all of it passed at launch."""
        return ctx.module.shared_array("treadle_shared", None, SHARED_ALIGN, self.shared_space), size

    def shared_alignment(self, alloc: AllocOp) -> int:
        """Byte alignment of a shared buffer."""
        _ = alloc
        return 16

    def buffer_address(self, b: Builder, shared: Value, start: int, end: int) -> Value:
        """The address of the bytes from `start` to `end` of the workgroup's shared memory."""
        _ = end
        return b.gep(shared, i32(start))

    def begin(self, ctx: "KernelContext") -> None:
        """Called once, after parameters and ids exist and before the body."""
        _ = ctx

    def before(self, ctx: "KernelContext", op: Operation | None) -> None:
        """Called before every operation, and with None at the end of every block: gathered instructions can be written out here."""
        _ = ctx, op

    def after_loop(self, ctx: "KernelContext", loop: scf.ForOp) -> None:
        """Called behind every loop, where its results are bound."""
        _ = ctx, loop

    def end(self, ctx: "KernelContext") -> None:
        """Called once before the kernel returns."""
        _ = ctx

    def expected(self, ctx: "KernelContext") -> ExpectedFacts:
        """Facts for the audit."""
        _ = ctx
        return ExpectedFacts()

    # --- ids

    @abstractmethod
    def thread_id(self, b: Builder) -> Value:
        """i32, 0 to threads - 1."""

    @abstractmethod
    def warp_id(self, b: Builder, thread: Value) -> Value:
        """i32, known to be equal across the warp where the machine has a way to say so."""

    @abstractmethod
    def program_id(self, b: Builder, axis: int) -> Value:
        """i32, the workgroup's id along an axis."""

    def clock(self, b: Builder) -> Value:
        """i64: the clock of the compute unit that executes this, for stamps."""
        return b.intrinsic("llvm.readcyclecounter", I64)

    def steady_clock(self, b: Builder) -> Value:
        """i64: nanoseconds of a timer that all compute units share."""
        return b.intrinsic("llvm.readsteadycounter", I64)

    def compute_unit(self, b: Builder) -> Value:
        """i32: which compute unit executes this; 0 where the machine does not say."""
        _ = b
        return i32(0)

    # --- lanes

    @abstractmethod
    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        """The i32 that lane `lane ^ mask` gives; all lanes take part."""

    @abstractmethod
    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        """The i32 that lane `lane` (i32) gives; all lanes take part."""

    # --- order

    @abstractmethod
    def barrier(self, b: Builder, threads: int = 0) -> None:
        """All threads of the workgroup meet; shared memory is visible. `threads`: how many, where they may meet at different places."""

    def bare_barrier(self, b: Builder, threads: int = 0) -> None:
        """All threads of the workgroup meet; nothing is said about memory."""
        self.barrier(b, threads)

    def cluster_rank(self, b: Builder) -> Value:
        """i32: the workgroup's number in its cluster."""
        raise InternalError("this machine has no clusters")

    def cluster_barrier(self, b: Builder, *, is_first: bool) -> None:
        """All warps of all workgroups of the cluster meet. `is_first`: nothing but the start of barriers was done before."""
        raise InternalError("this machine has no clusters")

    def named_barrier(self, ctx: "KernelContext", op: NamedBarrierOp) -> None:
        """`sync.named_barrier`."""
        raise InternalError(f"{self.spec.name} has no named barriers")

    def hold_reads(self, ctx: "KernelContext", op: BarrierOp | NamedBarrierOp) -> None:
        """What comes ahead of a barrier for its threads' reads of shared memory to be over for copies that begin behind it."""
        _ = ctx, op

    def check_roles(self, ctx: "KernelContext", roles: "Sequence[Role]") -> None:
        """Raise InternalError where the machine cannot run these roles side by side."""
        _ = ctx, roles

    def begin_role(self, ctx: "KernelContext", role: "Role") -> None:
        """First thing of a role: its registers."""
        if role.registers:
            raise InternalError(f"{self.spec.name} cannot give role '{role.name}' {role.registers} registers a thread")

    def fence(self, b: Builder, proxy: str) -> None:
        """`sync.fence`."""
        raise InternalError(f"{self.spec.name} has no fence for the proxy '{proxy}'")

    def commit(self, b: Builder, queue: str) -> None:
        """`sync.commit`."""
        raise InternalError(f"{self.spec.name} has no queue '{queue}'")

    def wait(self, ctx: "KernelContext", queue: str, pending: int) -> None:
        """`sync.wait`. Values that the wait makes ready (`ctx.retired`) must pass through it: replace their registers in `ctx`."""
        raise InternalError(f"{self.spec.name} has no queue '{queue}'")

    def wait_read(self, ctx: "KernelContext", queue: str, pending: int) -> None:
        """`sync.wait .. read`: the sources of the groups have been read. A full wait does for that."""
        self.wait(ctx, queue, pending)

    def arrived(self, b: Builder, value: Value) -> Value:
        """A loaded value, of which nothing is computed ahead of this place."""
        _ = b
        return value

    def sched_fence(self, b: Builder, classes: Sequence[str]) -> None:
        """`sync.sched_fence`; nothing where the machine's assembler schedules by itself."""
        _ = b, classes

    def set_priority(self, b: Builder, priority: int) -> None:
        """`sync.set_priority`; nothing where warps have no priorities."""
        _ = b, priority

    def mbarriers_init(self, ctx: "KernelContext", barriers: Sequence[tuple[MbarrierAllocOp, Value]]) -> None:
        """Initialise all transaction barriers (op, address of the first slot) and make them ready for all threads.

        Each arrival of the model is `arrival_unit(op)` arrivals of the hardware.
        """
        if barriers:
            raise InternalError(f"{self.spec.name} has no transaction barriers")

    def mbarrier_expect(self, ctx: "KernelContext", address: Value, byte_count: int, unit: int) -> None:
        """`sync.mbarrier_expect`: one thread announces bytes and arrives, `unit` hardware arrivals."""
        raise InternalError(f"{self.spec.name} has no transaction barriers")

    def arrive(self, ctx: "KernelContext", op: ArriveOp, address: Value, count: int) -> None:
        """`sync.arrive`: a thread of each executing warp arrives, with `count` hardware arrivals."""
        raise InternalError(f"{self.spec.name} has no transaction barriers")

    def wait_phase(self, ctx: "KernelContext", address: Value, parity: Value, *, of_cluster: bool) -> None:
        """`sync.wait_phase`: all threads wait. `of_cluster`: for what other workgroups of the cluster did to their own memory, too."""
        raise InternalError(f"{self.spec.name} has no transaction barriers")

    @property
    def counters(self) -> Counters:
        """What is done at counters of workgroups."""
        raise InternalError(f"{self.spec.name} has no counters of workgroups")

    def uniform(self, b: Builder, value: Value) -> Value:
        """An i32 that is the same in all threads, known to be so where the machine has a way to say it."""
        _ = b
        return value

    # --- memory

    def load_global(
        self, b: Builder, address: Value, type: str, align: int, predicate: Value | None, other: Value, reading: Reading
    ) -> Value:
        """Load a value of `type` (scalar or vector, at most 16 bytes); `other` (a value of `type`) where `predicate` (i1) is false."""
        _ = reading
        if predicate is None:
            return b.load(type, address, align=align)
        with b.conditional(predicate) as branch:
            with branch.then():
                branch.give([b.load(type, address, align=align)])
            with branch.otherwise():
                branch.give([other])
        return branch.results[0]

    def bounded_load(self, b: Builder, place: Place, type: str, predicate: Value) -> Value | None:
        """`load_global` without a branch: zero where `predicate` is false. None where the machine has no such loads of this type."""
        _ = b, place, type, predicate

    def store_global(self, b: Builder, address: Value, value: Value, align: int, predicate: Value | None) -> None:
        """Store a value (scalar or vector, at most 16 bytes) where `predicate` is true."""
        with b.when(predicate or TRUE):
            b.store(value, address, align=align)

    def update_global(self, b: Builder, op: str, address: Value, value: Value, align: int, predicate: Value) -> None:
        """Combine an element of memory with a value where `predicate` is true, in one step for all workgroups of the device. `op`: as
        LLVM's atomicrmw names it.
        """
        with b.when(predicate):
            b.atomic(op, address, value, "monotonic", align, scope="device")

    def copy(self, ctx: "KernelContext", op: CopyOp) -> None:
        """`tile.copy`."""
        raise InternalError(f"{self.spec.name} has no hardware copies ('{op.path.data}')")

    def copy_out(self, ctx: "KernelContext", op: CopyOutOp) -> None:
        """`tile.copy_out`."""
        raise InternalError(f"{self.spec.name} has no hardware copies out of shared memory ('{op.path.data}')")

    def shared_read(self, b: Builder) -> str:
        """Metadata of plain loads from shared memory."""
        _ = b
        return ""

    def local_load(self, ctx: "KernelContext", op: LocalLoadOp) -> bool:
        """`tile.local_load` by an instruction of the machine's own; False where plain loads do."""
        _ = ctx, op
        return False

    def load_from_peer(self, b: Builder, type: str, address: Value, peer: int) -> Value:
        """What lies at an address of shared memory in another workgroup of the cluster, by rank."""
        raise InternalError(f"{self.spec.name} has no clusters")

    def local_store(self, ctx: "KernelContext", op: LocalStoreOp) -> bool:
        """`tile.local_store` by an instruction of the machine's own; False where plain stores do."""
        _ = ctx, op
        return False

    def stored_values(self, ctx: "KernelContext", op: LocalStoreOp, values: Sequence[Value]) -> Sequence[Value]:
        """What `tile.local_store` writes for the registers `values`: rounded where the buffer's readers would cut it."""
        _ = ctx, op
        return values

    # --- arithmetic

    def can_start_sums(self, op: ContractOp) -> bool:
        """Whether the instruction can take its accumulator as zero by an operand, known at run time, instead of reading it."""
        _ = op
        return False

    def contract(self, ctx: "KernelContext", op: ContractOp) -> None:
        """`tile.contract` by a matrix instruction of the target's rows ("fma" never gets here): set the result's registers in `ctx`."""
        raise InternalError(f"{self.spec.name} has no matrix instruction '{op.instruction.data}'")

    def carried_group(self, value: SSAValue) -> int:
        """Consecutive registers of a tile that loops carry as one vector (a divisor of their number); 1 for single ones.

        Narrow elements stay together as they were loaded: taken apart at the end of an iteration, a load would be waited for there.
        """
        layout = layout_of(value) if isinstance(value.type, builtin.TensorType) else None
        bits = 8 * element_bytes(tile_type(value).element_type) if layout is not None else 32
        if layout is None or bits >= 32 or tile_type(value).element_type == builtin.i1:
            return 1
        return gcd(layout.num_registers, 8 * self.spec.max_vector_bytes // bits)

    def settled(self, ctx: "KernelContext", registers: Sequence[Value]) -> Sequence[Value]:
        """Registers of a tile that a loop carries past waits: computed where they stand, not where the next iteration begins."""
        _ = ctx
        return registers

    def carried_start(self, ctx: "KernelContext", value: SSAValue, registers: Sequence[Value]) -> Value:
        """What a loop starts from for one group of a carried tile; here constants may be replaced by a value of the group's own."""
        _ = value
        return ctx.pack(registers)

    def math(self, b: Builder, name: str, args: Sequence[Value]) -> Value | None:
        """A native form of one scalar function, or None for the common expansion.

        Names: "exp2" and "rsqrt" (f32, error of a few units in the last place); "divide.approximate", "sqrt.approximate",
        "rsqrt.approximate" (f32, relative error up to 2^-22, all of f32's range); "log2.approximate" (the same error, near 1 relative
        to 1); "tanh.approximate" (2^-11); "exp2.flush" and "reciprocal.flush" (2^-22, results below the normal range may be zero); and
        the names of operations that are one instruction in LLVM, with their dialect ("arith.maximumf", "math.sqrt"; any native float
        type).
        """
        _ = b, name, args
        return None

    def cast_float(self, b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
        """Native conversion of many scalars between MLIR float types (fp8 values are i8), or None for the common one."""
        _ = b, values, source, result
        return None

    def cast_pairs(self, ctx: "KernelContext", values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
        """Elements of a tile that are rounded to a float type, or were and are widened again, two at a time; None for the common way."""
        _ = ctx, values, source, result
        return None
