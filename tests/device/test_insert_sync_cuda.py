"""What insert-sync makes of sequential programs, on a real GPU: the sequential program's values, bitwise, again and again.

Integers small enough that every sum is exact: any difference is a race. TREADLE_TEST_RUNS sets how often each program runs (default 200).
"""

from collections.abc import Callable

import numpy as np
import pytest
from device.test_schedules_cuda import RUNS, device, manifest_of
from generators.async_checks import kernel_of
from generators.async_kernels import ACCUMULATOR, Kernel
from transforms.kernel.test_insert_sync_async import fused, operands

from treadle.ir.text import parse_module
from treadle.runtime.cuda import CudaDevice
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel
from treadle.targets.registry import backend
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass

__all__ = ["device"]


def independent() -> Kernel:
    """Two products, each with its epilogue."""
    k = operands()
    k.store(k.relu(k.mma("%p", "%q")))
    k.store(k.relu(k.mma("%q", "%p")), "%r1")
    return k


def long_epilogue() -> Kernel:
    k = operands()
    value = k.mma("%p", "%q")
    for _ in range(6):
        k.add(f"%half{k.count} = arith.addf {value}, {value} : {ACCUMULATOR}")
        value = k.relu(f"%half{k.count}")
    k.store(value)
    return k


def stores(slots: int) -> Kernel:
    """Bulk stores out of a ring, one a trip."""
    k = Kernel(rows=64 * 8)
    k.buffers("f32", o=slots)
    k.add(f"%n = arith.constant {slots} : index\nscf.for %i = %c0 to %c8 step %c1 {{")
    k.add("%row = arith.muli %i, %r1 : index\n%is = arith.remui %i, %n : index")
    at = k.slot("%o", "%is")
    k.local_store(at)
    k.copy_out(at, "%row")
    k.add("scf.yield\n}")
    return k


PROGRAMS: dict[str, Callable[[], Kernel]] = {
    "independent": independent,
    "long_epilogue": long_epilogue,
    "stores_one_buffer": lambda: stores(1),
    "stores_three_buffers": lambda: stores(3),
    **{
        f"fused_{slots}_{ahead}_{path}{'_guarded' if guarded else ''}": lambda s=slots, a=ahead, p=path, g=guarded: fused(
            s, a, p, guarded=g
        )
        for slots, ahead in ((2, 1), (3, 1), (5, 4), (5, 3), (9, 4))
        for path in ("bulk_tensor", "cp_async")
        for guarded in (False, True)
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_sequential_program(device: CudaDevice, name: str) -> None:
    source = PROGRAMS[name]()
    target = backend("sm_90a")
    kernel = kernel_of(source.synchronised(AllocateSharedPass()))
    compiled = target.assemble(target.emit(kernel))
    shape = (source.rows, 64)
    program = device.load(manifest_of(compiled, [("f16", shape), ("f16", shape), ("f32", shape)], 1), {"k0": compiled.binary})
    rng = np.random.default_rng(3)
    sets: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(2):
        a, b = (rng.integers(-2, 3, shape).astype(np.float16) for _ in range(2))
        expected = np.full(source.rows * 64, np.nan, np.float32)
        TileKernel(kernel_of(parse_module(source.text(), "sequential"))).launch([Pointer(x.reshape(-1)) for x in (a, b, expected)], [])
        sets.append((a, b, expected.reshape(shape)))
    for turn in range(RUNS):
        a, b, expected = sets[turn % 2]
        (found,) = (result.numpy() for result in program(a, b))
        written = ~np.isnan(expected)
        assert np.array_equal(found[written], expected[written]), f"run {turn}"
