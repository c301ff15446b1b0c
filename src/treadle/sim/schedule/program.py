"""Whole programs whose kernels are at schedule level: the host program as the simulator runs it, its launches as agents."""

from collections.abc import Sequence

from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.sim.element_types import Array
from treadle.sim.memory import Pointer
from treadle.sim.program import SimProgram
from treadle.sim.schedule.kernel import ScheduledKernel
from treadle.sim.schedule.report import Findings, Report
from treadle.sim.schedule.scheduler import Mode


class _Kernel:
    """A kernel whose launches run as agents."""

    def __init__(self, kernel: tile.KernelOp, findings: Findings, mode: Mode, seed: int) -> None:
        self._scheduled = ScheduledKernel(kernel)
        self.symbols = self._scheduled.symbols
        self.grid = self._scheduled.grid
        self._findings, self._seed = findings, seed
        self._mode: Mode = mode

    def launch(self, pointers: Sequence[Pointer], symbols: Sequence[int]) -> None:
        """Run every workgroup, unless a launch before it came to a deadlock."""
        if self._findings.deadlock is None:
            self._scheduled.launch(pointers, symbols, self._findings, mode=self._mode, seed=self._seed)


class ScheduledProgram(SimProgram):
    """A lowered module, ready to run; findings of all calls add up."""

    def __init__(self, module: builtin.ModuleOp, mode: Mode = "late", seed: int = 0) -> None:
        self.findings = findings = Findings()
        super().__init__(module, lambda kernel: _Kernel(kernel, findings, mode, seed))


def run_program_scheduled(module: builtin.ModuleOp, arrays: Sequence[Array], mode: Mode = "late", seed: int = 0) -> Report:
    """Run a module whose kernels are at schedule level on `arrays`; the report's outputs are the program's.

    After a deadlock the remaining launches are skipped. Raises SimulationFault, and TreadleError TR721, TR723, TR724.
    """
    program = ScheduledProgram(module, mode, seed)
    outputs = program(*arrays)
    return program.findings.report(tuple(outputs))
