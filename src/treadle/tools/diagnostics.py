"""How the command line reports errors: the user's line with a caret for what a user can fix, a short apology for what a user cannot."""

import sys
import traceback
from pathlib import Path

from treadle import knobs
from treadle.errors import SourceLocation, TreadleError

EXIT_WRONG_RESULT = 1
EXIT_USER_ERROR = 2
EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERNAL_CODE = "TR000"


def excerpt(location: SourceLocation | None) -> str:
    """The user's line under its number, with a caret where the column is known; empty where the text cannot be had."""
    if location is None:
        return ""
    try:
        lines = Path(location.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    if not 1 <= location.line <= len(lines):
        return ""
    text = lines[location.line - 1].expandtabs(1)
    number = str(location.line)
    shown = f"  {number} | {text}\n"
    if location.column:
        shown += f"  {' ' * len(number)} | {' ' * (min(location.column, len(text) + 1) - 1)}^\n"
    return shown


def render(error: TreadleError) -> str:
    """`file:line:col: error TRxxx: message`, the excerpt, and what to do."""
    place = f"{error.location}: " if error.location else ""
    return f"{place}error {error.code}: {error.message}\n{excerpt(error.location)}  fix: {error.fix}\n"


def debugging() -> bool:
    """Whether tracebacks are wanted (TREADLE_DEBUG=1)."""
    return bool(knobs.DEBUG.get())


def report_user_error(error: TreadleError) -> int:
    """Print a user error to stderr and return the exit status."""
    if debugging():
        traceback.print_exception(error)
    sys.stderr.write(render(error))
    return EXIT_USER_ERROR


def report_internal_error(error: Exception) -> int:
    """Print an internal error to stderr and return the exit status."""
    if debugging():
        traceback.print_exception(error)
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "" if debugging() else " (TREADLE_DEBUG=1 shows where)"
    sys.stderr.write(
        f"internal error {INTERNAL_CODE}: {reason[:400]}\n"
        f"  This is a defect of Treadle, not of your program. Please report it with the input file and the command{hint}.\n"
    )
    return EXIT_INTERNAL_ERROR
