"""What a target backend takes and gives: `EmittedKernel` (LLVM text), `CompiledKernel` (binary) and the protocol between them."""

from dataclasses import field
from typing import Protocol

from treadle.artifact import TensorMap
from treadle.dialects.tile import KernelOp
from treadle.machine import TargetSpec
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class PointerParam:
    """A device address: block argument `arg` of the kernel."""

    arg: int


@dataclass(frozen=True, slots=True)
class IndexParam:
    """A size or stride of `bits` bits: block argument `arg` of the kernel (an index argument)."""

    arg: int
    bits: int = 32


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """A tensor map (128 bytes, by value) over the array that block argument `arg` points to, sizes over the kernel's symbols.

    `byte_offset`: a static distance from the pointer.
    """

    arg: int
    map: TensorMap
    byte_offset: int = 0


Param = PointerParam | IndexParam | TensorMapParam


@dataclass(frozen=True, slots=True)
class StagePoint:
    """A stage of a warp pipeline: the lines of the barriers one of which was met last, and the priority of its warps."""

    behind: tuple[int, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class SchedulePoint:
    """An operation of the final schedule that machine code can be held against.

    `line`: of the code's line table. `kind`: "matrix", "barrier", "load", "store", "copy", "local_load" or "local_store". `loops`: the
    lines of the loops around it, the innermost last. `loads`, `copies`: the lines of the loads from global memory, and of the direct
    copies to shared memory, that the schedule has in flight behind it; at barriers, accesses to shared memory count among the copies.
    `used`: the lines of the loads that the schedule has used there, or since the operation before it in the line table.
    `stage`: that of a warp pipeline that it is in.
    """

    line: int
    kind: str
    loops: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    stage: StagePoint | None = None
    used: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedFacts:
    """What the emitter knows its kernel must look like as machine code, for the audit.

    `matrix_instructions`, `bulk_copies` (in), `bulk_stores` (out), `matrix_waits`: static counts in the text. `contraction`: the kernel has
    a matrix or fma contraction, so that spills are an error. `sources`: what each line that the code's line table names comes from.
    `points`: the operations that memory and order are judged by, where the target's audit wants them.
    """

    matrix_instructions: int = 0
    bulk_copies: int = 0
    contraction: bool = False
    bulk_stores: int = 0
    matrix_waits: int = 0
    sources: tuple[str, ...] = ()
    points: tuple[SchedulePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    """One kernel as LLVM text with its launch facts.

    `params`: in argument order. `block`, `cluster`: threads and workgroups. `shared_bytes`: dynamic shared memory to pass at launch.
    `grid`: expression text over the kernel's symbols. `triple`, `cpu`, `features`: for LLVM. `overlaps`: it waits itself for the launches
    before it.
    """

    symbol: str
    llvm_text: str
    params: tuple[Param, ...]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    grid: tuple[str, str, str]
    triple: str
    cpu: str
    features: str
    expected: ExpectedFacts = ExpectedFacts()
    overlaps: bool = False


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the finished machine code is: `registers` per thread, `spill_bytes` and `stack_bytes`, instruction counts by mnemonic.

    `param_offsets`: byte offset of each parameter in the argument block, in order; `param_bytes`: its size.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared_bytes: int = 0
    instructions: dict[str, int] = field(default_factory=dict[str, int])
    param_offsets: tuple[int, ...] = ()
    param_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel ready to launch: the facts of `EmittedKernel`, the `binary` (file `suffix`, e.g. "cubin"), and its `assembly` as text."""

    emitted: EmittedKernel
    binary: bytes
    suffix: str
    assembly: str
    facts: KernelFacts

    @property
    def symbol(self) -> str:
        """The name of the kernel in the binary."""
        return self.emitted.symbol


class TargetBackend(Protocol):
    """One architecture's code generation."""

    @property
    def spec(self) -> TargetSpec:
        """The machine's facts."""
        ...

    def emit(self, kernel: KernelOp) -> EmittedKernel:
        """LLVM text of a kernel after insert-sync. Raises InternalError for forms the passes must not leave, TreadleError for limits."""
        ...

    def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
        """Machine code, audited. May be called from several threads at once."""
        ...
