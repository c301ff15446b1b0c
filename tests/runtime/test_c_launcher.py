"""The launcher of docs/artifact.md: compiled against a stand-in for HIP that records calls, and run with an artifact."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from targets.amd import programs

from treadle.artifact import Manifest, PointerValue
from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.options import CompileOptions

DOCUMENT = Path(__file__).parents[2] / "docs" / "artifact.md"
FAKE = Path(__file__).parent / "fake_hip_c"
M, N, K = 40, 56, 72
MOST_LINES = 60


def launcher_text() -> str:
    """The C of the document."""
    (found,) = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found.count("\n") <= MOST_LINES
    return found


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launcher")
    (folder / "launch.c").write_text(launcher_text())
    warnings = ["-Wall", "-Werror", "-Wno-unused-function"]
    own = shutil.which("cc")
    compiler = [own] if own is not None else [sys.executable, "-m", "ziglang", "cc"]
    command = [*compiler, *warnings, f"-I{FAKE}", "launch.c", "-o", "launch"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    return folder / "launch"


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_the_launcher_of_the_document_launches_an_artifact(launcher: Path, tmp_path: Path, target: str) -> None:
    text = programs.matmul(M, N, K, "f16", "f32", transposed="b").text
    files = lower(Source(text, "matmul.mlir"), target, CompileOptions(), None).files
    manifest = Manifest.from_json(files["manifest.json"].decode())
    (kernel,), (launch,) = manifest.kernels, manifest.launches
    (tmp_path / kernel.binary).write_bytes(files[kernel.binary])
    (tmp_path / "b0").write_bytes(b"a" * (2 * M * K))
    (tmp_path / "b1").write_bytes(b"b" * (2 * N * K))
    grid = [str(size) for size in launch.grid]
    sizes = {"b0": 2 * M * K, "b1": 2 * N * K, "b2": 4 * M * N}
    given = [
        f"{'out' if value.buffer == 'b2' else 'in'}:{arg.offset}:{sizes[value.buffer]}:{value.buffer}"
        for arg, value in zip(kernel.args, launch.args, strict=True)
        if isinstance(value, PointerValue)
    ]
    numbers = [*grid, str(kernel.block[0]), str(kernel.shared_bytes), str(kernel.kernarg_bytes)]
    command = [str(launcher), kernel.binary, kernel.symbol, *numbers, *given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    threads, shared = kernel.block[0], kernel.shared_bytes
    assert done.stderr.splitlines() == [
        f"function {kernel.symbol}",
        *(line for i, size in enumerate(sizes.values()) for line in (f"malloc {i} {size}", f"copy 1 {size} on stream 7")),
        "event 0 on stream 7",
        f"launch {kernel.symbol} {' '.join(grid)} x {threads} 1 1 shared {shared} on stream 7: 0=0 8=1 16=2",
        "event 1 on stream 7",
        f"copy 2 {sizes['b2']} on stream 7",
        "synchronize 7",
    ]
    assert done.stdout == "1.000 ms\n"
    assert (tmp_path / "b2").read_bytes() == b"*" * sizes["b2"]


def test_the_launcher_says_what_is_missing(launcher: Path, tmp_path: Path) -> None:
    given = ["absent", "k", "1", "1", "1", "64", "0", "8"]
    done = subprocess.run([str(launcher), *given], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and "hipModuleLoad" in done.stderr
