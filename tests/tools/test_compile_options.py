"""Compile options of the command line reach the compiler."""

import json
from pathlib import Path

import pytest

from treadle.bench.families import matmul
from treadle.options import CompileOptions
from treadle.tools.compile_options import compile_options
from treadle.tools.main import invoke

F32, FP8 = matmul("f", "g", 33, 17, 45, "f32").text, matmul("f", "g", 133, 144, 256, "f8E4M3FN").text


def test_words_and_choices_become_options() -> None:
    assert compile_options() == CompileOptions()
    asked = compile_options(["num_stages=4", "f32_precision=tf32"], None, "promoted", tuned=False)
    assert asked == CompileOptions(num_stages=4, f32_precision="tf32", fp8_accumulation="promoted", tuned=False)
    assert compile_options(["f32_precision=tf32"], "3xtf32").f32_precision == "3xtf32", "the option of that name wins"


def test_run_explain_and_compile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, narrow = tmp_path / "f.mlir", tmp_path / "g.mlir"
    file.write_text(F32)
    narrow.write_text(FP8)
    run = ["run", str(file), "--device", "sim", "--schedule", "--check", "--json", "--f32-precision", "tf32"]
    assert invoke(run) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"] == "correct" and record["schedule"]["correct"]
    assert any("both rounded to tf32" in remark["text"] for remark in record["remarks"])
    assert invoke(["explain", str(narrow), "--target", "sm_90a", "--fp8-accumulation", "promoted"]) == 0
    assert "promoted every 128 along k" in " ".join(capsys.readouterr().out.split())
    assert invoke(["compile", str(narrow), "--target", "sm_90a", "--emit", "tile", "--option", "fp8_accumulation=promoted"]) == 0
    assert "arith.addf" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--option", "f32_precision=half"], ["--option", "tiles=3"], ["--f32-precision", "half"]])
def test_what_is_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(F32)
    assert invoke(["explain", str(file), "--target", "sm_90a", *arguments]) == 2
    assert "half" in capsys.readouterr().err or "tiles" in arguments[1]
