"""Tile kernels with a loop that stays as it is, one a reason; built as those of `pipelined_kernels.py`."""

from collections.abc import Callable

from generators.pipelined_kernels import STEP, LoopKernel, Values

from treadle.dialects import sync, tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith


def copy_back() -> tile.KernelOp:
    """No computation."""
    k = LoopKernel(None)
    a = k.buffer()

    def body(i: SSAValue, _: Values) -> Values:
        k.put(k.load(i), a)
        k.store(k.get(a))
        return []

    k.loop(k.n, STEP, [], body)
    return k.done()


def read_and_write_together() -> tile.KernelOp:
    """One branch both reads and writes to shared memory."""
    k = LoopKernel(None)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        def both() -> Values:
            k.put(k.load(i), a)
            return []

        k.branch(k.is_even(i), both)
        return [k.plus(k.get(a), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def barrier_in_branch() -> tile.KernelOp:
    """A branch that orders effects itself."""
    k = LoopKernel(None)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        def wait() -> Values:
            k.add(sync.BarrierOp())
            return []

        k.copy(i, a)
        k.branch(k.is_even(i), wait)
        return [k.dot(a, k.start, carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def mixed_copies() -> tile.KernelOp:
    """One operand by asynchronous copy, the other by the threads."""
    k = LoopKernel(None)
    a, b = k.buffer(), k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a)
        k.put(k.load_y(i), b)
        return [k.dot(a, k.get(b), carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def escaping_buffer() -> tile.KernelOp:
    """What the last iteration copied is read after the loop."""
    k = LoopKernel(None)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a)
        return [k.dot(a, k.start, carried[0])]

    (total,) = k.loop(k.n, STEP, [k.start], body)
    return k.done(total, k.get(a))


def older_data() -> tile.KernelOp:
    """A copy that is left out every other time, and a computation that reads it all the same."""
    k = LoopKernel(None)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        def one() -> Values:
            k.copy(i, a)
            return []

        k.branch(k.is_even(i), one)
        return [k.dot(a, k.start, carried[0])]

    return k.done(*k.loop(k.n, STEP, [k.start], body))


def copy_from_result() -> tile.KernelOp:
    """Where to copy from depends on what was computed."""
    k = LoopKernel(None)
    a = k.buffer()

    def body(i: SSAValue, carried: Values) -> Values:
        place, total = carried
        k.copy(place, a)
        k.store(k.get(a))
        written = k.add(arith.AddiOp(place, k.index(STEP)))
        return [written, k.dot(a, k.start, total)]

    return k.done(k.loop(k.n, STEP, [k.zero, k.start], body)[1])


REFUSED: dict[str, tuple[Callable[[], tile.KernelOp], str, str]] = {
    "no computation": (copy_back, "no-compute", "scf.for"),
    "read and write together": (read_and_write_together, "read-and-write", "scf.if"),
    "barrier in a branch": (barrier_in_branch, "synchronised", "scf.if"),
    "mixed copies": (mixed_copies, "mixed-copies", "tile.local_store"),
    "escaping buffer": (escaping_buffer, "escape", "tile.copy"),
    "older data": (older_data, "conditional-write", "scf.if"),
}
