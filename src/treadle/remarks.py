"""Remarks: every decision and refusal of the compiler, with its reason, for `treadle explain`."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from treadle.errors import SourceLocation
from treadle.records import Record

Kind = Literal["decision", "refusal", "note"]


class Remark(Record):
    """One decision or refusal: who (`pass_name`), about what (`subject`: kernel or op), what and why (`text`). `seconds`: the modelled time
    of a kernel whose form was decided.
    """

    kind: Kind
    pass_name: str
    subject: str
    text: str
    location: SourceLocation | None = None
    seconds: float | None = None


class RemarkLog:
    """The remarks of one compilation, in order."""

    def __init__(self) -> None:
        self.remarks: list[Remark] = []


_current: ContextVar[RemarkLog | None] = ContextVar("treadle_remarks", default=None)


@contextmanager
def collect_remarks() -> Generator[RemarkLog]:
    """Collect the remarks emitted inside the block (they are dropped where nobody collects)."""
    log = RemarkLog()
    token = _current.set(log)
    try:
        yield log
    finally:
        _current.reset(token)


def emit(kind: Kind, pass_name: str, subject: str, text: str, location: SourceLocation | None = None, seconds: float | None = None) -> None:
    """Record a remark in the innermost collecting block."""
    if (log := _current.get()) is not None:
        log.remarks.append(Remark(kind, pass_name, subject, text, location, seconds))
