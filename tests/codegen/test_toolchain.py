"""From LLVM text to binaries for every target, and what happens when a tool is not there or fails."""

import re
import stat
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from codegen.kernels import AMD, NVIDIA, vector_add

from treadle.codegen import toolchain, worker
from treadle.errors import TreadleError


def code_of(caught: pytest.ExceptionInfo[TreadleError]) -> str:
    return caught.value.code


def test_nvidia_end_to_end() -> None:
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


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_amd_end_to_end(cpu: str) -> None:
    text = vector_add(AMD)
    linked = toolchain.link_amdgpu(worker.emit_object(text, triple=AMD, cpu=cpu))
    assert linked[:4] == b"\x7fELF"
    assert int.from_bytes(linked[16:18], "little") == 3  # ET_DYN
    assert b"vector_add.kd" in linked
    assembly = worker.emit_assembly(text, triple=AMD, cpu=cpu)
    assert f"amdgcn-amd-amdhsa--{cpu}" in assembly
    assert len(re.findall(r"global_load_(?:b32|dword)", assembly)) == 2


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
    with pytest.raises(TreadleError, match="ziglang"):
        toolchain.find_lld()


def test_a_knob_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'release 1.2, V1.2.3'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TREADLE_PTXAS", str(tool))
    assert toolchain.find_ptxas() == tool
    assert toolchain.tool_version(tool) == "1.2.3"
    assert "ptxas 1.2.3" in toolchain.toolchain_versions("nvidia")
    assert any(v.startswith("lld ") for v in toolchain.toolchain_versions("amd"))


def test_a_tool_that_hangs_is_stopped() -> None:
    with pytest.raises(TreadleError) as caught:
        toolchain.run_tool(["sleep", "30"], seconds=0.05)
    assert code_of(caught) == "TR553"


def test_tools_end_when_they_are_stopped(tmp_path: Path) -> None:
    """Also those that have started a process of their own, which keeps their pipes open."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\nsleep 30\n", encoding="utf-8")
    slow.chmod(0o755)
    stop = threading.Event()
    with ThreadPoolExecutor(1, initializer=toolchain.stop_with, initargs=(stop,)) as tools:
        assert tools.submit(toolchain.run_tool, ["/bin/cat"], b"x" * 100_000).result().output == b"x" * 100_000
        with pytest.raises(TreadleError) as caught:
            tools.submit(toolchain.run_tool, [slow], seconds=0.3).result()
        assert code_of(caught) == "TR553"
        running = tools.submit(toolchain.run_tool, [slow])
        start = time.monotonic()
        stop.set()
        with pytest.raises(CancelledError):
            running.result()
        assert time.monotonic() - start < 15
