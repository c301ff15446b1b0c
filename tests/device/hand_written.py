"""Hand-written schedule-level programs for sm_90a: how each is built, what it is given, what is right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from targets.result_programs import added_product, group_turns, matrix_loads, matrix_stores, store_ring, two_products
from targets.schedule_programs import consumers, cp_async_ring, ping_pong, tma_ring

from treadle.artifact import Buffer, Kernel, KernelArg, Launch, Manifest, PointerValue, ScalarValue, TensorMapValue, TensorRecord
from treadle.dialects.tile import KernelOp
from treadle.plan import expr
from treadle.runtime.cuda import CudaDevice, GpuProgram
from treadle.targets.interface import CompiledKernel, PointerParam, TensorMapParam
from treadle.targets.registry import backend

DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
Tensor = tuple[str, tuple[int, ...]]


def manifest_of(compiled: CompiledKernel, tensors: Sequence[Tensor], outputs: int) -> Manifest:
    """One launch of one kernel without symbols; the last `outputs` tensors are its results."""
    emitted, facts = compiled.emitted, compiled.facts
    names = [f"b{i}" for i in range(len(tensors))]
    inputs = len(tensors) - outputs

    def number(text: str) -> int:
        return expr.parse(text).evaluate({})

    def record(name: str, at: int) -> TensorRecord:
        kind, shape = tensors[at]
        return TensorRecord(name, kind, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))), names[at])

    arguments: list[KernelArg] = []
    values: list[PointerValue | ScalarValue | TensorMapValue] = []
    for param, offset in zip(emitted.params, facts.param_offsets, strict=True):
        if isinstance(param, PointerParam):
            arguments.append(KernelArg("pointer", offset))
            values.append(PointerValue(names[param.arg]))
        elif isinstance(param, TensorMapParam):
            arguments.append(KernelArg("tensor_map", offset))
            values.append(TensorMapValue(names[param.arg], param.map, param.byte_offset))
    x, y, z = (number(g) for g in emitted.grid)
    kernel = Kernel("k0", emitted.symbol, "k0", emitted.block, emitted.cluster, emitted.shared_bytes, facts.param_bytes, tuple(arguments))
    sizes = [prod(shape) * np.dtype(DTYPES[kind]).itemsize for kind, shape in tensors]
    return Manifest(
        treadle="0",
        target="sm_90a",
        function="test",
        dims={},
        inputs=tuple(record(f"x{i}", i) for i in range(inputs)),
        outputs=tuple(record(f"r{i}", inputs + i) for i in range(outputs)),
        buffers=tuple(Buffer(n, "output" if i >= inputs else "input", sizes[i], 16) for i, n in enumerate(names)),
        kernels=(kernel,),
        launches=(Launch("k0", (x, y, z), tuple(values)),),
    )


@dataclass(frozen=True)
class Case:
    """A program, its inputs and outputs, and the right results (float64 in, float64 out) with the error allowed.

    Where a right result is not a number, nothing is written. `integers`: inputs are small integers, so that every sum is exact.
    """

    build: Callable[[], KernelOp]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    right: Callable[..., tuple[Any, ...]]
    tolerance: float = 2e-3
    integers: bool = False

    def compiled(self) -> CompiledKernel:
        """The kernel's code."""
        target = backend("sm_90a")
        return target.assemble(target.emit(self.build()))

    def program(self, device: CudaDevice, compiled: CompiledKernel) -> GpuProgram:
        """One launch of the kernel."""
        return device.load(manifest_of(compiled, [*self.inputs, *self.outputs], len(self.outputs)), {"k0": compiled.binary})

    def arrays(self, seed: int) -> list[Any]:
        """Inputs."""
        rng = np.random.default_rng(seed)
        if self.integers:
            return [rng.integers(-2, 3, shape).astype(DTYPES[kind]) for kind, shape in self.inputs]
        return [rng.standard_normal(shape).astype(DTYPES[kind]) for kind, shape in self.inputs]

    def error(self, arrays: Sequence[Any], found: Sequence[Any]) -> float:
        """The largest difference to the right results of `arrays`; not a number where a result is none and should be one."""
        worst = 0.0
        for got, want in zip(found, self.right(*(array.astype(np.float64) for array in arrays)), strict=True):
            written = ~np.isnan(want)
            assert written.any()
            worst = float(np.maximum(worst, np.abs(got.astype(np.float64) - want)[written].max()))
        return worst


def matmul(build: Callable[..., KernelOp], m: int, n: int, k: int, *, kind: str = "f32", **facts: Any) -> Case:
    """C = A B^T. In bf16 the result is rounded: half a unit in the last place of values of about sqrt(k)."""
    tolerance = 2e-3 if kind == "f32" else 2**-8 * 8 * k**0.5
    inputs = (("bf16", (m, k)), ("bf16", (n, k)))

    def right(a: Any, b: Any) -> tuple[Any, ...]:
        return (a @ b.T,)

    return Case(lambda: build(m, n, k, **facts), inputs, ((kind, (m, n)),), right, tolerance)


