"""Machines without memory: which addresses a kernel touches, as moments of the multiset of its elements' addresses.

`recorded` executes the LLVM code of `targets/simt` on this CPU with loads and stores replaced by counting; `walked` executes the tile
program in the simulator, whose indices are Python's, with loads and stores replaced by the boxes that they mean. The two have nothing in
common but the tile program, so equal moments say that the code's index arithmetic is right, however large the arrays.
"""

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from targets.host import HostHooks, jit

from treadle.codegen.llvm_text import I64, PTR, Builder, Parameter, Value, bit_width, i64, vector_shape
from treadle.dialects.tile import ContractOp, KernelOp
from treadle.frontends import mlir
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.sim import memory
from treadle.sim.memory import Pointer, View, Window
from treadle.sim.tile_interpreter import TileKernel
from treadle.targets.interface import IndexParam, Param
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.hooks import Reading
from treadle.targets.simt.kernel import emit_kernel

BUCKET: Final = 56
"""Array number k starts at address (k + 1) << BUCKET: no array is as large, and an address before an array is in another bucket."""
_BUCKETS: Final = 256
_MASK: Final = (1 << 64) - 1

Place = tuple[int, int, int]
Moments = tuple[int, int, int]
"""How many addresses, their sum, and the sum of their squares, modulo 2^64."""
Touched = dict[tuple[str, int], Moments]
"""By "load" or "store" and the number of the kernel's pointer; -1 - b for the bucket b of no array."""


def moments(start: int, extents: Sequence[int], strides: Sequence[int]) -> Moments:
    """Of the addresses `start + sum(i * stride)` of a box (bytes), in closed form."""
    count, total, squares = 1, start, start * start
    for n, s in zip(extents, strides, strict=True):
        one, two = n * (n - 1) // 2, (n - 1) * n * (2 * n - 1) // 6
        squares = n * squares + 2 * total * s * one + count * s * s * two
        total = n * total + count * s * one
        count *= n
    return count & _MASK, total & _MASK, squares & _MASK


def added(a: Moments, b: Moments) -> Moments:
    """Of both multisets together."""
    return (a[0] + b[0]) & _MASK, (a[1] + b[1]) & _MASK, (a[2] + b[2]) & _MASK


def agree(have: Touched, want: Touched) -> bool:
    """Whether code touches what it should. Threads that hold copies of an element all load it, so loads may be any multiple."""
    if set(have) != set(want):
        return False
    for key, (count, *rest) in want.items():
        times = have[key][0] // count if key[0] == "load" else 1
        if have[key] != tuple(times * value & _MASK for value in (count, *rest)):
            return False
    return True


def base(pointer: int) -> int:
    """The address at which array number `pointer` starts."""
    return (pointer + 1) << BUCKET


class RecordingHooks(HostHooks):
    """Counts accesses of global memory; data is whatever it is, so barriers and shuffles do nothing."""

    def extra_parameters(self, kernel: KernelOp) -> Sequence[tuple[Param, Parameter]]:
        return [*super().extra_parameters(kernel), (IndexParam(-1), Parameter(PTR, "table"))]

    def begin(self, ctx: KernelContext) -> None:
        self._table = ctx.parameters["table"]

    def _record(self, b: Builder, address: Value, kind: str, predicate: Value | None, column: int) -> None:
        count, element = vector_shape(kind) or (1, kind)
        size = bit_width(element) // 8
        n, one, squares = moments(0, [count], [size])
        at = b.ptrtoint(address, I64)
        held = b.zext(predicate, I64) if predicate is not None else i64(1)
        linear = b.add(b.mul(at, i64(n)), i64(one))
        square = b.add(b.add(b.mul(b.mul(at, at), i64(n)), b.mul(at, i64(2 * one))), i64(squares))
        row = b.add(b.mul(b.lshr(at, i64(BUCKET)), i64(6)), i64(3 * column))
        for number, value in enumerate((i64(n), linear, square)):
            cell = b.gep(self._table, b.add(row, i64(number)), I64, flags="")
            b.store(b.add(b.load(I64, cell, 8), b.mul(value, held)), cell, 8)

    def load_global(
        self, b: Builder, address: Value, type: str, align: int, predicate: Value | None, other: Value, reading: Reading
    ) -> Value:
        self._record(b, address, type, predicate, 0)
        return other

    def store_global(self, b: Builder, address: Value, value: Value, align: int, predicate: Value | None) -> None:
        self._record(b, address, value.type, predicate, 1)

    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        return value

    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        return value

    def barrier(self, b: Builder, threads: int = 0) -> None:
        pass

    def contract(self, ctx: KernelContext, op: ContractOp) -> None:
        ctx.bind(op.result, ctx.tile(op.accumulator))


