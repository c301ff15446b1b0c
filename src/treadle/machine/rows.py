"""The rows: one `TargetSpec` an architecture.

Sources: vendor ISA manuals and programming guides; figures measured on an H200 where they are (research notes of the project).
"""

from functools import partial

from treadle.machine import fragments
from treadle.machine.products import default_product
from treadle.machine.queues import Queue, WaitField
from treadle.machine.spec import BulkTensorCopy, FragmentLayouts, MatrixInstruction, OperandSpace, RegisterMoves, SharedBanks, TargetSpec

_SHARED: tuple[OperandSpace, ...] = ("shared",)
_REGISTERS: tuple[OperandSpace, ...] = ("registers",)
_EITHER: tuple[OperandSpace, ...] = ("shared", "registers")


def _wgmma(a: str, b: str, acc: str, k: int, *, n_step: int = 8, k_major_only: bool) -> MatrixInstruction:
    name = f"wgmma_m64k{k}_{acc}_{a}_{b}"
    floats = acc == "f32"
    # Tensor cores align products to the largest and cut: 8-bit floats keep 14 bits (the FP8 notes of DeepSeek-V3 and SageAttention2).
    bits = 14 if floats and k == 32 else 24
    # K is 32 bytes of operands, whatever their type. A may come from registers.
    layouts = FragmentLayouts(fragments.wgmma_accumulator, partial(fragments.wgmma_a, 32 // k))
    return MatrixInstruction(name, a, b, acc, 64, 256, k, (_EITHER, _SHARED), layouts, "wgmma", 4, n_step, k_major_only, 128, floats, bits)


_FP8 = ("f8E4M3FN", "f8E5M2")

SM_90A = TargetSpec(
    name="sm_90a",
    vendor="nvidia",
    description="NVIDIA Hopper (H100, H200)",
    subgroup_size=32,
    product=default_product("sm_90a"),
    shared_bytes_per_workgroup=227 * 1024,
    shared_bytes_beside_cache=195 * 1024,
    shared_bytes_per_unit=228 * 1024,
    registers_per_unit=65536,
    max_registers_per_thread=255,
    max_threads_per_workgroup=1024,
    max_threads_per_unit=2048,
    max_vector_bytes=16,
    banks=SharedBanks(32, 4),
    matrix_instructions=(
        _wgmma("f16", "f16", "f32", 16, k_major_only=False),
        _wgmma("bf16", "bf16", "f32", 16, k_major_only=False),
        _wgmma("tf32", "tf32", "f32", 8, k_major_only=True),
        *(_wgmma(a, b, "f32", 32, k_major_only=True) for a in _FP8 for b in _FP8),
        _wgmma("i8", "i8", "i32", 32, n_step=32, k_major_only=True),
    ),
    bulk_tensor=BulkTensorCopy(
        16,
        16,
        256,
        5,
        (128, 64, 32),
        shared_align_bytes=1024,
        barrier_bytes=8,
        # PTX ISA, "Tensor copy modes": bounding boxes and offsets of im2col copies.
        walk_corner_bits=(16, 8, 5),
        walk_offset_bits=(16, 8, 5),
    ),
    # PTX ISA, wgmma.wait_group, cp.async.wait_group, cp.async.bulk.wait_group. ptxas that meets accumulators in flight at a branch may give
    # up on them (C7515) and wait for each instruction.
    queues=(
        Queue("wgmma", "matrix", "warpgroup", is_committed=True, max_pending=7, ends_at_branches=True),
        Queue("cp_async", "copy_in", "thread", is_committed=True, is_ordered=False, path="cp_async", piece_bytes=(16, 8, 4), shifts=True),
        Queue("bulk_store", "copy_out", "elected", is_committed=True, is_ordered=False, tells_reads=True),
    ),
    overlapping_launches=True,
    shifts_loads=True,
    named_barriers=15,
    max_cluster=8,
    # PTX ISA, setmaxnreg. Index arithmetic on sizes that only the runtime knows does not fit 40 registers.
    register_moves=RegisterMoves(
        4,
        8,
        fewest=24,
        most=256,
        split=(40, 232),
        index_split=(56, 224),
        copy_split=(88, 208),
        shift_split=(152, 176),
        three_split=(56, 72, 192),
    ),
)


# LLVM's AMDGPU guide and the instruction set documents, S_WAITCNT: the counts' places differ by generation; 0xCF7F and 0xFFF7 wait for
# nothing. RDNA4 has an instruction for each count.
_GFX9_VECTOR = WaitField("s_waitcnt", ((0, 4), (14, 2)), 0xCF7F)
_GFX9_LOCAL = WaitField("s_waitcnt", ((8, 4),), 0xCF7F)
_GFX11_VECTOR = WaitField("s_waitcnt", ((10, 6),), 0xFFF7)
_GFX11_LOCAL = WaitField("s_waitcnt", ((4, 6),), 0xFFF7)


def _cdna_queues(lane_bytes: tuple[int, ...]) -> tuple[Queue, ...]:
    return (
        Queue("vmcnt", "copy_in", "warp", path="direct", wait=_GFX9_VECTOR, lane_bytes=lane_bytes),
        Queue("lgkmcnt", "local", "warp", max_pending=15, wait=_GFX9_LOCAL),
    )


_RDNA3_QUEUES = (
    Queue("vmcnt", "copy_in", "warp", wait=_GFX11_VECTOR),
    Queue("vscnt", "store", "warp", wait=WaitField("s_waitcnt_vscnt", ((0, 6),))),
    Queue("lgkmcnt", "local", "warp", wait=_GFX11_LOCAL),
)
_RDNA4_QUEUES = (
    Queue("loadcnt", "copy_in", "warp", wait=WaitField("s_wait_loadcnt", ((0, 6),))),
    Queue("storecnt", "store", "warp", wait=WaitField("s_wait_storecnt", ((0, 6),))),
    Queue("dscnt", "local", "warp", wait=WaitField("s_wait_dscnt", ((0, 6),))),
)


# llvm.amdgcn.sched.barrier: the classes that may cross it.
_FENCE_CLASSES = (
    ("alu", 0x1),
    ("vector_alu", 0x2),
    ("scalar_alu", 0x4),
    ("matrix", 0x8),
    ("global", 0x10),
    ("global_load", 0x20),
    ("global_store", 0x40),
    ("shared", 0x80),
    ("shared_load", 0x100),
    ("shared_store", 0x200),
    ("transcendental", 0x400),
)

# What may cross the borders of stages: nothing. Masks that let vector arithmetic cross let conversions of loads ahead; where only scalar
# arithmetic may, RDNA's loops with guarded loads still wait for them early (docs/audits.md has the figures).
# The CDNA3 instruction set document, buffer resource descriptors: elements of 32 bits, no stride, no swizzle.
_CDNA_BUFFER = 0x27000
# The RDNA3 and RDNA4 instruction set documents: besides, the reserved bit that has to be 1, and bounds that hold for offsets in bytes.
_RDNA_BUFFER = 0x31027000
_STAGE_FENCE: tuple[str, ...] = ()
_WIDEST_BYTES = 16
"""Of a lane's access to shared memory, on all of AMD's machines."""


def _packed_steps(operand: str, layouts: FragmentLayouts) -> int:
    """Steps along k of which a lane's operands together are one access of shared memory at its widest."""
    held = {"f32": 4, "f16": 2, "bf16": 2}.get(operand, 1) * (layouts.a().num_registers if layouts.a is not None else 1)
    return max(1, _WIDEST_BYTES // held)


def _mfma(shape: tuple[int, int, int], a: str, acc: str, *, b: str | None = None, cycles: int) -> MatrixInstruction:
    m, n, k = shape
    b = b or a
    suffix = a if a == b else f"{a}_{b}"
    name = f"mfma_{m}x{n}x{k}_{acc}_{suffix}"
    layouts = FragmentLayouts(lambda _: fragments.mfma_c(m), partial(fragments.mfma_a, m, k), partial(fragments.mfma_b, n, k))
    packed = _packed_steps(a, layouts)
    return MatrixInstruction(name, a, b, acc, m, n, k, (_REGISTERS, _REGISTERS), layouts, "mfma", cycles=cycles, packed_steps=packed)


_FNUZ = ("f8E4M3FNUZ", "f8E5M2FNUZ")

_CDNA_BANKS_32 = SharedBanks(32, 4)
_CDNA_BANKS_64 = SharedBanks(64, 4)

GFX942 = TargetSpec(
    name="gfx942",
    vendor="amd",
    description="AMD CDNA3 (MI300X, MI325X)",
    subgroup_size=64,
    product=default_product("gfx942"),
    shared_bytes_per_workgroup=64 * 1024,
    shared_bytes_per_unit=64 * 1024,
    registers_per_unit=4 * 512 * 64,
    max_registers_per_thread=512,
    max_threads_per_workgroup=1024,
    max_threads_per_unit=2048,
    max_vector_bytes=16,
    banks=_CDNA_BANKS_32,
    matrix_instructions=(
        _mfma((16, 16, 16), "f16", "f32", cycles=16),
        _mfma((16, 16, 16), "bf16", "f32", cycles=16),
        _mfma((16, 16, 32), "i8", "i32", cycles=16),
        *(_mfma((16, 16, 32), a, "f32", b=b, cycles=16) for a in _FNUZ for b in _FNUZ),
        _mfma((16, 16, 4), "f32", "f32", cycles=32),
    ),
    queues=_cdna_queues((4,)),  # a load to shared memory moves a register of each lane
    fence_classes=_FENCE_CLASSES,
    stage_fence=_STAGE_FENCE,
    pipelines_contractions=True,
    max_warps_per_workgroup=16,
    fma_registers=250,
    wide_integer_registers=24,
    vector_lanes=16,
    buffer_flags=_CDNA_BUFFER,
)

GFX950 = TargetSpec(
    name="gfx950",
    vendor="amd",
    description="AMD CDNA4 (MI350X, MI355X)",
    subgroup_size=64,
    product=default_product("gfx950"),
    shared_bytes_per_workgroup=160 * 1024,
    shared_bytes_per_unit=160 * 1024,
    registers_per_unit=4 * 512 * 64,
    max_registers_per_thread=512,
    max_threads_per_workgroup=1024,
    max_threads_per_unit=2048,
    max_vector_bytes=16,
    banks=_CDNA_BANKS_64,
    matrix_instructions=(
        _mfma((16, 16, 32), "f16", "f32", cycles=16),
        _mfma((16, 16, 32), "bf16", "f32", cycles=16),
        _mfma((16, 16, 64), "i8", "i32", cycles=16),
        *(_mfma((16, 16, 32), a, "f32", b=b, cycles=16) for a in _FP8 for b in _FP8),
        _mfma((16, 16, 4), "f32", "f32", cycles=32),
    ),
    queues=_cdna_queues((16, 4)),  # and of up to four
    fence_classes=_FENCE_CLASSES,
    stage_fence=_STAGE_FENCE,
    pipelines_contractions=True,
    max_warps_per_workgroup=16,
    fma_registers=250,
    wide_integer_registers=24,
    vector_lanes=16,
    buffer_flags=_CDNA_BUFFER,
)


_WMMA_LAYOUTS = {
    11: FragmentLayouts(lambda _: fragments.wmma_rdna3_c(), fragments.wmma_rdna3_a, fragments.wmma_rdna3_b),
    12: FragmentLayouts(lambda _: fragments.wmma_rdna4_c(), fragments.wmma_rdna4_a, fragments.wmma_rdna4_b),
}


def _wmma(generation: int, a: str, acc: str, *, b: str | None = None) -> MatrixInstruction:
    b = b or a
    name = f"wmma{generation}_16x16x16_{acc}_{a if a == b else f'{a}_{b}'}"
    cycles = 32 if generation < 12 else 16 if a in ("f16", "bf16") else 8
    return MatrixInstruction(name, a, b, acc, 16, 16, 16, (_REGISTERS, _REGISTERS), _WMMA_LAYOUTS[generation], "wmma", cycles=cycles)


_RDNA_BANKS = SharedBanks(64, 4)

GFX1100 = TargetSpec(
    name="gfx1100",
    vendor="amd",
    description="AMD RDNA3 (RX 7900, W7900)",
    subgroup_size=32,
    product=default_product("gfx1100"),
    shared_bytes_per_workgroup=64 * 1024,
    shared_bytes_per_unit=64 * 1024,
    registers_per_unit=2 * 1536 * 32,
    max_registers_per_thread=256,
    max_threads_per_workgroup=1024,
    max_threads_per_unit=1024,
    max_vector_bytes=16,
    banks=_RDNA_BANKS,
    matrix_instructions=(_wmma(11, "f16", "f32"), _wmma(11, "bf16", "f32"), _wmma(11, "i8", "i32")),
    queues=_RDNA3_QUEUES,
    fence_classes=_FENCE_CLASSES,
    stage_fence=_STAGE_FENCE,
    pipelines_contractions=True,
    buffer_flags=_RDNA_BUFFER,
    clock_bits=20,
    fma_registers=253,
    wide_integer_registers=24,
    register_granule=24,
    matrix_units=2,
)

GFX1201 = TargetSpec(
    name="gfx1201",
    vendor="amd",
    description="AMD RDNA4 (RX 9070)",
    subgroup_size=32,
    product=default_product("gfx1201"),
    shared_bytes_per_workgroup=64 * 1024,
    shared_bytes_per_unit=64 * 1024,
    registers_per_unit=2 * 1536 * 32,
    max_registers_per_thread=256,
    max_threads_per_workgroup=1024,
    max_threads_per_unit=1024,
    max_vector_bytes=16,
    banks=_RDNA_BANKS,
    matrix_instructions=(
        _wmma(12, "f16", "f32"),
        _wmma(12, "bf16", "f32"),
        _wmma(12, "i8", "i32"),
        *(_wmma(12, a, "f32", b=b) for a in _FP8 for b in _FP8),
    ),
    queues=_RDNA4_QUEUES,
    fence_classes=_FENCE_CLASSES,
    stage_fence=_STAGE_FENCE,
    pipelines_contractions=True,
    buffer_flags=_RDNA_BUFFER,
    fma_registers=253,
    wide_integer_registers=24,
    register_granule=24,
    matrix_units=2,
)

ROWS: tuple[TargetSpec, ...] = (SM_90A, GFX942, GFX950, GFX1100, GFX1201)
