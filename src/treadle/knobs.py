"""Every environment variable that Treadle reads, typed, in one place.

Knobs say where things are and how the compiler works; they never change what a kernel computes (that is `CompileOptions`).
They are read when they are used, so a test or a notebook may set them at any time.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from treadle import errors
from treadle.errors import TreadleError
from treadle.records import Record

T = TypeVar("T")


class Knob(Record, Generic[T]):
    """An environment variable: its name, what it means, its default and how its text is read."""

    name: str
    meaning: str
    default: T
    read: Callable[[str], T]

    def get(self) -> T:
        """The value now; an unset or empty variable is the default. Raises TR951 for a text that cannot be read."""
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.read(text)
        except ValueError as problem:
            raise TreadleError(errors.KNOB, name=self.name, value=text, reason=problem) from None


def _path(text: str) -> Path | None:
    return Path(text).expanduser()


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("a negative number")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError("not above 0")
    return value


def _is_set(text: str) -> int:
    return int(text != "0")


CACHE_DIR: Final = Knob[Path | None]("TREADLE_CACHE_DIR", "folder of the disk cache (default: the user's cache folder)", None, _path)
CACHE_MIB: Final = Knob("TREADLE_CACHE_MIB", "size the disk cache is trimmed to, in MiB; 0 for no limit", 2048, _count)
PTXAS: Final = Knob[Path | None]("TREADLE_PTXAS", "ptxas to use instead of the installed wheel's", None, _path)
NVDISASM: Final = Knob[Path | None]("TREADLE_NVDISASM", "nvdisasm to use", None, _path)
LLD: Final = Knob[Path | None]("TREADLE_LLD", "ld.lld to use for AMD code objects", None, _path)
AMD_EMULATOR: Final = Knob[Path | None]("TREADLE_AMD_EMULATOR", "checkout with an emulator of AMD GPUs, for tests", None, _path)
WORKERS: Final = Knob("TREADLE_WORKERS", "code generation processes at most; 0 for one a core, at most 8", 0, _count)
VERIFY_EACH_PASS: Final = Knob(
    "TREADLE_VERIFY_EACH_PASS", "1 to verify the module after every pass of a compilation, not once a level", 0, _count
)
DEBUG: Final = Knob("TREADLE_DEBUG", "1 to show tracebacks with errors", 0, _is_set)
RATES: Final = Knob[Path | None](
    "TREADLE_RATES",
    "file of the models' constants, from `treadle calibrate` (default: those of the products' rows)",
    None,
    _path,
)
EVERY_LANE: Final = Knob(
    "TREADLE_EVERY_LANE_ARRIVES",
    "1 to let every lane of a warp arrive at a barrier, not one for all: for tools that do not follow a warp's own barrier",
    0,
    _is_set,
)
TOOL_SECONDS: Final = Knob("TREADLE_TOOL_SECONDS", "seconds a tool or a code generation may take", 300.0, _positive)

ALL: Final[tuple[Knob[Path | None] | Knob[int] | Knob[float], ...]] = (
    CACHE_DIR,
    CACHE_MIB,
    PTXAS,
    NVDISASM,
    LLD,
    AMD_EMULATOR,
    WORKERS,
    VERIFY_EACH_PASS,
    DEBUG,
    RATES,
    EVERY_LANE,
    TOOL_SECONDS,
)
