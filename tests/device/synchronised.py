"""What insert-sync makes of sequential programs, as hand-written programs are given: right is what the sequential program computes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from device.hand_written import Case
from generators.async_checks import kernel_of
from generators.async_kernels import ACCUMULATOR, Kernel
from transforms.kernel.test_insert_sync_async import fused, operands

from treadle.dialects.tile import KernelOp
from treadle.ir.text import parse_module
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass


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


def registers() -> Kernel:
    """Left operands in registers: of a buffer, and the narrowed result of another product."""
    k = operands()
    first = k.mma(k.fragment("%p"), "%q")
    k.store(first)
    k.store(k.mma(k.fragment(first), "%q"), "%r1")
    return k


def registers_in_turn() -> Kernel:
    """A left operand that every trip loads again while the sums go on."""
    k = operands()
    k.add(f"%acc = scf.for %i = %c0 to %c8 step %c1 iter_args(%old = %zero) -> ({ACCUMULATOR}) {{")
    new = k.mma(k.fragment("%p"), "%q", "%old")
    k.add(f"scf.yield {new} : {ACCUMULATOR}\n}}")
    k.store("%acc")
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


_SOURCES: dict[str, Callable[[], Kernel]] = {
    "independent": independent,
    "registers": registers,
    "registers_in_turn": registers_in_turn,
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


def _case(source: Kernel) -> Case:
    shape = (source.rows, 64)

    def build() -> KernelOp:
        return kernel_of(source.synchronised(AllocateSharedPass()))

    def sequential(*inputs: Any) -> tuple[Any, ...]:
        result = np.full(source.rows * 64, np.nan, np.float32)
        pointers = [Pointer(array.reshape(-1)) for array in (*(x.astype(np.float16) for x in inputs), result)]
        TileKernel(kernel_of(parse_module(source.text(), "sequential"))).launch(pointers, [])
        return (result.reshape(shape),)

    return Case(build, (("f16", shape), ("f16", shape)), (("f32", shape),), sequential, tolerance=0, integers=True)


CASES: dict[str, Case] = {name: _case(source()) for name, source in _SOURCES.items()}
