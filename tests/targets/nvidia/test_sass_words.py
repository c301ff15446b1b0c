"""Machine code read from its bits agrees with nvdisasm, and what is not known or not clean is disassembled."""

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from targets.nvidia.reading import check_words
from targets.tile_kernels import fma_matmul, softmax, vector_add, wgmma_matmul

from treadle import driver
from treadle.bench import families
from treadle.bench.suite import find
from treadle.dialects.tile import KernelOp
from treadle.errors import KernelRejected
from treadle.ir.dialects import builtin
from treadle.options import CompileOptions
from treadle.targets.interface import CompiledKernel
from treadle.targets.nvidia import audit
from treadle.targets.nvidia.sass_words import Unknown, Word, decode
from treadle.targets.nvidia.toolchain import KernelResources, assemble_ptx
from treadle.targets.registry import backend

EXAMPLES = Path(__file__).parents[3] / "examples"
BF16, F16, F32 = builtin.bf16, builtin.f16, builtin.f32
KERNELS = {
    "vector_add": lambda: vector_add(F32),
    "softmax": lambda: softmax(77, 1000, 1024),
    "fma": lambda: fma_matmul(123, 77, 200, F32),
    "wgmma": lambda: wgmma_matmul(512, 512, 512, BF16, tile_shape=(128, 128, 64)),
    "wgmma_f16": lambda: wgmma_matmul(512, 512, 512, F16, tile_shape=(128, 40, 64)),
}
RESOURCES = KernelResources("k", 100, 0, 0, 0, 0)


def compiled(kernel: KernelOp) -> CompiledKernel:
    target = backend("sm_90a")
    return target.assemble(target.emit(kernel))


@pytest.mark.parametrize("name", KERNELS)
def test_bits_and_text_agree(name: str) -> None:
    kernel = compiled(KERNELS[name]())
    assert check_words(kernel.binary, kernel.symbol)


def wgmma(columns: int, kind: str, depth: int, tail: str) -> bytes:
    """A kernel with two matrix instructions in one group, and the waits that leave one and none pending."""
    count = columns // 2
    names = ",".join(f"%f{i}" for i in range(count))
    one = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kind}.{kind} {{{names}}}, a, b, {tail};"
    ptx = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 d) {{
.reg .f32 %f<{count + 1}>; .reg .b64 a, b, o; .reg .pred p;
ld.param.u64 a, [d]; ld.param.u64 o, [out]; mov.u64 b, a; setp.ne.u64 p, a, 0;
{"".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(count))}
wgmma.fence.sync.aligned; {one} {one} wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 1; wgmma.wait_group.sync.aligned 0;
{"".join(f"st.global.f32 [o+{4 * i}], %f{i};" for i in range(count))}
ret; }}"""
    return assemble_ptx(ptx, "sm_90a").cubin


@pytest.mark.parametrize("columns", [8, 88, 248])
@pytest.mark.parametrize(("kind", "depth", "tail"), [("f16", 16, "p, 1, 1, 0, 0"), ("e4m3", 32, "p, 1, 1")])
def test_shapes_of_matrix_instructions(columns: int, kind: str, depth: int, tail: str) -> None:
    assert check_words(wgmma(columns, kind, depth, tail), "k")


def never(cubin: bytes, *, lines: bool = False) -> NoReturn:
    raise AssertionError("disassembled")


def test_clean_code_is_not_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "disassemble_cubin", never)
    facts = compiled(KERNELS["wgmma"]()).facts
    assert facts.instructions["HGMMA"] >= 4


def test_findings_and_unknown_codes_are_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled(KERNELS["wgmma"]())
    more = replace(kernel.emitted, expected=replace(kernel.emitted.expected, matrix_instructions=1000))
    with pytest.raises(KernelRejected, match="1000 emitted"):
        audit.audited_counts(more, RESOURCES, (), kernel.binary, "")
    at = kernel.binary.index((0x79C5).to_bytes(2, "little"))
    changed = bytearray(kernel.binary)
    changed[at] = 0xFF
    assert decode(bytes(changed), kernel.symbol) is None
    monkeypatch.setattr(audit, "disassemble_cubin", never)
    for emitted, binary in ((more, kernel.binary), (kernel.emitted, bytes(changed))):
        with pytest.raises(AssertionError, match="disassembled"):
            audit.audited_counts(emitted, RESOURCES, (), binary, "")


def test_spills_are_ptxas_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next candidate is compiled at once, without half a second for the disassembly of one that is thrown away."""
    monkeypatch.setattr(audit, "disassemble_cubin", never)
    kernel = compiled(KERNELS["wgmma"]())
    with pytest.raises(KernelRejected, match=r"registers do not hold the tile .*16 bytes stored"):
        audit.audited_counts(kernel.emitted, replace(RESOURCES, spill_store_bytes=16), (), kernel.binary, "")


