"""Hand-written tile kernels on a real GPU: layouts of matrix instructions, swizzles, tensor copies, shuffles, predicates."""

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from targets.tile_kernels import converted, fma_matmul, softmax, vector_add, warp_conversions, wgmma_matmul

from treadle.artifact import Buffer, Kernel, KernelArg, Launch, Manifest, PointerValue, ScalarValue, TensorMapValue, TensorRecord
from treadle.dialects.tile import KernelOp
from treadle.ir.dialects import builtin
from treadle.plan import expr
from treadle.runtime.cuda import CudaDevice
from treadle.targets.interface import IndexParam, PointerParam
from treadle.targets.registry import backend

BF16, F16, F32 = builtin.bf16, builtin.f16, builtin.f32
_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f8E4M3FN": 1, "i8": 1, "i32": 4}


def run(
    hopper: CudaDevice,
    kernel: KernelOp,
    inputs: Sequence[tuple[str, Any]],
    output: tuple[str, tuple[int, ...]],
    symbols: Sequence[int] = (),
) -> Any:
    """Compile and launch one kernel of `inputs` (MLIR type name, array) and one output."""
    target = backend("sm_90a")
    compiled = target.assemble(target.emit(kernel))
    emitted, facts = compiled.emitted, compiled.facts
    env = dict(zip(kernel.symbol_names(), symbols, strict=True))

    def number(text: str) -> int:
        return expr.parse(text).evaluate(env)

    def record(name: str, kind: str, shape: tuple[int, ...], buffer: str) -> TensorRecord:
        return TensorRecord(name, kind, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))), buffer)

    tensors = [(kind, tuple(array.shape)) for kind, array in inputs] + [output]
    names = [f"b{i}" for i in range(len(tensors))]
    arguments: list[KernelArg] = []
    values: list[PointerValue | ScalarValue | TensorMapValue] = []
    for param, offset in zip(emitted.params, facts.param_offsets, strict=True):
        if isinstance(param, PointerParam):
            arguments.append(KernelArg("pointer", offset))
            values.append(PointerValue(names[param.arg]))
        elif isinstance(param, IndexParam):
            arguments.append(KernelArg("i32", offset))
            values.append(ScalarValue(symbols[param.arg - len(tensors)]))
        else:
            arguments.append(KernelArg("tensor_map", offset))
            dims, strides = (tuple(number(str(n)) for n in row) for row in (param.map.global_dim, param.map.global_stride_bytes))
            values.append(TensorMapValue(names[param.arg], param.map.with_sizes(dims, strides), param.byte_offset))
    x, y, z = (number(g) for g in emitted.grid)
    manifest = Manifest(
        treadle="0",
        target="sm_90a",
        function="test",
        dims={},
        inputs=tuple(record(f"x{i}", kind, shape, names[i]) for i, (kind, shape) in enumerate(tensors[:-1])),
        outputs=(record("r0", *output, names[-1]),),
        buffers=tuple(
            Buffer(name, "output" if name == names[-1] else "input", prod(shape) * _BYTES[kind], 16)
            for name, (kind, shape) in zip(names, tensors, strict=True)
        ),
        kernels=(
            Kernel("k0", emitted.symbol, "k0", emitted.block, emitted.cluster, emitted.shared_bytes, facts.param_bytes, tuple(arguments)),
        ),
        launches=(Launch("k0", (x, y, z), tuple(values)),),
    )
    program = hopper.load(manifest, {"k0": compiled.binary})
    (result,) = program(*(array for _, array in inputs))
    return result.numpy()


