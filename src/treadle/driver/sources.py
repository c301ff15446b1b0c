"""What a user hands to the compiler: MLIR text or a path to it, and a target's name."""

import os
from pathlib import Path

from treadle.errors import READ_FILE, TreadleError
from treadle.records import Record

TEXT_FILE = "<text>"


class Source(Record):
    """A program's text, and the file name that locations in it carry."""

    text: str
    file: str


def read_source(source: str | os.PathLike[str]) -> Source:
    """The text itself where `source` is a string with a line break or a brace, else the contents of the file.

    Raises TreadleError TR901 for a file that cannot be read.
    """
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return Source(source, TEXT_FILE)
    path = Path(source)
    try:
        return Source(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise TreadleError(READ_FILE, path=path, reason=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TreadleError(READ_FILE, path=path, reason=f"it is not UTF-8 text (byte {error.start})") from error
