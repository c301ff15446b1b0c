"""From LLVM text to code objects, and what happens when the linker is not there."""

import re
from pathlib import Path

import pytest
from codegen.kernels import AMD, vector_add

from treadle.codegen import worker
from treadle.errors import TreadleError
from treadle.targets.amd import toolchain


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_from_text_to_a_code_object(cpu: str) -> None:
    text = vector_add(AMD)
    linked = toolchain.link_amdgpu(worker.emit_object(text, triple=AMD, cpu=cpu))
    assert linked[:4] == b"\x7fELF"
    assert int.from_bytes(linked[16:18], "little") == 3  # ET_DYN
    assert b"vector_add.kd" in linked
    assembly = worker.emit_assembly(text, triple=AMD, cpu=cpu)
    assert f"amdgcn-amd-amdhsa--{cpu}" in assembly
    assert len(re.findall(r"global_load_(?:b32|dword)", assembly)) == 2


def test_a_missing_linker_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(toolchain.Path, "glob", lambda self, pattern: [])  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(TreadleError, match="ziglang") as caught:
        toolchain.find_lld()
    assert caught.value.code == "TR551"
