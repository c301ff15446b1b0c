"""What has been made of a kernel for one class of arguments: decisions, the text of each level, assembly, and the modelled timeline."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.errors import KERNEL_CALL, TreadleError

if TYPE_CHECKING:
    from treadle.dialects.tile import AllocOp
    from treadle.driver import Trace
    from treadle.driver.lowering import Stage
    from treadle.ir.dialects import builtin
    from treadle.language.build import Form
    from treadle.language.kernel import Kernel
    from treadle.timeline.kernels import Timeline

_LEVELS = ("tile", "schedule", "llvm", "asm")
_DRAWN_CLOCKS = 15_000.0


class Inspection:
    """A kernel for one class of arguments. `sizes`: what its symbols were in the call. No method needs a GPU; where the call ran on the
    simulator, name the GPU that is meant: `target="sm_90a"`.
    """

    def __init__(self, kernel: "Kernel", form: "Form", sizes: Mapping[str, int], target: str) -> None:
        self._kernel, self._form, self._sizes, self._target = kernel, form, sizes, target
        self._traces: dict[tuple[str, str], Trace] = {}

    @cached_property
    def module(self) -> "builtin.ModuleOp":
        """The kernel at tile level, as the language builds it."""
        from treadle.language.build import build

        return build(self._kernel.function, self._form).module

    def explain(self, target: str | None = None) -> str:
        """Every decision and refusal of the compiler with its reason, a line each; the proof's verdict is among them."""
        machine = self._machine(target, "decisions")
        lines = [f"{remark.kind} of {remark.pass_name}: {remark.text}" for remark in self._trace(machine, "schedule").remarks]
        return "\n".join(lines) or "nothing was decided or refused"

    def ir(self, level: str = "tile", target: str | None = None) -> str:
        """The text of a level: "tile" (as built, before anything is chosen for a machine), "schedule", "llvm" or "asm"."""
        if level not in _LEVELS:
            raise self._problem(f"there is no level {level!r}: there are {', '.join(_LEVELS)}")
        if level == "tile":
            from treadle.ir.text import print_module

            return print_module(self.module)
        stages = self._trace(self._machine(target, f"the level '{level}'"), "asm" if level == "asm" else level).stages
        return stages[level]

    def asm(self, target: str | None = None) -> str:
        """The assembly."""
        return self.ir("asm", target)

    def timeline(self, target: str | None = None, output: "str | Path | None" = None) -> "Timeline":
        """What each group of warps does when in one workgroup of the call, by the model. `output`: a picture (.svg, .png, .pdf) of it."""
        from treadle.timeline.kernels import timelines

        machine = self._machine(target, "a timeline")
        (found,) = timelines(self.module, machine, self._kernel.options, sizes=self._sizes, level="tile")
        if output is not None:
            from treadle.timeline.draw import draw

            draw([found], Path(output), 0.0, _DRAWN_CLOCKS)
        return found

    def modelled_ms(self, target: str, until: float) -> float:
        """How long the call takes on a machine by the model, in ms: workgroups in turns of as many as the machine holds, each like the
        first. Raises TR824 where the model does not know it, and TR738 where a workgroup takes more than `until` clocks.
        """
        from treadle.dialects import tile
        from treadle.driver.lowering import scheduled, tile_kernels
        from treadle.driver.sources import read_source
        from treadle.machine import target_spec
        from treadle.options import CompileOptions
        from treadle.timeline.kernels import timeline_of

        spec = target_spec(target)
        (kernel,) = tile_kernels(scheduled(read_source(self.module, "tile"), target, self._kernel.options or CompileOptions(), None))
        found = timeline_of(kernel, spec, self._sizes, until)
        if found.outcome.is_cut:
            raise self._problem(f"a workgroup takes more than {until:.0f} clocks by the model")
        buffers = [op for op in kernel.body.walk() if isinstance(op, tile.AllocOp)]
        ends = [(op.byte_offset.value.data if op.byte_offset is not None else 0) + _bytes(op) for op in buffers]
        threads = kernel.num_warps.value.data * kernel.group_count() * spec.subgroup_size
        held = min(spec.max_threads_per_unit // threads, spec.shared_bytes_per_unit // max(ends, default=1))
        rounds = -(-found.workgroups // (spec.compute_units * max(held, 1)))
        return rounds * found.outcome.clocks / spec.clock_mhz / 1e3

    def _trace(self, target: str, until: "Stage") -> "Trace":
        from treadle.driver import trace

        key = (target, until)
        if key not in self._traces:
            self._traces[key] = trace(self.module, target, self._kernel.options, until=until, level="tile")
        return self._traces[key]

    def _machine(self, target: str | None, what: str) -> str:
        chosen = target or self._target
        if chosen == "auto":
            from treadle.driver import target_of_device

            chosen = target_of_device("auto")
        if chosen == "sim":
            raise self._problem(f'{what} are for a GPU, and the call ran on the simulator: name one, as in target="sm_90a"')
        return chosen

    def _problem(self, text: str) -> TreadleError:
        return TreadleError(KERNEL_CALL, name=self._kernel.function.__name__, problem=text)


def _bytes(op: "AllocOp") -> int:
    """Bytes of a shared buffer."""
    from treadle.analysis.element_bytes import element_bytes
    from treadle.dialects import tile

    return tile.shared_layout_of(op.result).size * element_bytes(tile.memref_type(op.result).element_type)
