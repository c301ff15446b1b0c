"""The verbs on kernels that users write, and on programs of every level."""

import json
from pathlib import Path
from typing import get_args

import pytest
from hazards.programs_amd import double_buffer
from hazards.programs_nvidia import tma_unpipelined

from treadle.frontends.levels import LEVELS, Level
from treadle.tools import compile_options
from treadle.tools.main import invoke

EXAMPLES = Path(__file__).parents[2] / "examples"
SOFTMAX, LINEAR = str(EXAMPLES / "row_softmax.mlir"), str(EXAMPLES / "linear_bias_gelu.mlir")
Captured = pytest.CaptureFixture[str]


def out(capsys: Captured, *arguments: str, status: int = 0) -> str:
    assert invoke(list(arguments)) == status, capsys.readouterr().err
    return capsys.readouterr().out


def test_the_levels_of_the_command_line_are_those_there_are() -> None:
    assert get_args(compile_options.Level) == LEVELS


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_of_any_level(level: Level, capsys: Captured, tmp_path: Path) -> None:
    path = str(tmp_path / "program.mlir")
    assert out(capsys, "compile", LINEAR, "--target", "gfx942", "--emit", level, "-o", path) == ""
    assert "s_endpgm" in out(capsys, "compile", path, "--target", "gfx942", "--emit", "asm", "--level", level)
    assert "proven" in out(capsys, "verify", path, "--target", "gfx942")
    assert json.loads(out(capsys, "run", path, "--device", "sim", "--json"))["outputs"][0]["shape"] == [77, 136]
    assert invoke(["explain", path, "--target", "gfx942"]) == 0
    assert invoke(["timeline", path, "--target", "gfx942"]) == 0
    assert invoke(["run", path, "--device", "sim", "--schedule", "--target", "gfx942"]) == 0


def test_kernels_are_explained_and_drawn(capsys: Captured, tmp_path: Path) -> None:
    shown = out(capsys, "explain", SOFTMAX, "--target", "sm_90a")
    assert all(word in shown for word in ("row_softmax_k0", "set-access-widths", "set-precision"))
    picture = tmp_path / "timeline.json"
    out(capsys, "timeline", SOFTMAX, "--target", "sm_90a", "--size", "rows=4", "--size", "columns=1000", "-o", str(picture))
    assert json.loads(picture.read_text(encoding="utf-8"))


def test_nothing_to_check_against(capsys: Captured) -> None:
    assert invoke(["run", SOFTMAX, "--device", "sim", "--check", "--input", "3x10xf32"]) == 2
    assert "TR323" in capsys.readouterr().err


def test_synchronisation_that_is_written_is_what_is_verified(capsys: Captured, tmp_path: Path) -> None:
    """A missing barrier is not put in first."""
    path = tmp_path / "kernel.mlir"
    path.write_text(tma_unpipelined().replace("  sync.barrier\n", ""), encoding="utf-8")
    assert "TR411" in out(capsys, "verify", str(path), status=1)


def test_unproven_kernels(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "kernel.mlir"
    text = double_buffer(3).replace("arith.constant 2 : index", "arith.constant 3 : index")
    path.write_text(text.replace('sym_name = "k"', 'sym_name = "k", arg_shapes = [["4096", "64"], ["4096", "64"]]'), encoding="utf-8")
    arguments = ["compile", str(path), "--target", "gfx942", "--emit", "llvm"]
    assert invoke(arguments) == 2
    assert "TR415" in capsys.readouterr().err
    assert "amdgpu_kernel" in out(capsys, *arguments, "--allow-unproven")
    assert "not proven" in out(capsys, "explain", str(path), "--target", "gfx942", "--allow-unproven")
