"""Rows that begin between multiples of 16 bytes, by a descriptor for each remainder: what the hardware does with the maps, in NumPy, is the
tile where the buffer's layout has it.
"""

import random

import numpy as np
import pytest

from treadle import pipelines
from treadle.bench.named_shapes import named_workload
from treadle.dialects.tile import CopyOp, KernelOp, ViewOp, ints, memref_type, shared_layout_of
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.expr import as_expr
from treadle.targets.nvidia.copy_plan import CopyPlan
from treadle.targets.nvidia.remainders import ALIGN
from treadle.targets.nvidia.swizzle import SLOT_ALIGN
from treadle.targets.nvidia.tensor_map import plan_copy
from treadle.targets.simt.types import element_bytes

SPEC = target_spec("sm_90a")


def kernels(name: str, options: CompileOptions) -> list[KernelOp]:
    workload = named_workload(name)
    assert workload is not None
    module = parse_module(workload.text, "test.mlir")
    pipelines.lower(module, SPEC, options)
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def plans(name: str, options: CompileOptions) -> list[tuple[CopyOp, CopyPlan]]:
    assert SPEC.bulk_tensor is not None
    found: list[tuple[CopyOp, CopyPlan]] = []
    for kernel in kernels(name, options):
        copies = [op for op in kernel.walk() if isinstance(op, CopyOp) and op.is_bulk]
        found += [(op, plan_copy(kernel, op, SPEC.bulk_tensor)) for op in copies]
    return found


def check_copy(op: CopyOp, plan: CopyPlan, generator: random.Random) -> None:
    view = op.view.owner
    assert isinstance(view, ViewOp)
    sizes, strides = ([int(v) for v in row if isinstance(v, int)] for row in (view.size_values(), view.stride_values()))
    buffer, layout = memref_type(op.destination), shared_layout_of(op.destination)
    size, dims, shape = element_bytes(buffer.element_type), ints(op.dims), buffer.get_shape()
    column, row = plan.view_dims[:2]
    extents = dict(zip(dims, shape, strict=True))
    array = np.arange(1, 2 + int(np.dot([s - 1 for s in sizes], strides)), dtype=np.int64)
    at = [generator.randrange(extent) for extent in sizes]
    at[row] = generator.randrange(-(-sizes[row] // extents[row])) * extents[row]
    last = sizes[column] // extents[column]
    at[column] = generator.choice([0, last, generator.randrange(last)]) * extents[column]
    wanted = np.zeros(shape, dtype=np.int64)
    for index in np.ndindex(*shape):
        place = list(at)
        for dim, offset in zip(dims, index, strict=True):
            place[dim] += offset
        if all(p < s for p, s in zip(place, sizes, strict=True)):
            wanted[index] = array[int(np.dot(place, strides))]
    found = np.zeros(layout.size, dtype=np.int64)
    starts = [at[dim] for dim in plan.view_dims]
    starts[1] //= plan.apart
    for box in plan.boxes:
        param = plan.params[box.map]
        ends = [as_expr(extent).as_int() or 0 for extent in param.map.global_dim]
        pitches = [size, *(as_expr(pitch).as_int() or 0 for pitch in param.map.global_stride_bytes)]
        assert param.byte_offset % ALIGN == 0 and not any(pitch % ALIGN for pitch in pitches[1:])
        assert min(ends) > 0
        width, height = param.map.box_dim[:2]
        assert box.byte_offset % SLOT_ALIGN[param.map.swizzle] == 0 and param.map.swizzle == "128B" and width * size == 128
        for y in range(height):
            for x in range(width):
                place = [start + own for start, own in zip(starts, box.start, strict=True)]
                place[0], place[1] = place[0] + x, place[1] + y
                inside = all(0 <= p < extent for p, extent in zip(place, ends, strict=True))
                bytes_on = param.byte_offset + sum(p * pitch for p, pitch in zip(place, pitches, strict=True))
                target = box.byte_offset + y * 128 + ((x * size // 16) ^ ((box.byte_offset // 128 + y) % 8)) * 16 + x * size % 16
                assert found[target // size] == 0
                found[target // size] = array[bytes_on // size] if inside else 0
    for index in np.ndindex(*shape):
        assert found[layout.offset_of(index)] == wanted[index], index


CASES = {
    "gemm-bf16-nn-123x456x51234": 4,
    "gemm-f16-nn-128x512x5001": 8,
    "gemm-bf16-nn-200x136x9004": 2,
    "gemm-f16-nn-3x200x264x9010": 4,
    "gemm-bf16-nt-123x456x51233": 8,
    "gemm-f16-nt-77x190x9002": 4,
}


@pytest.mark.parametrize(("name", "apart"), CASES.items())
def test_rows_come_by_their_remainders(name: str, apart: int) -> None:
    found = plans(name, CompileOptions(form="roles", tile=(64, 128, 64), warps=(4, 1), num_stages=4, consumer_warpgroups=2))
    several = [(op, plan) for op, plan in found if plan.apart > 1]
    assert several and all(plan.apart == apart for _, plan in several)
    generator = random.Random(0)
    for op, plan in several:
        assert len(plan.params) == apart
        for _ in range(2):
            check_copy(op, plan, generator)


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int) -> None:
    generator = random.Random(seed)
    m, n, k = generator.randrange(20, 400), 8 * generator.randrange(8, 50), generator.randrange(3000, 9000)
    kind = generator.choice(["f16", "bf16", "f32"])
    options = CompileOptions(f32_precision=generator.choice(["tf32", "bf16x6"]) if kind == "f32" else "ieee")
    for op, plan in plans(f"gemm-{kind}-{generator.choice(['nn', 'nt'])}-{m}x{n}x{k}", options):
        if plan.apart > 1:
            check_copy(op, plan, generator)


def test_what_no_remainders_bring() -> None:
    asked = CompileOptions(form="roles", tile=(64, 128, 64), warps=(4, 1), num_stages=4)
    assert all(plan.apart == 1 for _, plan in plans("gemm-bf16-nn-123x456x5120", asked))
    # Matrices of a batch begin between multiples of 16 bytes.
    assert all(plan.apart == 1 for _, plan in plans("gemm-bf16-nn-3x123x456x5001", asked))
    # Fewer rows than remainders.
    assert all(plan.apart == 1 for _, plan in plans("gemm-bf16-nn-3x456x5001", asked))
    # Rows of a byte each would be sixteen.
    assert all(plan.apart == 1 for _, plan in plans("gemm-f8E4M3FN-nt-123x456x5001", CompileOptions()))