def products(m: int, k: int, shape: str) -> Case:
    tensors = (("bf16", (m, k)), ("bf16", (128, k)), ("bf16", (128, k)))
    outputs = (("f32", (m, 128)), ("f32", (m, 128)))

    def long(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        first = value = a @ b.T
        for _ in range(6):
            value = 0.5 * value + 1
        return value, first

    def branch(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        return a @ b.T, a @ c.T

    def squared(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        return (a @ b.T) ** 2, a @ c.T

    rights = {"long": long, "branch": branch, "apart": squared, "fused": squared}
    return Case(lambda: two_products(m, k, shape=shape), tensors, outputs, rights[shape], 0.5 if shape in ("apart", "fused") else 2e-3)


def same(build: Callable[[], KernelOp], shape: tuple[int, int], kind: str = "bf16", factor: float = 1) -> Case:
    def right(x: Any) -> tuple[Any, ...]:
        return (factor * x,)

    return Case(build, ((kind, shape),), ((kind, shape),), right, 0)


def added(a: Any, b: Any, x: Any) -> tuple[Any, ...]:
    return (a @ b.T + 2 * x,)


CASES: dict[str, Case] = {
    "tma_ring": matmul(tma_ring, 512, 512, 1024),
    "tma_ring_ragged": matmul(tma_ring, 130, 136, 200),
    "tma_ring_one_step": matmul(tma_ring, 128, 128, 64),
    "tma_ring_five_stages": matmul(tma_ring, 256, 384, 64 * 23, stages=5),
    "tma_ring_pending": matmul(tma_ring, 512, 512, 1024, pending=1),
    "tma_ring_pending_one_step": matmul(tma_ring, 128, 128, 64, pending=1),
    "consumers": matmul(consumers, 512, 768, 1024),
    "consumers_ragged": matmul(consumers, 1000, 1016, 4104),
    "consumers_one_step": matmul(consumers, 128, 256, 64),
    "consumers_unpeeled": matmul(consumers, 512, 768, 1024, peeled=False),
    "consumers_pending": matmul(consumers, 512, 768, 1024, pending=1),
    "consumers_pending_one_step": matmul(consumers, 300, 512, 64, pending=1),
    "consumers_many_tiles": matmul(consumers, 2048, 4096, 256),
    "consumers_stored": matmul(consumers, 512, 768, 1024, kind="bf16", stages=3, stored=True),
    "consumers_stored_ragged": matmul(consumers, 1000, 1016, 520, kind="bf16", stages=3, stored=True),
    "consumers_stored_many_tiles": matmul(consumers, 2048, 4096, 256, kind="bf16", stages=3, stored=True),
    "cooperative": matmul(consumers, 512, 768, 1024, kind="bf16", stages=3, stored=True, cooperative=True),
    "ping_pong": matmul(ping_pong, 1024, 1024, 1024),
    "ping_pong_odd": matmul(ping_pong, 384, 128, 320),
    "ping_pong_many_tiles": matmul(ping_pong, 2048, 4096, 256),
    "cp_async": matmul(cp_async_ring, 512, 512, 1024),
    "cp_async_ragged": matmul(cp_async_ring, 130, 131, 202),
    "cp_async_five_stages": matmul(cp_async_ring, 200, 136, 1000, stages=5),
    "store_ring": same(lambda: store_ring(256, 512), (256, 512), factor=2),
    "store_ring_ragged": same(lambda: store_ring(100, 1000), (100, 1000), factor=2),
    "store_ring_three": same(lambda: store_ring(256, 1024, 3), (256, 1024), factor=2),
    "apart": products(256, 64, "apart"),
    "branch": products(256, 64, "branch"),
    "long": products(256, 64, "long"),
    "fused": products(256, 1024, "fused"),
    "added": Case(
        lambda: added_product(200),
        (("bf16", (200, 64)), ("bf16", (128, 64)), ("f32", (200, 128))),
        (("f32", (200, 128)),),
        added,
    ),
    "matrix_loads": same(lambda: matrix_loads((64, 128), (1, 0)), (64, 128)),
    "matrix_loads_turned": same(lambda: matrix_loads((64, 64), (0, 1)), (64, 64)),
    "matrix_loads_two_groups": same(lambda: matrix_loads((128, 96), (1, 0), warps=(2, 1), row_bytes=64), (128, 96)),
    "matrix_stores": same(lambda: matrix_stores((64, 128), (1, 0)), (64, 128)),
    "matrix_stores_turned": same(lambda: matrix_stores((64, 64), (0, 1)), (64, 64)),
    "matrix_stores_two_groups": same(lambda: matrix_stores((128, 96), (1, 0), warps=(2, 1), row_bytes=64), (128, 96)),
    "group_turns": same(lambda: group_turns(5), (32, 32), "f32", 2),
}
