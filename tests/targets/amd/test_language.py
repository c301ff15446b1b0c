"""Kernels in Python as machine code for every AMD target, in the emulator: atomics, reshapes, random numbers, indices from memory."""

from typing import Any

import numpy as np
import pytest
from language.test_atomics import bits, column_sums, histogram, split_matmul
from language.test_kernels import in_place
from language.test_random_numbers import words
from language.test_shapes import reshaped, segments
from targets.amd import emulator, programs

from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.language.kernel import Kernel
from treadle.options import CompileOptions
from treadle.sim.memory import Pointer

pytestmark = [
    pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-"),
    pytest.mark.parametrize("target", programs.TARGETS),
]


def emulate(
    kernel: Kernel, grid: tuple[int, ...], target: str, *arguments: Any, order: str = "shuffled", pipeline_stages: int = -1, **named: Any
) -> None:
    """Run a launch's machine code on arrays without gaps, which it changes."""
    form, arrays, numbers = kernel[grid]._resolved(arguments, named, 4, 4)
    built = build(kernel.function, form)
    module = scheduled(read_source(built.module, "tile"), target, CompileOptions(pipeline_stages=pipeline_stages), None)
    (compiled,) = emulator.compile_kernels(module, target).values()
    sizes = [(array.shape, [s // array.itemsize for s, c in zip(array.strides, kind.layout.strides, strict=True) if c is None])
             for array, (_, kind) in zip(arrays, form.arrays, strict=True)]  # fmt: skip
    values = [number for shape, strides in sizes for number in (*shape, *strides)]
    pointers = [Pointer(arrays[i].reshape(-1)) for i in built.order]
    names = [str(number) for number in range(len(values) + len(numbers))]
    emulated = emulator.EmulatedKernel(compiled, names, order)
    emulated.grid = lambda values: (*grid, *(1,) * (3 - len(grid)))  # pyright: ignore[reportAttributeAccessIssue]
    emulated.launch(pointers, [*values, *numbers])


def test_atomic_integers(target: str) -> None:
    x = np.random.default_rng(3).integers(-2, 9, 301).astype(np.int32)
    counts = np.zeros(7, np.int32)
    emulate(histogram, (3,), target, x, counts, BLOCK=128)
    np.testing.assert_array_equal(counts, np.bincount(x[(x >= 0) & (x < 7)], minlength=7))
    y = np.random.default_rng(1).integers(0, 2**30, 77).astype(np.int32)
    every, some, odd = (np.full(1, start, np.int32) for start in (-1, 0, 0))
    emulate(bits, (5,), target, y, every, some, odd, BLOCK=16)
    assert [every[0], some[0], odd[0]] == [np.bitwise_and.reduce(y), np.bitwise_or.reduce(y), np.bitwise_xor.reduce(y)]


def test_atomic_floats(target: str) -> None:
    x = np.random.default_rng(2).integers(-8, 9, (35, 21)).astype(np.float32)
    sums, high, low = (np.full(21, start, np.float32) for start in (0, -np.inf, np.inf))
    try:
        emulate(column_sums, (3, 1), target, x, sums, high, low, ROWS=16, COLUMNS=32)
    except NotImplementedError as error:
        if (target, emulator.VOP3_DPP in str(error)) != ("gfx1100", True):
            raise
        pytest.skip(str(error))
    for got, want in ((sums, x.sum(0)), (high, x.max(0)), (low, x.min(0))):
        np.testing.assert_array_equal(got, want)


def test_parts_of_a_product(target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (45, 130)).astype(np.float16), rng.integers(-3, 4, (130, 50)).astype(np.float16)
    c = np.zeros((45, 50), np.float32)
    emulate(split_matmul, (2, 2, 2), target, a, b, c, PART=96)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b)


@pytest.mark.parametrize(("sides", "via", "order"), [((32, 16), (8, 4, 16), (2, 0, 1)), ((2, 512), (64, 16), (1, 0))])
def test_reshapes(target: str, sides: Any, via: Any, order: Any) -> None:
    x = np.arange(1024, dtype=np.float32)[: sides[0] * sides[1]].reshape(1, *sides)
    y = np.zeros((1, x.size), np.float32)
    emulate(reshaped, (1,), target, x, y, FROM=sides, VIA=via, ORDER=order)
    np.testing.assert_array_equal(y[0], x[0].reshape(via).transpose(order).ravel())


def test_random_words(target: str) -> None:
    offsets = np.array([0, 1, 2**31 - 1, 77, 5], np.int32)
    want, got = np.zeros((4, 5), np.int32), np.zeros((4, 5), np.int32)
    words[2](offsets, want, SEED=2**40 + 7, N=4)
    emulate(words, (2,), target, offsets, got, SEED=2**40 + 7, N=4)
    np.testing.assert_array_equal(got, want)


def test_indices_from_memory(target: str) -> None:
    ends = np.array([3, 3, 20, 41], np.int32)
    x = np.random.default_rng(0).standard_normal((41, 7)).astype(np.float32)
    want, got = np.zeros_like(x), np.zeros_like(x)
    segments[4](x, ends, want, SIDE=8)
    emulate(segments, (4,), target, x, ends, got, SIDE=8)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("side", [1, 16])
def test_few_elements_changed_in_place(target: str, side: int) -> None:
    x = np.random.default_rng(1).standard_normal(33).astype(np.float32)
    want = np.concatenate([x[: 2 * side] * np.float32(1.5), x[2 * side :]])
    emulate(in_place, (2,), target, x, 1.5, SIDE=side)
    np.testing.assert_array_equal(x, want)
