"""Attention of tensor text as one kernel: lowered for a machine, executed at schedule level, held against float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from generators.attention_texts import AttentionText

from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.options import CompileOptions
from treadle.sim.memory import Pointer
from treadle.sim.program import SimProgram
from treadle.sim.schedule.kernel import Findings, ScheduledKernel


def lowered(problem: AttentionText, target: str = "sm_90a", **options: Any) -> builtin.ModuleOp:
    """The program at schedule level, proven."""
    asked = CompileOptions(attention="always", **options)
    return scheduled(read_source(problem.text(), "tensor"), target, asked, None)


def kernels(module: builtin.ModuleOp) -> list[tile.KernelOp]:
    """The kernels of a module."""
    return [op for op in module.walk() if isinstance(op, tile.KernelOp)]


class Late(ScheduledKernel):
    """A kernel whose copies and matrix instructions complete late."""

    def launch(self, pointers: Sequence[Pointer], symbols: Sequence[int]) -> None:  # type: ignore[override] # pyright: ignore
        """Run every workgroup; nothing may be found wrong."""
        findings = Findings()
        super().launch(pointers, symbols, findings, mode="random", seed=1)
        report = findings.report(())
        assert report.ok, report


def simulated(module: builtin.ModuleOp, problem: AttentionText, seed: int = 0) -> np.ndarray[Any, Any]:
    """The result of a program on the problem's arrays."""
    return SimProgram(module, Late)(*problem.arrays(seed))[0]


def check(found: np.ndarray[Any, Any], problem: AttentionText, seed: int = 0) -> None:
    """Exponentials are rounded to 16 bits, as the result is: half a unit each, of the largest |v|. Sums are of float32."""
    arrays = problem.arrays(seed)
    unit = 2.0**-11 if problem.element == "f16" else 2.0**-8
    error = np.abs(found.astype(np.float64) - problem.expected(arrays)).max()
    assert error <= 2.1 * unit * np.abs(arrays[2].astype(np.float64)).max()
