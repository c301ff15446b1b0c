"""Convolutions in AMD machine code: run in the emulator, against NumPy in float64."""

import numpy as np
import pytest
from generators.convolutions import DTYPES, Convolution, random_convolution
from targets.amd import emulator, programs

from treadle import pipelines
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.targets.amd.assembly import parse
from treadle.targets.amd.flow import natural_loops

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
CASES = {
    "pixels of eight channels": Convolution("conv_2d_nhwc_hwcf", 2, (7, 5), 8, 20, (3, 3), low=(1, 1), tail="residual"),
    "every second pixel": Convolution("conv_2d_nhwc_fhwc", 1, (9, 11), 16, 33, (3, 2), (2, 2), (1, 2), (1, 0), (0, 1)),
    "channels first": Convolution("conv_2d_nchw_fchw", 2, (7, 5), 5, 20, (3, 3), low=(1, 1), tail="bias"),
    "an edge where nothing is read": Convolution("conv_2d_nhwc_hwcf", 3, (14, 1), 8, 56, (2, 1), (3, 3), (2, 1), (1, 1), (0, 0)),
    "runs of whole steps": Convolution("conv_2d_nhwc_fhwc", 3, (9, 7), 64, 40, (3, 3), (2, 1), (1, 2), (1, 2), (2, 1)),
    "runs in one direction": Convolution("conv_1d_nwc_wcf", 2, (19,), 128, 33, (5,), low=(3,), tail="residual"),
    "batch at run time": Convolution("conv_1d_nwc_wcf", 3, (17,), 24, 18, (3,), low=(1,), is_dynamic=True),
}

UNJUDGED = ("channels first", "gfx1100")
"""Loads single elements from shared memory into upper halves of registers, which the emulator does otherwise than the machine."""


def check(convolution: Convolution, target: str, orders: list[str]) -> None:
    module = parse_module(convolution.text(), "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions())
    compiled = emulator.compile_kernels(module, target)
    assert all(kernel.facts.spill_bytes == 0 for kernel in compiled.values())
    arrays = convolution.arrays()
    want = convolution.expected(arrays)
    for order in orders:
        (got,) = emulator.EmulatedProgram(module, target, order, compiled)(*arrays)
        if convolution.tail == "silu":
            assert np.allclose(np.asarray(got).astype(np.float64), want, rtol=2e-3, atol=2e-3)
        else:
            assert np.array_equal(np.asarray(got), want.astype(DTYPES[convolution.result])), convolution


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_right_numbers(name: str, target: str) -> None:
    if (name, target) == UNJUDGED:
        with pytest.raises(NotImplementedError, match=r"cannot judge .* into upper halves"):
            check(CASES[name], target, ["forward"])
        return
    check(CASES[name], target, list(emulator.ORDERS))


@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("sides", [(64, 64), (30, 17)])
def test_no_trip_compares_places(target: str, sides: tuple[int, int]) -> None:
    """Which windows' places lie outside is known for each row ahead of the loop, rows that the tile has beyond the last included."""
    convolution = Convolution("conv_2d_nhwc_fhwc", 2, sides, 320, 640, (3, 3), (2, 2), low=(1, 1))
    module = parse_module(convolution.text(), "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions())
    (kernel,) = emulator.compile_kernels(module, target).values()
    listing = parse(kernel.assembly, kernel.symbol)
    names = [[listing.instructions[at].mnemonic for at in sorted(body)] for body in natural_loops(listing)]
    loop = max(names, key=lambda body: sum(name.startswith(("v_mfma", "v_wmma")) for name in body))
    assert any(name.startswith("buffer_load") for name in loop)
    assert not [name for name in loop if name.startswith(("v_cmp", "v_cndmask", "v_max", "s_cbranch_exec"))]


@needs_emulator
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_random_ones(seed: int, target: str) -> None:
    check(random_convolution(seed, most_channels=24, most_side=9), target, ["forward"])
