"""Machine code for arrays of more than 2^31 elements, run by the emulator on memory that is as large but mostly untouched.

Only the workgroups around the edges run: the first, those on either side of element 2^31 and 2^32, and the last.
"""

import mmap
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from targets.addresses import kernels_of, lowered
from targets.amd import emulator
from targets.simt.test_wide_indices_on_host import elementwise

from treadle.dialects import dispatch
from treadle.options import CompileOptions
from treadle.plan import expr
from treadle.targets.registry import backend

pytestmark = [
    pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory without backing is reserved as Linux does it"),
]
NO_RESERVE = 0x4000
POISON = 7


def sparse(count: int) -> NDArray[np.int8]:
    """So many bytes of zeros, of which only what is written takes memory."""
    return np.frombuffer(mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE), np.int8)


CASES = [(2**32 + 3, 0, "gfx942"), (5 * 10**9, 0, "gfx1100"), (3 * 10**9, 64, "gfx942"), (2**31 + 1, 64, "gfx1201")]


@pytest.mark.parametrize(("size", "bits", "target"), CASES)
def test_elements_beyond_32_bits(size: int, bits: int, target: str) -> None:
    """`bits`: 0 for a static size, 64 for one that the launch passes."""
    text = elementwise((size,), "i8", [(0,)], [None], dynamic=bits == 64)
    module = lowered(text, target, CompileOptions(index_bits=bits or 32))
    (kernel,) = kernels_of(module)
    (launch,) = [op for op in module.walk() if isinstance(op, dispatch.LaunchOp)]
    assert kernel.index_width() == 64
    values = [size for _ in launch.symbol_values()]
    chosen = backend(target)
    compiled = chosen.assemble(chosen.emit(kernel))
    ready = emulator.EmulatedKernel(compiled, kernel.symbol_names(), "forward")
    grid = expr.parse(kernel.grid_text()[0]).evaluate(dict(zip(kernel.symbol_names(), values, strict=True)))
    extent = 1 << (-(-size // grid) - 1).bit_length()
    edges = {0, grid - 1, *((1 << b) // extent + d for b in (31, 32) for d in (-1, 0))}
    places = [(n, 0, 0) for n in sorted(edges) if 0 <= n < grid]
    room = 1 << 20
    source, result = sparse(size + 2 * room), sparse(size + 2 * room)
    spots = [n * extent + d for n, _, _ in places for d in (0, 1, extent // 2, extent - 1) if n * extent + d < size]
    for spot in spots:
        source[room + spot] = spot % 101
    result[:room] = result[room + size :] = POISON
    ready.run([source.ctypes.data + room, result.ctypes.data + room], values, places)
    assert [int(result[room + spot]) for spot in spots] == [spot % 101 + 1 for spot in spots]
    for number, _, _ in places:
        first, end = number * extent, min((number + 1) * extent, size)
        np.testing.assert_array_equal(result[room + first : room + end], source[room + first : room + end] + 1)
    assert (result[:room] == POISON).all(), "before the array"
    assert (result[room + size :] == POISON).all(), "behind the array"
