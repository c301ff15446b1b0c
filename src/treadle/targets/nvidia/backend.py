"""The backend of sm_90a: hooks over simt, LLVM to PTX, ptxas to cubin, audit."""

from collections.abc import Sequence

from treadle.codegen.worker import emit_assembly
from treadle.dialects.tile import KernelOp
from treadle.errors import InternalError
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.targets.interface import CompiledKernel, EmittedKernel, IndexParam, KernelFacts, Param, TensorMapParam
from treadle.targets.nvidia.audit import audited_counts
from treadle.targets.nvidia.hooks import NvidiaHooks
from treadle.targets.nvidia.toolchain import assemble_ptx
from treadle.targets.simt.kernel import emit_kernel

# Level 0 of instruction selection serialises matrix instructions (C7511); IR passes change nothing that ptxas does not do.
OPT_LEVEL = 3


def param_offsets(params: Sequence[Param]) -> tuple[tuple[int, ...], int]:
    """Byte offset of each parameter in the argument block, and its size: natural alignment, tensor maps 128 bytes on 64."""
    at, offsets = 0, list[int]()
    for param in params:
        size, align = (
            (128, 64) if isinstance(param, TensorMapParam) else (4, 4) if isinstance(param, IndexParam) and param.bits == 32 else (8, 8)
        )
        at = -(-at // align) * align
        offsets.append(at)
        at += size
    return tuple(offsets), at


@dataclass(frozen=True, slots=True)
class NvidiaBackend:
    """Code generation for one NVIDIA architecture."""

    spec: TargetSpec

    def emit(self, kernel: KernelOp) -> EmittedKernel:
        """LLVM text of a kernel after insert-sync."""
        return emit_kernel(kernel, NvidiaHooks(self.spec))

    def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
        """LLVM text to an audited cubin; `assembly` is PTX. Raises KernelRejected when the audit fails, TreadleError from the tools."""
        ptx = emit_assembly(emitted.llvm_text, triple=emitted.triple, cpu=emitted.cpu, features=emitted.features, opt_level=OPT_LEVEL)
        done = assemble_ptx(ptx, self.spec.name)
        resources = next((k for k in done.kernels if k.name == emitted.symbol), None)
        if resources is None:
            raise InternalError(f"ptxas reports nothing about kernel {emitted.symbol}:\n{done.log}")
        counts = audited_counts(emitted, resources, done.warnings, done.cubin, ptx)
        offsets, size = param_offsets(emitted.params)
        facts = KernelFacts(
            registers=resources.registers,
            spill_bytes=resources.spill_store_bytes + resources.spill_load_bytes,
            stack_bytes=resources.stack_bytes,
            static_shared_bytes=resources.static_shared_bytes,
            instructions=counts,
            param_offsets=offsets,
            param_bytes=size,
        )
        return CompiledKernel(emitted, done.cubin, "cubin", ptx, facts)
