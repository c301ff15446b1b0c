"""Loads that are shifted into place, thread by thread on the CPU: random pitches, lengths, offsets and types, and what they touch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from targets.host import HostHooks, run_kernel
from targets.tile_kernels import finish, index, kernel_block

from treadle.codegen.llvm_text import I64, PTR, TRUE, Builder, Value, i64
from treadle.dialects import tile
from treadle.dialects.tile import LoadOp, StoreOp, ViewOp, tile_of
from treadle.ir.core import Attribute, ImplicitBuilder
from treadle.ir.dialects import builtin
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.targets.simt.hooks import Reading

KINDS: dict[str, tuple[Attribute, Any, int]] = {
    "i8": (builtin.i8, np.int8, 16),
    "f16": (builtin.f16, np.float16, 8),
    "f32": (builtin.f32, np.float32, 4),
}
LOGGED = 1 << 16


class LoggingHooks(HostHooks):
    """A machine that shifts, and notes what its loads touch: addresses and bytes behind a counter in shared memory."""

    def __init__(self, *, shifts: bool = True) -> None:
        super().__init__()
        self.spec = replace(self.spec, shifts_loads=shifts)

    def load_global(
        self, b: Builder, address: Value, type: str, align: int, predicate: Value | None, other: Value, reading: Reading
    ) -> Value:
        shared = Value(PTR, "%shared")
        with b.when(TRUE if predicate is None else predicate):
            count = b.load(I64, shared, 8)
            place = b.gep(shared, b.add(b.mul(count, i64(16)), i64(8)))
            b.store(b.ptrtoint(address, I64), place, 8)
            b.store(i64(align), b.gep(place, i64(8)), 8)
            b.store(b.add(count, i64(1)), shared, 8)
        return super().load_global(b, address, type, align, predicate, other, reading)


def loaded_tile(
    kind: str, sizes: tuple[int, int], pitch: int, start: int, offset: tuple[int, int], layout: TileLayout, other: int
) -> tile.KernelOp:
    """A tile of a view that begins `start` elements into the array, at an offset of it, with `other` outside; stored densely."""
    element, _, width = KINDS[kind]
    shape = layout.shape
    block = kernel_block([element, element])
    with ImplicitBuilder(block):
        view = ViewOp(block.args[0], list(sizes), [pitch, 1], offset=start, align=1).result
        wanted = builtin.IntegerAttr(other, 8) if kind == "i8" else builtin.FloatAttr(other, builtin.f16 if kind == "f16" else builtin.f32)
        load = LoadOp(view, [index(at) for at in offset], [0, 1], tile_of(shape, element, layout), vector=width, other=wanted)
        load.shifted = builtin.UnitAttr()
        target = ViewOp(block.args[1], list(shape), [shape[1], 1], align=16).result
        StoreOp(load.result, target, [index(0), index(0)], [0, 1])
        tile.ReturnOp()
    return finish("shifted", block, grid=["1", "1", "1"], warps=1)


def aligned_array(count: int, dtype: Any, align: int = 64) -> np.ndarray:
    """An array that begins at a multiple of so many bytes."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + align, np.uint8)
    first = -raw.ctypes.data % align
    return raw[first : first + count * np.dtype(dtype).itemsize].view(dtype)


def touched(shared: np.ndarray) -> list[tuple[int, int]]:
    """What the loads touched: addresses and bytes."""
    words = shared.view(np.int64)
    return [(int(words[1 + 2 * at]), int(words[2 + 2 * at])) for at in range(int(words[0]))]


def expected_tile(data: np.ndarray, sizes: Sequence[int], pitch: int, start: int, offset: Sequence[int], shape: Sequence[int], other: int):
    """The tile by NumPy."""
    found = np.full(shape, other, data.dtype)
    for row in range(shape[0]):
        for column in range(shape[1]):
            at = (row + offset[0], column + offset[1])
            if all(0 <= place < size for place, size in zip(at, sizes, strict=True)):
                found[row, column] = data[start + at[0] * pitch + at[1]]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_random_rows(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, sorted(KINDS).index(kind)])
    _, dtype, width = KINDS[kind]
    width = width >> int(rng.integers(0, 2)) if kind != "f32" else width
    layout = blocked([4, 16 * width], (1, 0), width, 32, 1)
    sizes = int(rng.integers(1, 6)), int(rng.integers(1, 20 * width))
    pitch, start = sizes[1] + int(rng.integers(0, 4)), int(rng.integers(0, 20))
    offset = int(rng.integers(-1, 3)), int(rng.integers(-2 * width, sizes[1] + 3))
    data = aligned_array(start + sizes[0] * pitch, dtype)
    data[:] = rng.integers(1, 100, data.size).astype(dtype)
    out = aligned_array(4 * 16 * width, dtype)
    kernel = loaded_tile(kind, sizes, pitch, start, offset, layout, -3)
    shared = run_kernel(kernel, [data, out], hooks=LoggingHooks(), least_shared=LOGGED)
    np.testing.assert_array_equal(out.reshape(4, -1), expected_tile(data, sizes, pitch, start, offset, layout.shape, -3))
    size, first = data.itemsize, data.ctypes.data
    rows = [(first + (start + row * pitch) * size, first + (start + row * pitch + sizes[1]) * size) for row in range(sizes[0])]
    for address, count in touched(shared):
        assert count == width * size and address % count == 0
        assert any(address < end and address + count > begin for begin, end in rows), "a piece without an element of the view"


def test_a_group_takes_two_loads_and_one_where_it_is_aligned() -> None:
    layout = blocked([4, 128], (1, 0), 8, 32, 1)
    data, out = aligned_array(4 * 132, np.float16), aligned_array(512, np.float16)
    data[:] = np.arange(data.size)
    shared = run_kernel(loaded_tile("f16", (4, 128), 132, 0, (0, 0), layout, 0), [data, out], hooks=LoggingHooks(), least_shared=LOGGED)
    np.testing.assert_array_equal(out.reshape(4, -1), data.reshape(4, 132)[:, :128])
    assert len(touched(shared)) == 2 * 16 * 1 + 2 * 16 * 2, "rows 0 and 2 begin at multiples of 16 bytes"


def test_machines_that_do_not_shift_load_single_elements() -> None:
    layout = blocked([4, 128], (1, 0), 8, 32, 1)
    data, out = aligned_array(4 * 131, np.float16), aligned_array(512, np.float16)
    data[:] = np.arange(data.size)
    kernel = loaded_tile("f16", (4, 128), 131, 0, (0, 0), layout, 0)
    shared = run_kernel(kernel, [data, out], hooks=LoggingHooks(shifts=False), least_shared=LOGGED)
    np.testing.assert_array_equal(out.reshape(4, -1), data.reshape(4, 131)[:, :128])
    assert {count for _, count in touched(shared)} == {2}
