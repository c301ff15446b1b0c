"""`treadle explain` of PyTorch's graphs: saved reports, and scripts that are run; PyTorch itself is not needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.tools.main import invoke
from treadle.torch import reports
from treadle.torch.reports import RegionRecord, Report, load

Captured = pytest.CaptureFixture[str]
SHAPES = "16x4096, 4096x4096 bfloat16"
TAKEN = RegionRecord("mm", "model.py:9", ("mm", "mul.Tensor"), SHAPES, True, "", ("mm_kernel",), "d1", 10**9, 12.34, 15.0)
ALIKE = RegionRecord("mm_7", "model.py:9", ("mm", "mul.Tensor"), SHAPES, True, "", ("mm_kernel",), "d1", 10**9, 12.34, 15.0)
LEFT = RegionRecord("mm_1", "model.py:11", ("mm",), "7x[s0] float64", False, "no [bold] form", flop=None, measured_us=(20.04, 10.06))


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    reports.clear_report()
    yield
    reports.clear_report()


def test_saved_reports_come_back(tmp_path: Path) -> None:
    made = Report((TAKEN, ALIKE, LEFT))
    made.save(tmp_path / "report.json")
    assert load(tmp_path / "report.json") == made


def test_a_saved_report_is_a_table(tmp_path: Path, capsys: Captured) -> None:
    Report((TAKEN, ALIKE, LEFT)).save(tmp_path / "report.json")
    assert invoke(["explain", str(tmp_path / "report.json")]) == 0
    shown = capsys.readouterr().out
    (taken,) = [line for line in shown.splitlines() if "mm mul.Tensor" in line]
    assert all(text in taken for text in ("2 x", "1 kernel(s)", "12.3", "15.0", "model.py:9"))
    (left,) = [line for line in shown.splitlines() if "left:" in line]
    assert all(text in left for text in ("1 x", "7x[s0]", "no [bold] form", "20.0", "10.1", "model.py:11"))
    assert "2 of 3 matrix products and convolutions taken with 100.0 % of their FLOP, 1 programs" in shown


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"treadle-report": 99, "regions": []}', '{"treadle-report": 1, "regions": [{"x": 1}]}'])
def test_other_files_are_refused(tmp_path: Path, capsys: Captured, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    assert invoke(["explain", str(path)]) == 2
    assert "TR901" in capsys.readouterr().err


def test_a_script_is_run(tmp_path: Path, capsys: Captured) -> None:
    script = tmp_path / "model.py"
    text = f"from treadle.torch.reports import RegionRecord, note\nassert __name__ == '__main__'\nnote([{TAKEN!r}])\n"
    script.write_text(text, encoding="utf-8")
    assert invoke(["explain", str(script)]) == 0
    assert "mm mul.Tensor" in capsys.readouterr().out
    script.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    assert invoke(["explain", str(script)]) == 0
    assert "no matrix product or convolution came to this backend" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [("1 / 0", "TR825", "ZeroDivisionError"), ("raise SystemExit(3)", "TR825", "exit status 3"), (None, "TR901", "no such file")],
)
def test_scripts_that_fail(tmp_path: Path, capsys: Captured, text: str | None, code: str, reason: str) -> None:
    script = tmp_path / "model.py"
    if text is not None:
        script.write_text(text, encoding="utf-8")
    assert invoke(["explain", str(script)]) == 2
    shown = capsys.readouterr().err
    assert code in shown and reason in shown


def test_programs_need_a_target(capsys: Captured) -> None:
    assert invoke(["explain", "examples/softmax.mlir"]) == 2
    assert "Missing option '--target'" in capsys.readouterr().err
