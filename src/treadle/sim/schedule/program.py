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
from treadle.sim.tile_interpreter import TileKernel


class _Kernel(TileKernel):
    """A kernel whose launches run as agents."""

    def __init__(self, kernel: tile.KernelOp, findings: Findings, mode: Mode, seed: int) -> None:
        super().__init__(kernel)
        self._scheduled = ScheduledKernel(kernel)
        self._findings, self._seed = findings, seed
        self._mode: Mode = mode

    def launch(self, pointers: Sequence[Pointer], symbols: Sequence[int], grid: Sequence[int] | None = None) -> None:
        if self._findings.deadlock is None:
            self._scheduled.launch(pointers, symbols, self._findings, grid=grid, mode=self._mode, seed=self._seed)


class ScheduledProgram(SimProgram):
    """A lowered module, ready to run; findings of all calls add up."""

    def __init__(self, module: builtin.ModuleOp, mode: Mode = "late", seed: int = 0) -> None:
        super().__init__(module)
        self.findings = Findings()
        kernels = [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]
        self._kernels = {op.sym_name.data: _Kernel(op, self.findings, mode, seed) for op in kernels}


def run_program_scheduled(module: builtin.ModuleOp, arrays: Sequence[Array], mode: Mode = "late", seed: int = 0) -> Report:
    """Run a module whose kernels are at schedule level on `arrays`; the report's outputs are the program's.

    After a deadlock the remaining launches are skipped. Raises SimulationFault, and TreadleError TR721, TR723, TR724.
    """
    program = ScheduledProgram(module, mode, seed)
    outputs = program(*arrays)
    return program.findings.report(tuple(outputs))