def normal(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("count", [1, 511, 512, 100_003])
def test_vector_add(hopper: CudaDevice, count: int) -> None:
    x, y = normal((count,), np.float32, 0), normal((count,), np.float32, 1)
    # Rows of 4 may be accessed at once only where the array's end allows it.
    width = 4 if count % 4 == 0 else 1
    found = run(hopper, vector_add(F32, width), [("f32", x), ("f32", y)], ("f32", (count,)), [count])
    np.testing.assert_array_equal(found, x + y)


@pytest.mark.parametrize(("rows", "columns"), [(77, 1000), (3, 1), (5, 1023)])
def test_softmax(hopper: CudaDevice, rows: int, columns: int) -> None:
    x = normal((rows, columns), np.float32, 2)
    found = run(hopper, softmax(rows, columns, 1024), [("f32", x)], ("f32", (rows, columns)))
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, wide / wide.sum(1, keepdims=True), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize(("m", "n", "k"), [(123, 77, 200), (64, 64, 16), (1, 3, 5)])
def test_fma_matmul(hopper: CudaDevice, m: int, n: int, k: int) -> None:
    a, b = normal((m, k), np.float32, 3), normal((k, n), np.float32, 4)
    found = run(hopper, fma_matmul(m, n, k, F32), [("f32", a), ("f32", b)], ("f32", (m, n)))
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@pytest.mark.parametrize("kind", ["f32", "f16", "i8"])
@pytest.mark.parametrize("name", sorted(warp_conversions()))
def test_conversions_by_shuffles(hopper: CudaDevice, name: str, kind: str) -> None:
    element, dtype = {"f32": (F32, np.float32), "f16": (F16, np.float16), "i8": (builtin.i8, np.int8)}[kind]
    source, result = warp_conversions()[name]
    x: Any = np.arange(prod(source.shape)).reshape(source.shape).astype(dtype)
    found = run(hopper, converted(element, source, result), [(kind, x)], (kind, source.shape))
    np.testing.assert_array_equal(found, x)


MATMULS: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
    ("plain", (256, 256, 512), {}),
    ("ragged", (130, 136, 200), {}),
    ("wide", (256, 512, 256), {"tile_shape": (128, 256, 64)}),
    ("two_m_tiles", (512, 128, 256), {"tile_shape": (256, 64, 64)}),
    ("warpgroups_along_n", (128, 512, 256), {"tile_shape": (64, 256, 64), "warp_grid": (1, 2)}),
    ("four_warpgroups", (256, 256, 256), {"tile_shape": (128, 128, 64), "warp_grid": (2, 2)}),
    ("rows_of_64_bytes", (256, 192, 256), {"tile_shape": (128, 96, 32), "row_bytes": 64}),
    ("rows_of_32_bytes", (128, 64, 96), {"tile_shape": (128, 64, 16), "row_bytes": 32}),
    ("deep_k", (128, 128, 512), {"tile_shape": (128, 128, 128)}),
    ("mn_major_b", (256, 256, 512), {"b_transposed": False}),
    ("mn_major_b_ragged", (130, 136, 200), {"b_transposed": False}),
    ("mn_major_b_64_bytes", (128, 128, 64), {"b_transposed": False, "row_bytes": 64, "tile_shape": (128, 64, 32)}),
    ("registers", (123, 457, 1001), {"copies": False}),
    ("registers_mn_major", (123, 457, 1001), {"copies": False, "b_transposed": False}),
]


@pytest.mark.parametrize(("shape", "facts"), [(m[1], m[2]) for m in MATMULS], ids=[m[0] for m in MATMULS])
def test_wgmma_bf16(hopper: CudaDevice, shape: tuple[int, int, int], facts: dict[str, Any]) -> None:
    m, n, k = shape
    is_transposed = facts.get("b_transposed", True)
    a = normal((m, k), ml_dtypes.bfloat16, 5)
    b = normal((n, k) if is_transposed else (k, n), ml_dtypes.bfloat16, 6)
    found = run(hopper, wgmma_matmul(m, n, k, BF16, **facts), [("bf16", a), ("bf16", b)], ("f32", (m, n)))
    right = b.astype(np.float64)
    np.testing.assert_allclose(found, a.astype(np.float64) @ (right.T if is_transposed else right), atol=1e-3)


TYPES: list[tuple[str, Any, Any, str, tuple[int, int, int], float]] = [
    ("f16", F16, np.float16, "wgmma_m64k16_f32_f16_f16", (128, 128, 64), 1e-3),
    ("f32", F32, np.float32, "wgmma_m64k8_f32_tf32_tf32", (128, 128, 32), 0.2),
    ("f8E4M3FN", builtin.Float8E4M3FNType(), ml_dtypes.float8_e4m3fn, "wgmma_m64k32_f32_f8E4M3FN_f8E4M3FN", (128, 128, 128), 0.2),
    ("i8", builtin.i8, np.int8, "wgmma_m64k32_i32_i8_i8", (128, 128, 128), 0),
]


@pytest.mark.parametrize(("name", "element", "dtype", "instruction", "tile_shape", "tolerance"), TYPES, ids=[t[0] for t in TYPES])
def test_wgmma_types(
    hopper: CudaDevice, name: str, element: Any, dtype: Any, instruction: str, tile_shape: tuple[int, int, int], tolerance: float
) -> None:
    m, n, k = 192, 256, 512
    a, b = ((10 * normal(s, np.float64, i)).astype(dtype) if name == "i8" else normal(s, dtype, i) for i, s in ((7, (m, k)), (8, (n, k))))
    is_int = name == "i8"
    kernel = wgmma_matmul(
        m, n, k, element, tile_shape=tile_shape, instruction=instruction, accumulator_type=builtin.i32 if is_int else None
    )
    found = run(hopper, kernel, [(name, a), (name, b)], ("i32" if is_int else "f32", (m, n)))
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64).T, atol=tolerance, rtol=0)
