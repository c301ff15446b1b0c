"""Tile kernels with a loop worth pipelining, one a case: what the body looks like is what differs.

Every kernel has an input x[rows, n] and an output; the loop runs over n in steps of `STEP`, n a symbol or a constant.
"""

from collections.abc import Callable, Sequence
from typing import Any

from generators.tile_builder import INDEX, KernelBuilder, shared_type

from treadle.dialects import tile
from treadle.ir.core import Block, Builder, InsertPoint, Region, SSAValue
from treadle.ir.dialects import arith, builtin, scf

STEP = 16
ROWS = 16
F32 = builtin.f32
TILE = tile.tile_of([ROWS, STEP], F32)
Values = Sequence[SSAValue]


class LoopKernel(KernelBuilder):
    """A builder that knows the arrays x [ROWS, n], y [n, ROWS], out [ROWS, ROWS]; `n` is None for the symbol."""

    def __init__(self, n: int | None) -> None:
        super().__init__([F32, F32, F32], ["n"])
        self.n = self.index(n) if n is not None else self.indices[0]
        self.zero = self.index(0)
        self.x = self.add(tile.ViewOp(self.pointers[0], [ROWS, self.n], [self.n, 1], align=4))
        self.y = self.add(tile.ViewOp(self.pointers[1], [self.n, ROWS], [ROWS, 1], align=4))
        self.out = self.add(tile.ViewOp(self.pointers[2], [ROWS, 2 * ROWS], [2 * ROWS, 1], align=4))
        self.start = self.constant(0.25, [ROWS, STEP], F32)

    def buffer(self, shape: tuple[int, int] = (ROWS, STEP)) -> SSAValue:
        return self.add(tile.AllocOp(shared_type(shape, F32)))

    def load(self, i: SSAValue) -> SSAValue:
        return self.add(tile.LoadOp(self.x, [self.zero, i], [0, 1], TILE))

    def load_y(self, i: SSAValue) -> SSAValue:
        return self.add(tile.LoadOp(self.y, [i, self.zero], [0, 1], TILE))

    def copy(self, i: SSAValue, buffer: SSAValue, path: str = "bulk_tensor") -> None:
        self.add(tile.CopyOp(self.x, [self.zero, i], [0, 1], buffer, path=path))

    def copy_y(self, i: SSAValue, buffer: SSAValue, path: str = "bulk_tensor") -> None:
        self.add(tile.CopyOp(self.y, [i, self.zero], [0, 1], buffer, path=path))

    def put(self, value: SSAValue, buffer: SSAValue) -> None:
        self.add(tile.LocalStoreOp(value, buffer, [0, 0]))

    def get(self, buffer: SSAValue) -> SSAValue:
        return self.add(tile.LocalLoadOp(buffer, [0, 0], TILE))

    def plus(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.add(arith.AddfOp(a, b))

    def dot(self, a: SSAValue, b: SSAValue, accumulator: SSAValue) -> SSAValue:
        return self.add(tile.ContractOp(a, b, accumulator, "fma"))

    def step_of(self, i: SSAValue, count: int) -> SSAValue:
        """I + count * STEP"""
        return self.add(arith.AddiOp(i, self.index(count * STEP)))

    def is_even(self, i: SSAValue) -> SSAValue:
        """Whether the iteration at induction value i has an even number."""
        number = self.add(arith.DivUIOp(i, self.index(STEP)))
        return self.add(arith.CmpiOp(self.add(arith.RemUIOp(number, self.index(2))), self.index(0), "eq"))

    def branch(self, condition: SSAValue, then: Callable[[], Values], otherwise: Callable[[], Values] | None = None) -> Values:
        """`scf.if`"""
        regions: list[Region] = []
        kinds: list[Any] = []
        for make in (then, otherwise):
            if make is None:
                continue
            block = Block()
            self._builders.append(Builder(InsertPoint.at_end(block)))
            results = make()
            self.add(scf.YieldOp(*results))
            self._builders.pop()
            kinds = [v.type for v in results]
            regions.append(Region(block))
        op = scf.IfOp(condition, kinds, regions[0], regions[1] if otherwise else None)
        self.add(op)
        return op.results

    def store(self, value: SSAValue, column: int = 0) -> None:
        self.add(tile.StoreOp(value, self.out, [self.zero, self.index(column)], [0, 1]))

    def done(self, *results: SSAValue) -> tile.KernelOp:
        for at, value in enumerate(results):
            self.store(value, at * STEP)
        return self.kernel("looped", ["1", "1", "1"], 1)


def stream_matmul(n: int | None) -> tile.KernelOp:
    """Both operands through registers into shared memory."""
    k = LoopKernel(n)
    a, b = k.buffer(), k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        x, y = k.load(i), k.load_y(i)
        k.put(x, a)
        k.put(y, b)
        return [k.dot(k.get(a), k.get(b), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def prefetch_add(n: int | None) -> tile.KernelOp:
    """Read, write to shared memory, read back, add."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.put(k.load(i), a)
        return [k.plus(k.get(a), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def two_results(n: int | None) -> tile.KernelOp:
    """Two carried tiles; the second is also fed by the first, and is an older version of it."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.put(k.load(i), a)
        value = k.get(a)
        return [k.plus(value, carried[1]), k.plus(value, carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start, k.constant(2, [ROWS, STEP], F32)], body))


def swapped_results(n: int | None) -> tile.KernelOp:
    """A carried tile becomes another one unchanged."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.put(k.load(i), a)
        return [k.plus(k.get(a), carried[1]), carried[0]]

    return k.done(*k.loop(k.n, STEP, [k.start, k.constant(2, [ROWS, STEP], F32)], body))


def index_by_if(n: int | None) -> tile.KernelOp:
    """A branch computes where to read: it moves with the read."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        (at,) = k.branch(k.is_even(i), lambda: [k.step_of(i, 1)], lambda: [i])
        k.put(k.load(at), a)
        return [k.plus(k.get(a), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def guarded_stream(n: int | None) -> tile.KernelOp:
    """A guarded read, then a guarded write of what was read; the computation sees older data where the guard is off."""
    k = LoopKernel(n)
    a = k.buffer()
    k.put(k.start, a)

    def body(i: SSAValue, carried: Values) -> Values:
        even = k.is_even(i)
        (value,) = k.branch(even, lambda: [k.load(i)], lambda: [k.constant(0, [ROWS, STEP], F32)])

        def write() -> Values:
            k.put(value, a)
            return []

        k.branch(even, write)
        return [k.plus(k.get(a), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def through_scratch(n: int | None) -> tile.KernelOp:
    """Another hop through shared memory before the staged buffer."""
    k = LoopKernel(n)
    scratch, a = k.buffer(), k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.put(k.load(i), scratch)
        k.put(k.get(scratch), a)
        return [k.dot(k.get(a), k.start, carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def nested(n: int | None) -> tile.KernelOp:
    """The loop inside another one, which runs three times and carries the sum."""
    k = LoopKernel(n)
    a, b = k.buffer(), k.buffer()

    def inner(i: SSAValue, carried: Values) -> Values:
        k.put(k.load(i), a)
        k.put(k.load_y(i), b)
        return [k.dot(k.get(a), k.get(b), carried[0])]

    def outer(_: SSAValue, carried: Values) -> Values:
        return k.loop(k.n, STEP, carried, inner)

    return k.done(*k.loop(k.index(3), 1, [k.start], outer))


def transposed_load(n: int | None) -> tile.KernelOp:
    """The read turns the tile; the computation reads it turned again."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        turned = k.add(tile.LoadOp(k.y, [i, k.zero], [1, 0], TILE))
        k.put(turned, a)
        return [k.plus(k.add(tile.PermuteOp(k.get(a), [1, 0])), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def async_matmul(n: int | None, path: str = "bulk_tensor") -> tile.KernelOp:
    """Both operands by asynchronous copies."""
    k = LoopKernel(n)
    a, b = k.buffer(), k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a, path)
        k.copy_y(i, b, path)
        return [k.dot(a, b, carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def queued_matmul(n: int | None) -> tile.KernelOp:
    """The same by copies that complete in a queue."""
    return async_matmul(n, "cp_async")


def predicated_pair(n: int | None) -> tile.KernelOp:
    """One copy only every other time, its use under the same condition; and one that is copied from either array."""
    k = LoopKernel(n)
    a, b = k.buffer(), k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        even = k.is_even(i)

        def one() -> Values:
            k.copy(i, a)
            return []

        def other(from_y: bool) -> Values:
            (k.copy_y if from_y else k.copy)(i, b)
            return []

        k.branch(even, one)
        k.branch(even, lambda: other(True), lambda: other(False))
        (extra,) = k.branch(even, lambda: [k.get(a)], lambda: [k.start])
        return [k.dot(extra, k.get(b), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def copied_before(n: int | None) -> tile.KernelOp:
    """One operand is copied before the loop and stays."""
    k = LoopKernel(n)
    q, a = k.buffer(), k.buffer()
    k.copy_y(k.zero, q)

    def body(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a)
        return [k.dot(a, q, carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def two_loops(n: int | None) -> tile.KernelOp:
    """Two loops, one after the other, of different kinds."""
    k = LoopKernel(n)
    a, b = k.buffer(), k.buffer()

    def first(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a)
        return [k.dot(a, k.start, carried[0])]

    def second(i: SSAValue, carried: Values) -> Values:
        k.put(k.load_y(i), b)
        return [k.dot(k.get(b), k.start, carried[0])]

    return k.done(*k.loop(k.n, STEP, k.loop(k.n, STEP, [k.start], first), second))


def carried_place(n: int | None, *, asynchronous: bool = False) -> tile.KernelOp:
    """Where to read is carried, and the computation needs it too; a second counter is only carried."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        place, count, total = carried
        if asynchronous:
            k.copy(place, a)
        else:
            k.put(k.load(place), a)
        following = k.step_of(place, 1)
        number = k.add(arith.IndexCastOp(k.add(arith.AddiOp(place, count)), builtin.i32))
        wide = k.add(tile.SplatOp(k.add(arith.SIToFPOp(number, F32)), TILE))
        advanced = k.add(arith.AddiOp(count, k.index(3)))
        return [following, advanced, k.plus(k.plus(k.get(a), wide), total)]

    return k.done(k.loop(k.n, STEP, [k.zero, k.index(5), k.start], body)[2])


def carried_place_async(n: int | None) -> tile.KernelOp:
    """The same by asynchronous copies."""
    return carried_place(n, asynchronous=True)


def direct_load(n: int | None) -> tile.KernelOp:
    """A second array is read into registers for the computation itself."""
    k = LoopKernel(n)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.put(k.load(i), a)
        return [k.dot(k.get(a), k.load_y(i), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def odd_bounds(n: int | None) -> tile.KernelOp:
    """Bounds and step that are no constants, a lower bound that is not zero, and a mask made of the induction value."""
    k = LoopKernel(n)
    a = k.buffer()
    step = k.add(arith.AddiOp(k.indices[0], k.index(STEP)))
    step = k.add(arith.SubiOp(step, k.indices[0]))
    low = k.index(STEP)
    block = Block(arg_types=[INDEX, TILE])
    k._builders.append(Builder(InsertPoint.at_end(block)))
    i, total = block.args
    k.copy(i, a)
    wide = k.add(tile.SplatOp(i, tile.tile_of([ROWS, STEP], builtin.i32)))
    lane = k.add(tile.IotaOp(1, tile.tile_of([ROWS, STEP], builtin.i32)))
    mask = k.add(arith.CmpiOp(wide, lane, "sgt"))
    k.add(scf.YieldOp(k.plus(total, k.add(arith.SelectOp(mask, k.get(a), k.start)))))
    k._builders.pop()
    loop = scf.ForOp(low, k.n, step, [k.start], Region(block))
    k.add(loop)
    return k.done(*loop.results)


CASES: dict[str, Callable[[int | None], tile.KernelOp]] = {
    f.__name__: f
    for f in (
        stream_matmul,
        prefetch_add,
        two_results,
        swapped_results,
        index_by_if,
        guarded_stream,
        through_scratch,
        nested,
        transposed_load,
        async_matmul,
        queued_matmul,
        predicated_pair,
        copied_before,
        two_loops,
        carried_place,
        carried_place_async,
        direct_load,
        odd_bounds,
    )
}
