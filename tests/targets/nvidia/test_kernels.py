"""Kernels through LLVM and ptxas to audited machine code, and the descriptors and tensor maps they rest on."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from targets.tile_kernels import converted, copy_only, fma_matmul, softmax, vector_add, warp_conversions, wgmma_matmul
from transforms.role_kernels import kernel_of

from treadle.artifact import TensorMap
from treadle.dialects.tile import CopyOp, KernelOp
from treadle.errors import InternalError, KernelRejected
from treadle.ir.dialects import builtin
from treadle.layout.fragments import tile_fragment
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled
from treadle.layout.tile_layout import blocked
from treadle.machine import target_spec
from treadle.machine.fragments import wgmma_accumulator
from treadle.options import CompileOptions
from treadle.plan.expr import symbol
from treadle.targets.interface import CompiledKernel, ExpectedFacts, IndexParam, PointerParam, TensorMapParam
from treadle.targets.nvidia.audit import audit, instruction_counts
from treadle.targets.nvidia.backend import param_offsets
from treadle.targets.nvidia.swizzle import recognise
from treadle.targets.nvidia.tensor_map import plan_copy
from treadle.targets.nvidia.toolchain import KernelResources
from treadle.targets.nvidia.wgmma import accumulator_tiles
from treadle.targets.registry import backend

BF16, F16, F32 = builtin.bf16, builtin.f16, builtin.f32
SPEC = target_spec("sm_90a")


def compiled(kernel: KernelOp) -> CompiledKernel:
    target = backend("sm_90a")
    return target.assemble(target.emit(kernel))


@lru_cache(maxsize=1)
def wide_matmul() -> CompiledKernel:
    return compiled(wgmma_matmul(4096, 4096, 4096, BF16, tile_shape=(128, 256, 64), result=BF16))


def test_vector_add_uses_wide_predicated_accesses() -> None:
    kernel = compiled(vector_add(F32, 4))
    assert kernel.facts.spill_bytes == kernel.facts.stack_bytes == 0
    assert kernel.assembly.count("ld.global.nc.v4.b32") == 2
    assert kernel.assembly.count("st.global.v4.b32") == 1
    assert kernel.emitted.grid == ("(s0 + 511) // 512", "1", "1")
    assert kernel.emitted.params == (PointerParam(0), PointerParam(1), PointerParam(2), IndexParam(3))
    assert kernel.facts.param_offsets == (0, 8, 16, 24)


def test_narrow_types_use_wide_accesses_too() -> None:
    kernel = compiled(vector_add(BF16, 8))
    assert kernel.assembly.count("ld.global.nc.v4.b32") == 2
    assert kernel.facts.instructions["LDG"] == 2 and kernel.facts.instructions["STG"] == 1


def test_softmax_reduces_by_shuffles() -> None:
    kernel = compiled(softmax(77, 1000, 1024))
    assert kernel.facts.instructions["SHFL"] == 10  # twice five steps
    assert kernel.emitted.shared_bytes == 0


@pytest.mark.parametrize(("name", "count"), [("transposed", 62), ("one_bit", 2), ("lanes_turned", 6)])
def test_conversions_within_warps_are_shuffles(name: str, count: int) -> None:
    kernel = compiled(converted(F32, *warp_conversions()[name]))
    assert kernel.facts.instructions["SHFL"] == count
    assert kernel.emitted.shared_bytes == 0 and kernel.facts.spill_bytes == 0


def test_fma_contraction_stays_in_registers() -> None:
    kernel = compiled(fma_matmul(123, 77, 200, F32))
    assert kernel.facts.instructions["FFMA"] >= 512
    assert kernel.facts.spill_bytes == 0 and "STL" not in kernel.facts.instructions
    assert kernel.emitted.shared_bytes == 2 * 64 * 16 * 4


def test_wgmma_with_tensor_copies() -> None:
    kernel = wide_matmul()
    counts = kernel.facts.instructions
    assert counts["HGMMA"] == 4 and counts["UTMALDG"] == 2
    assert kernel.facts.registers <= 168 and not counts.keys() & {"LDL", "STL"}
    assert kernel.emitted.shared_bytes == (128 + 256) * 64 * 2 + 8
    maps = [p.map for p in kernel.emitted.params if isinstance(p, TensorMapParam)]
    assert [m.box_dim for m in maps] == [(64, 128), (64, 256)]
    assert [m.global_dim for m in maps] == [(4096, 4096)] * 2
    assert [m.swizzle for m in maps] == ["128B"] * 2
    assert kernel.facts.param_offsets == (0, 8, 16, 64, 192)


def test_descriptors_stay_in_uniform_registers() -> None:
    """No move from vector to uniform registers in the loop: the only one is the warp's number."""
    assert wide_matmul().facts.instructions["R2UR"] == 1


