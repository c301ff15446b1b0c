"""Text files of users."""

import os
from pathlib import Path

from treadle.errors import READ_FILE, TreadleError


def read_text(path: str | os.PathLike[str]) -> str:
    """A file's text. Raises TR901 where it cannot be read, or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TreadleError(READ_FILE, path=path, reason=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TreadleError(READ_FILE, path=path, reason=f"it is not UTF-8 text (byte {error.start})") from error
