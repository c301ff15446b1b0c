"""The pass and the verb."""

import re
from pathlib import Path

import pytest
from hazards.programs import PROGRAMS, RACES

from treadle.errors import TreadleError
from treadle.ir.context import default_context
from treadle.ir.text import parse_module, print_module
from treadle.remarks import collect_remarks
from treadle.tools.main import invoke
from treadle.verify.verify_schedule import VerifySchedulePass

CODES = {
    "nvfuser_3865_wait_after_barrier": "TR411",
    "tilelang_2566_trip_count_one": "TR412",
}


def test_a_right_module_passes_unchanged() -> None:
    module = parse_module(PROGRAMS["two_consumers"].text, "x.mlir")
    before = print_module(module)
    VerifySchedulePass().apply(default_context(), module)
    assert print_module(module) == before


@pytest.mark.parametrize("name", CODES)
def test_faults_are_user_errors(name: str) -> None:
    module = parse_module(RACES[name].text, "x.mlir")
    with pytest.raises(TreadleError) as caught:
        VerifySchedulePass().apply(default_context(), module)
    assert caught.value.code == CODES[name]
    assert caught.value.location is not None and caught.value.location.file == "x.mlir"
    assert caught.value.fix


def test_lint_names_what_nothing_needs() -> None:
    module = parse_module(PROGRAMS["direct_ring"].text, "x.mlir")
    with collect_remarks() as log:
        VerifySchedulePass(lint=True).apply(default_context(), module)
    assert any("sync.barrier" in remark.text and "orders nothing" in remark.text for remark in log.remarks)
    assert any("could leave 1 groups pending" in remark.text for remark in log.remarks)


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong, other = tmp_path / "right.mlir", tmp_path / "wrong.mlir", tmp_path / "other.mlir"
    right.write_text(PROGRAMS["two_groups"].text)
    wrong.write_text(RACES["iree_23435_read_without_barrier"].text)
    other.write_text("func.func @f() { func.return }\n")
    assert invoke(["verify", str(right)]) == 0
    assert "every access is ordered" in capsys.readouterr().out
    assert invoke(["verify", str(wrong)]) == 1
    text = capsys.readouterr().out
    assert "wrong.mlir:13" in text and "tile.local_load" in text and "add sync.barrier" in text
    assert invoke(["verify", str(other)]) == 2
    assert invoke(["verify", str(tmp_path / "missing.mlir")]) == 2


@pytest.mark.parametrize("name", ["two_consumers", "direct_ring", "two_groups"])
def test_a_view_behind_its_use_is_a_user_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, file = PROGRAMS[name].text.split("\n"), tmp_path / "moved.mlir"
    views = [(at, line.split(" = ")[0].strip()) for at, line in enumerate(lines) if " = tile.view " in line]
    assert views
    for at, view in views:
        use = next(later for later in range(at + 1, len(lines)) if f"{view}[" in lines[later])
        file.write_text("\n".join([*lines[:at], *lines[at + 1 : use + 1], lines[at], *lines[use + 1 :]]))
        assert invoke(["verify", str(file)]) == 2
        first = capsys.readouterr().err.split("\n")[0]
        found = re.search(r"moved\.mlir:(\d+):\d+: error (TR201|TR101): .* (used before it is defined|used but not defined)", first)
        assert found and f"{view}[" in file.read_text().split("\n")[int(found[1]) - 1], first


def test_the_pass_is_known_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["opt", "--list"]) == 0
    assert "verify-schedule" in capsys.readouterr().out
