"""From PTX to machine code and back to text, and what happens when a tool is not there or fails."""

import re
import stat
from pathlib import Path

import pytest
from codegen.kernels import NVIDIA, vector_add

from treadle.codegen import worker
from treadle.errors import TreadleError
from treadle.targets.nvidia import toolchain


def code_of(caught: pytest.ExceptionInfo[TreadleError]) -> str:
    return caught.value.code


def test_from_text_to_machine_code() -> None:
    ptx = worker.emit_assembly(vector_add(NVIDIA), triple=NVIDIA, cpu="sm_90a")
    result = toolchain.assemble_ptx(ptx, "sm_90a")
    assert result.cubin[:4] == b"\x7fELF"
    (kernel,) = result.kernels
    assert kernel.name == "vector_add"
    assert 0 < kernel.registers <= 32
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.stack_bytes, kernel.static_shared_bytes) == (0, 0, 0, 0)
    assert result.warnings == ()
    sass = toolchain.disassemble_cubin(result.cubin)
    assert len(re.findall(r"\bLDG\.E\b", sass)) == 2
    assert "FADD" in sass


def test_log_with_spills_and_performance_remarks() -> None:
    log = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register "
        "resources for the wgmma pipeline in the function 'k'\n"
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Function properties for k\n"
        "    432 bytes stack frame, 384 bytes spill stores, 388 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 1 barriers, 432 bytes cumulative stack size, 2048 bytes smem, 128 bytes cmem[0]\n"
        "ptxas warning : Registers are spilled to local memory in function 'k'\n"
    )
    kernels, warnings = toolchain.parse_ptxas_log(log)
    assert kernels == (toolchain.KernelResources("k", 168, 384, 388, 432, 2048),)
    assert len(warnings) == 2
    assert warnings[0].startswith("(C7510)")
    assert warnings[1].startswith("Registers are spilled")


def test_bad_ptx_is_reported_in_ptxas_words() -> None:
    with pytest.raises(TreadleError, match="nonsense") as caught:
        toolchain.assemble_ptx(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { nonsense; }\n", "sm_90a")
    assert code_of(caught) == "TR552"


def test_a_missing_tool_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_PTXAS", str(tmp_path / "none"))
    with pytest.raises(TreadleError, match="TREADLE_PTXAS") as caught:
        toolchain.find_ptxas()
    assert code_of(caught) == "TR551"
    monkeypatch.delenv("TREADLE_PTXAS")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(TreadleError, match="pip install nvidia-cuda-nvcc"):
        toolchain.find_ptxas()


def test_a_knob_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TREADLE_PTXAS", str(tool))
    assert toolchain.find_ptxas() == tool
