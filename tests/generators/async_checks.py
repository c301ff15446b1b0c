"""What a synchronised kernel must pass: the prover, the simulator of schedules, and the values of the sequential program."""

import numpy as np
from generators.async_kernels import Kernel, outline

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.text import parse_module
from treadle.sim.memory import Pointer
from treadle.sim.schedule.kernel import simulate
from treadle.sim.tile_interpreter import TileKernel
from treadle.verify.check import prove


def kernel_of(module: Operation) -> tile.KernelOp:
    (found,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    return found


def checked(source: Kernel, *, simulated: bool = True) -> list[str]:
    """The outline of a kernel after insert-sync, once prover and simulator have nothing to say and the values are right."""
    kernel = kernel_of(source.synchronised())
    verdict = prove(kernel)
    assert verdict.is_proven, verdict.first_error("k")
    if simulated:
        rng = np.random.default_rng(7)
        a, b = (rng.integers(-2, 3, source.rows * 64).astype(np.float16) for _ in range(2))
        c = rng.integers(-2, 3, source.rows * 64).astype(np.float32)
        expected = c.copy()
        TileKernel(kernel_of(parse_module(source.text(), "sequential"))).launch([Pointer(a), Pointer(b), Pointer(expected)], [])
        for report in (simulate(kernel, [a, b, c]), simulate(kernel, [a, b, c], mode="random", seed=1)):
            assert report.ok, str(report)
            assert np.array_equal(report.outputs[0].reshape(-1), expected)
    return outline(kernel)
