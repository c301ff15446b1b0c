"""Binaries that are not whole are seen before a driver reads them."""

import pytest
from codegen.kernels import AMD, NVIDIA, vector_add

from treadle.codegen import worker
from treadle.runtime.elf import defect
from treadle.targets.amd.toolchain import link_amdgpu
from treadle.targets.nvidia.toolchain import assemble_ptx


@pytest.fixture(scope="module", params=["cubin", "code object"])
def binary(request: pytest.FixtureRequest) -> bytes:
    if request.param == "cubin":
        return assemble_ptx(worker.emit_assembly(vector_add(NVIDIA), triple=NVIDIA, cpu="sm_90a"), "sm_90a").cubin
    return link_amdgpu(worker.emit_object(vector_add(AMD), triple=AMD, cpu="gfx942"))


def test_whole_files_pass_and_cut_ones_do_not(binary: bytes) -> None:
    assert defect(binary) is None
    for size in (0, 5, 63, 64, 100, len(binary) // 2, len(binary) - 1):
        assert defect(binary[:size]) is not None, size
    assert defect(b"text" + binary[4:]) is not None
    assert defect(binary[:0x3A] + b"\x01\x00" + binary[0x3C:]) is not None
