"""A machine for tests: every thread of a workgroup runs on this CPU, one after the other (so no shuffles and no barriers).

Checks address arithmetic, predicates, elementwise code and control flow of `targets/simt` by executing them.
"""

import ctypes
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from treadle.codegen.llvm_text import I32, PTR, Builder, Module, Parameter, Value, i32
from treadle.dialects.tile import KernelOp
from treadle.errors import InternalError
from treadle.machine import Product, SharedBanks, TargetSpec
from treadle.plan import expr
from treadle.targets.interface import IndexParam, Param
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.kernel import emit_kernel

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
TRIPLE = llvm.get_process_triple()


def host_spec(lanes: int) -> TargetSpec:
    """A machine with warps of `lanes` threads."""
    return TargetSpec(
        name="host",
        vendor="test",
        description="the CPU",
        subgroup_size=lanes,
        product=Product("cpu", "host", "the CPU", compute_units=1, clock_mhz=1, memory_gbps=1, l2_bytes=1),
        shared_bytes_per_workgroup=1 << 20,
        shared_bytes_per_unit=1 << 20,
        registers_per_unit=1 << 16,
        max_registers_per_thread=1 << 10,
        max_threads_per_workgroup=1024,
        max_threads_per_unit=1024,
        max_vector_bytes=16,
        banks=SharedBanks(32, 4),
        matrix_instructions=(),
    )


class HostHooks(SimtHooks):
    """Ids are parameters; shared memory is one."""

    triple = TRIPLE
    cpu = ""
    calling_convention = ""
    global_space = 0
    shared_space = 0
    constant_space = 0

    def __init__(self, lanes: int = 32) -> None:
        super().__init__(host_spec(lanes))
        self._ids: list[Value] = []

    def function_attributes(self, threads: int) -> Sequence[str]:
        return ("nounwind",)

    def extra_parameters(self, kernel: KernelOp) -> Sequence[tuple[Param, Parameter]]:
        return [(IndexParam(-1), Parameter(I32, name)) for name in ("thread", "x", "y", "z")] + [(IndexParam(-1), Parameter(PTR, "shared"))]

    def shared_array(self, ctx: KernelContext, size: int) -> tuple[Value, int]:
        return ctx.parameters["shared"], size

    def thread_id(self, b: Builder) -> Value:
        return Value(I32, "%thread")

    def warp_id(self, b: Builder, thread: Value) -> Value:
        return b.lshr(thread, i32(self.spec.subgroup_size.bit_length() - 1))

    def program_id(self, b: Builder, axis: int) -> Value:
        return Value(I32, f"%{'xyz'[axis]}")

    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        raise InternalError("no shuffles on the host")

    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        raise InternalError("no shuffles on the host")

    def barrier(self, b: Builder, threads: int = 0) -> None:
        raise InternalError("no barriers on the host")


# What LLVM calls to round to bf16 where the CPU has no instruction for it; no library of this process need have it.
BF16_ROUNDING = """
define bfloat @__truncsfbf2(float %x) {
  %bits = bitcast float %x to i32
  %shifted = lshr i32 %bits, 16
  %odd = and i32 %shifted, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %shifted, 64
  %is_nan = fcmp uno float %x, %x
  %chosen = select i1 %is_nan, i32 %quiet, i32 %rounded
  %low = trunc i32 %chosen to i16
  %result = bitcast i16 %low to bfloat
  ret bfloat %result
}
"""


def jit(text: str, name: str, argument_types: Sequence[Any]) -> tuple[Any, object]:
    """A callable of a void function in LLVM text, and what must stay alive."""
    module = llvm.parse_assembly(text + BF16_ROUNDING)
    module.verify()
    engine = llvm.create_mcjit_compiler(
        module,
        llvm.Target.from_triple(TRIPLE).create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
        ),
    )
    engine.finalize_object()
    return ctypes.CFUNCTYPE(None, *argument_types)(engine.get_function_address(name)), engine


def run_kernel(
    kernel: KernelOp,
    arrays: Sequence[NDArray[np.generic]],
    symbols: Sequence[int] = (),
    lanes: int = 32,
    hooks: HostHooks | None = None,
    least_shared: int = 1,
) -> NDArray[np.uint8]:
    """Execute a kernel on NumPy arrays, in place; returns what is left in shared memory, which has at least so many bytes."""
    emitted = emit_kernel(kernel, hooks or HostHooks(lanes))
    types = [ctypes.c_void_p] * len(arrays) + [ctypes.c_int32] * (len(symbols) + 4) + [ctypes.c_void_p]
    function, engine = jit(emitted.llvm_text, emitted.symbol, types)
    env = dict(zip(kernel.symbol_names(), symbols, strict=True))
    grid = [expr.parse(g).evaluate(env) for g in emitted.grid]
    shared = np.zeros(max(least_shared, emitted.shared_bytes), np.uint8)
    for z, y, x in product(*(range(g) for g in reversed(grid))):
        for thread in range(emitted.block[0]):
            function(*(a.ctypes.data for a in arrays), *symbols, thread, x, y, z, shared.ctypes.data)
    del engine
    return shared


def run_scalar_function(
    emit: Callable[[Builder, list[Value]], Value], inputs: Sequence[NDArray[np.generic]], result: np.dtype
) -> NDArray[np.generic]:
    """`emit(builder, values) -> value` applied to each element; LLVM types follow the arrays'."""
    names = {"float32": "float", "float64": "double", "uint8": "i8", "int32": "i32", "float16": "half"}
    module = Module(TRIPLE)
    out = np.zeros(inputs[0].shape, result)
    count = len(inputs)
    function = module.function("f", [Parameter(PTR, f"p{i}") for i in range(count + 1)] + [Parameter(I32, "n")])
    b = Builder(function, "contract")
    *pointers, target, n = function.parameters
    with b.loop(i32(0), n, i32(1)) as loop:
        values = [
            b.load(names[str(a.dtype)], b.gep(p, loop.index, names[str(a.dtype)]), a.dtype.itemsize)
            for p, a in zip(pointers, inputs, strict=True)
        ]
        b.store(emit(b, values), b.gep(target, loop.index, names[str(out.dtype)]), out.dtype.itemsize)
    b.ret()
    call, engine = jit(str(module), "f", [ctypes.c_void_p] * (count + 1) + [ctypes.c_int32])
    call(*(a.ctypes.data for a in inputs), out.ctypes.data, out.size)
    del engine
    return out
