"""Copies of rows that begin anywhere: the arithmetic on the host, and what is emitted for kernels."""

import ctypes

import numpy as np
import pytest
from targets.host import TRIPLE, jit

from treadle.codegen.llvm_text import I32, PTR, Builder, Module, Parameter, i32
from treadle.layout.shared_layout import swizzled
from treadle.targets.nvidia.cp_async import distribution
from treadle.targets.nvidia.shifted_copies import cut
from treadle.targets.simt.shifted_loads import shifted


def moved(source: np.ndarray, first: int, taken: int) -> np.ndarray:
    """16 of 32 bytes from byte `first` on, those from number `taken` on zero."""
    module = Module(TRIPLE)
    function = module.function("f", [Parameter(PTR, "source"), Parameter(PTR, "target"), Parameter(I32, "first"), Parameter(I32, "taken")])
    b = Builder(function, "contract")
    pointer, target, begin, count = function.parameters
    words = [b.load(I32, b.gep(pointer, i32(at), I32), 4) for at in range(8)]
    for at, word in enumerate(cut(b, shifted(b, words, begin), count)):
        b.store(word, b.gep(target, i32(at), I32), 4)
    b.ret()
    call, engine = jit(str(module), "f", [ctypes.c_void_p] * 2 + [ctypes.c_int32] * 2)
    found = np.zeros(16, np.uint8)
    call(source.ctypes.data, found.ctypes.data, first, taken)
    del engine
    return found


@pytest.mark.parametrize(("k", "n", "warps"), [(32, 64, 4), (32, 96, 4), (32, 256, 4), (32, 8, 4), (64, 32, 8)])
def test_elements_that_are_turned_keep_to_few_sectors_and_all_banks(k: int, n: int, warps: int) -> None:
    """Every element has a thread; a warp's copy of one register touches four sectors, and each bank of the swizzled buffer once."""
    buffer = swizzled((k, n), (0, 1), 4, 128)
    layout = distribution(buffer, 1, 4, 4, warps)
    assert layout is not None
    assert all(distribution(buffer, 1, 4, width, warps) is None for width in (8, 16)), "its elements do not lie together"
    registers = range(layout.num_registers)
    seen = {layout.coordinates(register, lane, warp) for register in registers for lane in range(32) for warp in range(warps)}
    assert seen == {(row, column) for row in range(k) for column in range(n)}
    for register in registers:
        lanes = [layout.coordinates(register, lane, 0) for lane in range(32)]
        assert len({(row, column // 8) for row, column in lanes}) == 4
        assert len({buffer.offset_of(at) % 32 for at in lanes}) == 32


@pytest.mark.parametrize("first", range(16))
def test_bytes_are_shifted_into_place_and_cut(first: int) -> None:
    source = np.arange(1, 33, dtype=np.uint8)
    for taken in (0, 1, 2, 3, 4, 7, 8, 13, 15, 16):
        expected = source[first : first + 16].copy()
        expected[taken:] = 0
        assert np.array_equal(moved(source, first, taken), expected)
