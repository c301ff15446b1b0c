"""The backend of AMD architectures: hooks over simt, LLVM to assembly and object, the linker to a code object, audit."""

from collections.abc import Sequence

from treadle.codegen.worker import LlvmJob, compile_many
from treadle.dialects.tile import KernelOp
from treadle.errors import InternalError
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.targets.amd import LLVM_OPTIONS
from treadle.targets.amd.assembly import kernel_names, parse
from treadle.targets.amd.audit import audit, violations
from treadle.targets.amd.hooks import AmdHooks
from treadle.targets.amd.metadata import foreign_metadata, read_metadata
from treadle.targets.amd.register_use import BUSY, GAIN, held_otherwise, in_more_waves
from treadle.targets.amd.steady_loop import loop_report
from treadle.targets.amd.toolchain import link_amdgpu
from treadle.targets.interface import CompiledKernel, EmittedKernel, KernelFacts
from treadle.targets.loop_report import LoopReport
from treadle.targets.simt.kernel import emit_kernel

# IR passes would fold the accumulators' starting instructions together and infer attributes against the plan.
OPT_LEVEL = 3

_REGISTER_BYTES = 4
OTHER_SECONDS = 5.0
"""How long code generation may take that is only tried for better code: usually less than a second."""


def _jobs(emitted: EmittedKernel) -> tuple[LlvmJob, LlvmJob]:
    """Assembly, for the audit, and the object file: the same code generation twice, since LLVM here cannot assemble AMDGPU text."""
    machine = (emitted.llvm_text, emitted.triple, emitted.cpu, emitted.features, OPT_LEVEL)
    return LlvmJob(*machine, "asm", llvm_options=LLVM_OPTIONS), LlvmJob(*machine, "object", llvm_options=LLVM_OPTIONS)


@dataclass(frozen=True, slots=True)
class AmdBackend:
    """Code generation for one AMD architecture."""

    spec: TargetSpec

    def emit(self, kernel: KernelOp) -> EmittedKernel:
        """LLVM text of a kernel after insert-sync."""
        return emit_kernel(kernel, AmdHooks(self.spec, kernel))

    def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
        """LLVM text to an audited code object. Raises KernelRejected when the audit fails, TreadleError from the tools."""
        return self.assemble_many([emitted])[0]

    def assemble_many(self, emitted: Sequence[EmittedKernel]) -> list[CompiledKernel]:
        """`assemble` of each; code generation runs in parallel over the worker processes."""
        results = compile_many([job for one in emitted for job in _jobs(one)])
        return [self._finish_or_again(one, results[2 * i], results[2 * i + 1]) for i, one in enumerate(emitted)]

    def _finish_or_again(self, emitted: EmittedKernel, assembly: str | bytes, object_file: str | bytes) -> CompiledKernel:
        """A finished kernel; where its registers are held better in another way, that one."""
        if not isinstance(assembly, str) or (found := self._other(emitted, assembly)) is None:
            return self._finish(emitted, assembly, object_file)
        other, before = found
        try:
            again, object_again = compile_many(_jobs(other), OTHER_SECONDS)
        except InternalError:  # LLVM's unusual ways may fail, or take minutes, where its usual one does not
            return self._finish(emitted, assembly, object_file)
        if not isinstance(again, str) or not self._is_better(before, other, again):
            return self._finish(emitted, assembly, object_file)
        return self._finish(other, again, object_again)

    def _other(self, emitted: EmittedKernel, assembly: str) -> tuple[EmittedKernel, LoopReport | None] | None:
        """A kernel whose registers are held in another way, where that is worth a try; and what the loop costs now (None: it spills)."""
        if self._spills(emitted, assembly):
            other = held_otherwise(emitted, self.spec)
            return None if other is None else (other, None)
        other = in_more_waves(emitted, self.spec, read_metadata(assembly, emitted.symbol))
        report = None if other is None else self._report(emitted, assembly)
        return None if other is None or report is None or report.matrix_share > BUSY else (other, report)

    def _is_better(self, before: LoopReport | None, other: EmittedKernel, again: str) -> bool:
        """Whether the other way of `_other` is to be taken."""
        if before is None or self._spills(other, again):
            return not self._spills(other, again)
        after = self._report(other, again)
        return after is not None and not after.broken and after.matrix_share > GAIN * before.matrix_share

    @staticmethod
    def _spills(emitted: EmittedKernel, assembly: str) -> bool:
        metadata = read_metadata(assembly, emitted.symbol)
        return bool(metadata.private_bytes or metadata.vector_spills)

    def report(self, kernel: KernelOp) -> LoopReport | None:
        """What the loop of a kernel costs; see `ReportsLoops`."""
        emitted = self.emit(kernel)
        assembly = self._assembly(emitted)
        if (found := self._other(emitted, assembly)) is not None:
            other, before = found
            again = self._assembly(other)
            if self._is_better(before, other, again):
                emitted, assembly = other, again
        return self._report(emitted, assembly)

    def _report(self, emitted: EmittedKernel, assembly: str) -> LoopReport | None:
        listing = parse(assembly, emitted.symbol, emitted.expected.sources)
        metadata = read_metadata(assembly, emitted.symbol)
        broken = [v.rule for v in violations(listing, emitted)]
        if metadata.private_bytes or metadata.vector_spills:
            broken.append("A2")
        return loop_report(listing, metadata, self.spec, tuple(sorted(set(broken))))

    @staticmethod
    def _assembly(emitted: EmittedKernel) -> str:
        (assembly,) = compile_many([_jobs(emitted)[0]])
        if not isinstance(assembly, str):
            raise InternalError("code generation gave an object for assembly")
        return assembly

    def read_reports(self, assembly: str) -> list[LoopReport]:
        """The same of every kernel of a text that something else has written."""
        listings = [parse(assembly, name) for name in kernel_names(assembly)]
        found = [loop_report(listing, foreign_metadata(assembly, listing), self.spec) for listing in listings]
        return [report for report in found if report is not None]

    def _finish(self, emitted: EmittedKernel, assembly: str | bytes, object_file: str | bytes) -> CompiledKernel:
        if not isinstance(assembly, str) or not isinstance(object_file, bytes):
            raise InternalError("code generation gave assembly and object in the wrong order")
        metadata = read_metadata(assembly, emitted.symbol)
        if len(metadata.argument_offsets) != len(emitted.params):
            raise InternalError(f"kernel {emitted.symbol} has {len(metadata.argument_offsets)} arguments, {len(emitted.params)} emitted")
        counts = audit(emitted, assembly, metadata)
        facts = KernelFacts(
            registers=metadata.vector_registers,
            spill_bytes=_REGISTER_BYTES * metadata.vector_spills,
            stack_bytes=metadata.private_bytes,
            static_shared_bytes=metadata.shared_bytes,
            instructions=counts,
            param_offsets=metadata.argument_offsets,
            param_bytes=metadata.argument_bytes,
        )
        return CompiledKernel(emitted, link_amdgpu(object_file), "hsaco", assembly, facts)