CASES: list[tuple[str, Any, int]] = [
    ("two_m_tiles", lambda: wgmma_matmul(512, 512, 512, BF16, tile_shape=(256, 64, 64), result=BF16), 8),
    ("warpgroups_along_n", lambda: wgmma_matmul(512, 512, 512, BF16, tile_shape=(64, 256, 64), warp_grid=(1, 2), result=BF16), 4),
    ("one_warpgroup", lambda: wgmma_matmul(100, 264, 512, BF16, tile_shape=(64, 32, 64), warp_grid=(1, 1)), 4),
    ("odd_n_tile", lambda: wgmma_matmul(512, 480, 512, BF16, tile_shape=(128, 96, 32), row_bytes=64), 2),
    ("mn_major_b", lambda: wgmma_matmul(512, 512, 512, F16, b_transposed=False, instruction="wgmma_m64k16_f32_f16_f16", result=F16), 4),
    ("through_registers", lambda: wgmma_matmul(123, 457, 1001, BF16, copies=False, b_transposed=False, result=BF16), 4),
    ("tf32", lambda: wgmma_matmul(512, 512, 512, F32, tile_shape=(128, 128, 32), instruction="wgmma_m64k8_f32_tf32_tf32"), 4),
    (
        "fp8",
        lambda: wgmma_matmul(
            512, 512, 512, builtin.Float8E4M3FNType(), tile_shape=(128, 128, 128), instruction="wgmma_m64k32_f32_f8E4M3FN_f8E4M3FN"
        ),
        4,
    ),
    (
        "i8",
        lambda: wgmma_matmul(
            512,
            512,
            512,
            builtin.i8,
            tile_shape=(128, 128, 128),
            instruction="wgmma_m64k32_i32_i8_i8",
            accumulator_type=builtin.i32,
        ),
        4,
    ),
]


@pytest.mark.parametrize(("build", "count"), [(c[1], c[2]) for c in CASES], ids=[c[0] for c in CASES])
def test_matrix_instructions(build: Any, count: int) -> None:
    facts = compiled(build()).facts
    assert sum(facts.instructions.get(name, 0) for name in ("HGMMA", "QGMMA", "IGMMA")) == count
    assert facts.spill_bytes == facts.stack_bytes == 0


def test_traps_of_the_text() -> None:
    """What the research on this chip found necessary: grid_constant maps, convergent asm, waits that carry the accumulators."""
    text = backend("sm_90a").emit(wgmma_matmul(256, 256, 256, BF16)).llvm_text
    assert text.count('"nvvm.grid_constant"') == 2
    for line in text.splitlines():
        if "wgmma" in line or "cp.async" in line or "bar.sync" in line or "mbarrier" in line:
            if " asm " in line:
                group = line.rsplit("#", 1)[1].split(",")[0]
                assert "convergent" in next(at for at in text.splitlines() if at.startswith(f"attributes #{group} "))


@pytest.mark.parametrize("cluster", [1, 2])
def test_descriptors_of_clusters_leave_the_rank_out(cluster: int) -> None:
    """A workgroup's shared addresses begin with its rank in the cluster; in a descriptor it would be a part of the leading byte offset."""
    options = CompileOptions(tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3)
    text = backend("sm_90a").emit(kernel_of(512, 256, 128, options, workgroups=4, cluster=cluster)).llvm_text
    assert ("and i32" in text and ", 262143" in text) == (cluster > 1)


@pytest.mark.parametrize(("k", "carried"), [(64, 64), (128, 0), (256, 0)])
def test_waits_carry_what_could_be_read_before_them(k: int, carried: int) -> None:
    """Around a loop and out of it nothing moves; out of a loop that makes one trip it may."""
    text = backend("sm_90a").emit(wgmma_matmul(256, 256, k, BF16)).llvm_text
    wait = next(line for line in text.splitlines() if "wait_group" in line)
    assert wait.count("=f") == carried and "sideeffect" in wait


# --- the parts


def test_an_unknown_shared_layout_is_named() -> None:
    with pytest.raises(InternalError, match="knows no such shared layout"):
        recognise(SharedLayout(((1, 0), (0, 1), (2, 0), (0, 2)), (1, 1)), 2)
    with pytest.raises(InternalError, match="without a swizzle"):
        backend("sm_90a").emit(wgmma_matmul(256, 256, 256, BF16, a_shared=row_major((128, 64), (1, 0))))