def test_what_is_no_cubin() -> None:
    assert decode(b"", "k") is None
    assert decode(b"\x7fELF\x01\x01", "k") is None
    kernel = compiled(KERNELS["vector_add"]())
    assert decode(kernel.binary, "other") is None


def test_forms_that_are_not_known() -> None:
    with pytest.raises(Unknown, match="0xabc"):
        Word(0, 0xABC, 0)
    with pytest.raises(Unknown, match="another form"):
        _ = Word(0, 0x79C5, 0x10000).pending
    with pytest.raises(Unknown, match="scoreboard 1"):
        _ = Word(0, 0x79F0, 1 << 20).closes_group
    assert Word(7, 0x947, 0x393FFFF).is_predicated  # a vote decides
    assert Word(0, 0xFFFFFFFC00F87947, 0x383FFFF).target == -1


def float64_exp(count: int) -> str:
    return f"""
func.func @f(%x: tensor<{count}xf64>) -> tensor<{count}xf64> {{
  %e = tensor.empty() : tensor<{count}xf64>
  %y = linalg.exp ins(%x : tensor<{count}xf64>) outs(%e : tensor<{count}xf64>) -> tensor<{count}xf64>
  return %y : tensor<{count}xf64>
}}
"""


def matmul_text(m: int, n: int, k: int) -> str:
    return f"""
func.func @matmul(%a: tensor<{m}x{k}xf16>, %b: tensor<{k}x{n}xf16>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %c = linalg.matmul ins(%a, %b : tensor<{m}x{k}xf16>, tensor<{k}x{n}xf16>) outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %c : tensor<{m}x{n}xf32>
}}
"""


def named(name: str) -> str:
    """The text of a workload that its name says."""
    workload = find(name)
    assert workload is not None
    return workload.text


PROGRAMS = {
    "two widths with deferred stores": lambda: families.matmul("case", "case", 4096, 4096, 4096, "bf16").text,
    "ping-pong": lambda: families.matmul("case", "case", 2048, 2048, 2048, "bf16").text,
    "small tiles": lambda: families.matmul("case", "case", 1024, 768, 512, "f16").text,
    "a plain matmul": lambda: matmul_text(1024, 768, 512),
    "odd sizes": lambda: families.matmul("case", "case", 123, 77, 201, "f16").text,
    "rows": lambda: (EXAMPLES / "softmax.mlir").read_text(),
    "epilogue": lambda: (EXAMPLES / "linear_bias_gelu.mlir").read_text(),
    "doubles": lambda: float64_exp(1000),
    "parts merged in a cluster": lambda: families.matmul("case", "case", 128, 896, 8192, "bf16").text,
    "64-bit arithmetic of uniform registers": lambda: named("gemm-bf16-nt-7864x104x184"),
    "a convolution that gathers": lambda: named("conv-bf16-1x52x41x352-160-k5"),
    "branches around shuffles": lambda: named("gemm-bf16-tn-192x2292x13597-gelu"),
    "a small batch": lambda: named("gemm-bf16-nn-35x453x41x304"),
    "the transposed product": lambda: named("gemm-f16-tt-2744x312x4280"),
    "clusters of four along both sides": lambda: named("gemm-f16-nt-144x15232x4072"),
    "clusters of eight along both sides": lambda: named("gemm-f16-nt-7064x232x9880"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_as_they_are_chosen_are_read_from_their_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "disassemble_cubin", never)
    program = driver.compile(PROGRAMS[name](), target="sm_90a", options=CompileOptions(tuned=False))
    assert program.binaries
    for file, binary in program.binaries.items():
        assert check_words(binary, file.removesuffix(".cubin")), "an operation code is not known, and compilations wait for nvdisasm"
