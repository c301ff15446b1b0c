"""Which candidate each kernel of a program is compiled with: the best, and behind it the next where the machine's tools reject its code.

Models estimate what registers hold; only the tools know. A rejected kernel's program is lowered again with the kernel's next candidate, a
remark says so. Where none is left and a reduction was split by choice, the program is lowered once more with none split, which makes other
kernels; only behind that is it an error. A program that was written at tile level has no candidates: it is lowered once more with no loop
pipelined.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from treadle.dialects.tile import KernelOp
from treadle.errors import CODE_REJECTED, OPTION_REJECTED, KernelRejected, SourceLocation, TreadleError
from treadle.machine import TargetSpec
from treadle.options import CompileOptions
from treadle.records import dataclass
from treadle.remarks import Remark
from treadle.targets.interface import CompiledKernel, EmittedKernel, TargetBackend

NAME = "candidates"
MOST_ATTEMPTS = 16
"""Of one program: bounds the time of a compilation whatever is rejected."""
_NO_CHOICES = ("f32_precision", "fp8_accumulation", "verify", "allow_unproven", "overlap_launches", "tuned")
Place = Callable[[str], SourceLocation | None]
"""Where in the user's text a kernel is from."""
_DECIDER = "set-kernel-form"
_SPLITTER = "set-split-reduction"


def chosen_options(options: CompileOptions) -> tuple[str, ...]:
    """The options that take a choice from the compiler, as `name=value`."""
    usual = CompileOptions()
    names = [name for name in CompileOptions.record_names if name not in _NO_CHOICES]
    texts = {
        name: str(getattr(options, name)).strip("()").replace(" ", "") for name in names if getattr(options, name) != getattr(usual, name)
    }
    return tuple(f"{name}={text}" for name, text in texts.items())


@dataclass(slots=True)
class Candidates:
    """`options`: what the next attempt is lowered with. `numbers`: the candidate of each kernel that is not compiled with its best.
    `refusals`: remarks about the rejected ones.

    A candidate is told by its `config`: the deciders give the last again where none is left.
    """

    options: CompileOptions
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    refusals: list[Remark] = field(default_factory=list[Remark])
    _tried: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _first: dict[str, KernelRejected] = field(default_factory=dict[str, KernelRejected])
    _attempts: int = 1
    _unsplit: bool = False

    def reject(self, found: Sequence[KernelRejected], configs: Mapping[str, str], remarks: Sequence[Remark], place: Place) -> None:
        """Go on to the next candidate of each rejected kernel. `configs`: of all kernels; `remarks`: of the attempt that has failed.

        Raises TreadleError TR561, or TR562 where options have chosen, for a kernel that has no candidate left.
        """
        self._attempts += 1
        for rejected in found:
            kernel = rejected.kernel
            self._first.setdefault(kernel, rejected)
            tried, config = self._tried.setdefault(kernel, []), configs.get(kernel, "")
            if config in tried or self._attempts > MOST_ATTEMPTS:
                if self._gives_up_splits(kernel, remarks, place):
                    return
                raise self._exhausted(kernel, place(kernel)) from rejected
            tried.append(config)
            number = self.numbers.get(kernel, 0)
            self.numbers[kernel] = number + 1
            decided = next((r.text for r in reversed(remarks) if (r.subject, r.pass_name, r.kind) == (kernel, _DECIDER, "decision")), "")
            what = f"candidate {number}{f' ({decided})' if decided else ''} is rejected: {rejected.reason}; candidate {number + 1} is next"
            self.refusals.append(Remark("refusal", NAME, kernel, what, place(kernel)))

    def gives_up_pipelines(self, rejected: KernelRejected) -> bool:
        """Whether a program that is written at tile level, which has no candidates, is lowered with no loop pipelined from now on: once,
        where nobody asked for it.
        """
        if self.options.pipeline_stages >= 0:
            return False
        self.options = replace(self.options, pipeline_stages=1)
        what = f"pipelined it is rejected: {rejected.reason}; no loop is pipelined"
        self.refusals.append(Remark("refusal", NAME, rejected.kernel, what, rejected.location))
        return True

    def _gives_up_splits(self, kernel: str, remarks: Sequence[Remark], place: Place) -> bool:
        """Whether the program is lowered with no reduction split from now on: once, where one was split by choice."""
        split = any((remark.pass_name, remark.kind) == (_SPLITTER, "decision") for remark in remarks)
        if not split or self._unsplit or self.options.split_reduction != "auto":
            return False
        self._unsplit, self._attempts = True, 1
        self.options = replace(self.options, split_reduction="off")
        self.refusals.append(Remark("refusal", NAME, kernel, "no candidate is left; no reduction is split", place(kernel)))
        self.numbers.clear()
        self._tried.clear()
        return True

    def _exhausted(self, kernel: str, location: SourceLocation | None) -> TreadleError:
        first, count = self._first[kernel], len(self._tried[kernel])
        given = chosen_options(replace(self.options, split_reduction="auto") if self._unsplit else self.options)
        if first.entry is not CODE_REJECTED and count == 1 and not given:
            return first
        behind = f" ({count} candidates were tried, this is about the first)" if count > 1 else ""
        reason = first.reason + behind
        if given:
            return TreadleError(OPTION_REJECTED, location, kernel=kernel, options=", ".join(given), reason=reason)
        hint = "try a small tile and no pipeline (`--option tile=32,32,32 --option roles=false`), and report it with the input"
        return KernelRejected(kernel, reason, location, hint=hint)


@dataclass(frozen=True, slots=True)
class RememberedCode:
    """A backend that makes the machine code of a kernel, or rejects it, once, however often its program is lowered."""

    backend: TargetBackend
    done: dict[EmittedKernel, CompiledKernel | KernelRejected] = field(default_factory=dict[EmittedKernel, CompiledKernel | KernelRejected])

    @property
    def spec(self) -> TargetSpec:
        """The machine's facts."""
        return self.backend.spec

    def emit(self, kernel: KernelOp) -> EmittedKernel:
        """LLVM text of a kernel."""
        return self.backend.emit(kernel)

    def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
        """Machine code of a kernel, audited. Raises KernelRejected."""
        if emitted not in self.done:
            try:
                self.done[emitted] = self.backend.assemble(emitted)
            except KernelRejected as rejected:
                self.done[emitted] = rejected
        found = self.done[emitted]
        if isinstance(found, KernelRejected):
            raise found
        return found
