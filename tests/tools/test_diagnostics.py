"""Excerpts and exit statuses of the command line's error reports."""

from pathlib import Path

import pytest

from treadle.errors import PARSE, InternalError, SourceLocation, TreadleError
from treadle.tools.diagnostics import excerpt, render, report_internal_error, report_user_error


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "a.mlir"
    path.write_text("first\n\tsecond line\n", encoding="utf-8")
    return str(path)


def test_caret_stands_under_the_column(source: str) -> None:
    assert excerpt(SourceLocation(source, 2, 9)) == "  2 |  second line\n    |         ^\n"


def test_unknown_column_shows_the_line(source: str) -> None:
    assert excerpt(SourceLocation(source, 1)) == "  1 | first\n"


@pytest.mark.parametrize("line", [0, 3, 99])
def test_lines_that_are_not_there(source: str, line: int) -> None:
    assert excerpt(SourceLocation(source, line, 1)) == ""


def test_files_that_are_not_there() -> None:
    assert excerpt(SourceLocation("<text>", 1, 1)) == ""
    assert excerpt(None) == ""


def test_order_of_the_parts(source: str) -> None:
    first, line, caret, fix = render(TreadleError(PARSE, SourceLocation(source, 1, 2), message="oh")).splitlines()
    assert first == f"{source}:1:2: error TR101: oh"
    assert (line, caret) == ("  1 | first", "    |  ^")
    assert fix.startswith("  fix: ")


@pytest.mark.parametrize(("debug", "traceback"), [("0", False), ("1", True)])
def test_tracebacks_on_demand_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str, traceback: bool
) -> None:
    monkeypatch.setenv("TREADLE_DEBUG", debug)
    try:
        raise InternalError("no such state")
    except InternalError as error:
        assert report_internal_error(error) == 70
    shown = capsys.readouterr().err
    assert ("Traceback" in shown) == traceback
    assert "internal error TR000: InternalError: no such state" in shown
    try:
        raise TreadleError(PARSE, message="m")
    except TreadleError as error:
        assert report_user_error(error) == 2
    assert ("Traceback" in capsys.readouterr().err) == traceback