def recorded(
    kernel: KernelOp, symbols: Sequence[int], places: Sequence[Place], lanes: int, threads: Sequence[int] | None = None
) -> Touched:
    """What the emitted code of these workgroups touches; `threads`: only these of each."""
    emitted = emit_kernel(kernel, RecordingHooks(lanes))
    pointers = len(kernel.body.block.args) - len(symbols)
    wide = [getattr(p, "bits", 32) == 64 for p in emitted.params if isinstance(p, IndexParam) and p.arg >= 0]
    types: list[Any] = [ctypes.c_uint64] * pointers + [ctypes.c_int64 if w else ctypes.c_int32 for w in wide]
    types += [ctypes.c_int32] * 4 + [ctypes.c_void_p] * 2
    function, engine = jit(emitted.llvm_text, emitted.symbol, types)
    shared, table = np.zeros(emitted.shared_bytes + 1024, np.uint8), np.zeros(6 * _BUCKETS, np.uint64)
    for place in places:
        for thread in threads if threads is not None else range(emitted.block[0]):
            function(*map(base, range(pointers)), *symbols, thread, *place, shared.ctypes.data, table.ctypes.data)
    del engine
    found: Touched = {}
    for bucket, row in enumerate(table.reshape(_BUCKETS, 2, 3).tolist()):
        for column, values in zip(("load", "store"), row, strict=True):
            if any(values):
                number = bucket - 1 if 0 < bucket <= pointers else -1 - bucket
                found[column, number] = (values[0], values[1], values[2])
    return found


@contextmanager
def _boxes(touched: Touched, numbers: dict[int, int]) -> Generator[None]:
    def note(kind: str, view: View, offsets: Sequence[int], window: Window) -> None:
        extents = dict(window._axes)
        low = [max(o, 0) for o in offsets]
        high = [min(o + (extents[d] or 1), n) for d, (o, n) in enumerate(zip(offsets, view.sizes, strict=True))]
        sizes = [max(h - lo, 0) for lo, h in zip(low, high, strict=True)]
        if 0 in sizes:
            return
        if kind == "load" and window.edges:
            along = max((d for d, n in extents.items() if n and view.strides[d] == 1), key=lambda d: extents[d])
            ahead = (low[along] - offsets[along]) % window.vector
            low[along] -= ahead
            sizes[along] = -(-(sizes[along] + ahead) // window.vector) * window.vector  # groups across an end are read whole
        size, number = view.array.itemsize, numbers[id(view.array)]
        start = base(number) + size * (view.element_offset + sum(o * s for o, s in zip(low, view.strides, strict=True)))
        found = moments(start, sizes, [s * size for s in view.strides])
        touched[kind, number] = added(touched.get((kind, number), (0, 0, 0)), found)

    def read(window: Window, view: View, offsets: Sequence[int], other: Any) -> Any:
        note("load", view, offsets, window)
        return np.ones(window.shape, view.array.dtype)

    def write(window: Window, view: View, offsets: Sequence[int], value: Any) -> None:
        note("store", view, offsets, window)

    def unchanged(data: Any, *_: object) -> Any:
        return data

    with patch.object(memory, "strided", unchanged), patch.object(Window, "read", read), patch.object(Window, "write", write):
        yield


def walked(kernel: KernelOp, symbols: Sequence[int], places: Sequence[Place]) -> Touched:
    """What the tile program of these workgroups touches. Raises SimulationFault for an index that the kernel's width does not hold."""
    ready = TileKernel(kernel)
    elements = [a.type for a in kernel.body.block.args[: ready.pointer_count]]
    from treadle.sim.element_types import storage_dtype

    arrays = [np.zeros(1, storage_dtype(e.element_type)) for e in elements]  # pyright: ignore[reportAttributeAccessIssue]
    touched: Touched = {}
    with _boxes(touched, {id(array): number for number, array in enumerate(arrays)}):
        ready.launch([Pointer(array) for array in arrays], symbols, places=places)
    return touched


def lowered(text: str, target: str, options: CompileOptions | None = None) -> builtin.ModuleOp:
    """A module at schedule level."""
    module = mlir.load(text + "\n")
    lower(module, target_spec(target), options or CompileOptions())
    return module


def kernels_of(module: builtin.ModuleOp) -> list[KernelOp]:
    """Its kernels."""
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]