@pytest.mark.parametrize("shape", [(128, 64), (192, 128), (24, 64), (512, 192)])
def test_boxes_of_a_copy_fill_the_buffer_once(shape: tuple[int, int]) -> None:
    """The hardware writes a box as rows of the swizzle's width, one after the other: together the boxes are the buffer."""
    layout = swizzled(shape, (1, 0), 2, 128)
    kernel = copy_only(shape, BF16, layout)
    copy = next(op for op in kernel.body.walk() if isinstance(op, CopyOp))
    assert SPEC.bulk_tensor is not None
    plan = plan_copy(kernel, copy, SPEC.bulk_tensor)
    assert plan.param.map.global_dim == (4096, symbol("s0")) and plan.param.map.global_stride_bytes == (8192,)
    width, height = plan.param.map.box_dim
    assert width == 64 and height <= 256
    seen = np.zeros(shape, int)
    for box in plan.boxes:
        for row in range(height):
            for chunk in range(8):  # 16 bytes each; chunk index ^= row, counted from the (1024-byte aligned) box
                offset = box.byte_offset + row * 128 + ((chunk ^ (row & 7)) << 4)
                at = (box.start[1] + row, box.start[0] + chunk * 8)
                assert layout.offset_of(at) * 2 == offset
                seen[at[0], at[1] : at[1] + 8] += 1
    assert (seen == 1).all()


def test_accumulators_are_cut_into_wide_instructions() -> None:
    row = SPEC.instruction("wgmma_m64k16_f32_bf16_bf16")
    tiles = accumulator_tiles(tile_fragment(wgmma_accumulator(96), (256, 96), (2, 1)), row)
    assert [(t.m, t.n, t.width) for t in tiles] == [(0, 0, 96), (128, 0, 96)]
    tiles = accumulator_tiles(tile_fragment(wgmma_accumulator(64), (64, 512), (1, 2)), row)
    assert sum(t.width for t in tiles) == 256
    with pytest.raises(InternalError, match="accumulator of"):
        accumulator_tiles(blocked((128, 64), (1, 0), 4, 32, 4), row)


def test_parameter_offsets_follow_the_abi() -> None:
    tensor_map = TensorMapParam(0, TensorMap("bf16", (1, 1), (2,), (64, 64), (1, 1), "128B"))
    assert param_offsets([PointerParam(0), IndexParam(1), IndexParam(2), tensor_map, PointerParam(3)]) == ((0, 8, 12, 64, 192), 200)
    assert param_offsets([IndexParam(0), IndexParam(1, 64), IndexParam(2)]) == ((0, 8, 16), 20)


# --- the audit sees what it must


def _resources(**changes: int) -> KernelResources:
    return replace(KernelResources("k", 100, 0, 0, 0, 0), **changes)


def test_audit_refuses_bad_machine_code() -> None:
    emitted = replace(wide_matmul().emitted, expected=ExpectedFacts(4, 2, True))
    good = {"HGMMA": 4, "UTMALDG": 2}
    audit(emitted, _resources(), (), good)
    with pytest.raises(KernelRejected, match=r"wgmma_matmul.*adds a fence"):
        audit(emitted, _resources(), ("(C7519) warpgroup.arrive is injected in around line 284 by compiler",), good)
    with pytest.raises(KernelRejected, match=r"wgmma_matmul.*serialises"):
        audit(emitted, _resources(), ("(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized",), good)
    for bad in (_resources(spill_store_bytes=4), _resources(stack_bytes=16)):
        with pytest.raises(KernelRejected, match="registers do not hold"):
            audit(emitted, bad, (), good)
    with pytest.raises(KernelRejected, match="local accesses"):
        audit(emitted, _resources(), (), {**good, "LDL": 1})
    with pytest.raises(KernelRejected, match="3 matrix instructions"):
        audit(emitted, _resources(), (), {**good, "HGMMA": 3})
    with pytest.raises(KernelRejected, match="1 tensor copies"):
        audit(emitted, _resources(), (), {**good, "UTMALDG": 1})


def test_mnemonics_are_counted_behind_predicates() -> None:
    sass = """
        /*0010*/               @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                    LDG.E R4 ;
        /*0030*/              @!UP0 UIADD3 UR7 ;
"""
    assert instruction_counts(sass) == {"LDG": 2, "UIADD3": 1}
