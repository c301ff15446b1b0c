"""Whether arrays fit into this machine's memory, asked before they are made.

Linux promises memory that it does not have, and ends the process that uses it.
"""

from pathlib import Path
from typing import Final

from treadle.errors import HOST_MEMORY, TreadleError

_MEMINFO: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")
_SMALL: Final = 1 << 28
"""Bytes below which nobody asks: two files are read for an answer."""


def free_bytes() -> int | None:
    """Bytes that this process can still use, by the machine and by its control group; None where neither says."""
    found = [value for value in (_available(), _left_in_group()) if value is not None]
    return min(found, default=None)


def _available() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _left_in_group() -> int | None:
    try:
        limit, used = ((_GROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return max(int(limit) - int(used), 0) if limit.isdigit() and used.isdigit() else None


def require(needed_bytes: int, what: str) -> None:
    """Raises TR609 where `what` needs more bytes than are free."""
    if needed_bytes < _SMALL:
        return
    free = free_bytes()
    if free is not None and needed_bytes > free:
        raise TreadleError(HOST_MEMORY, what=what, reason=f"{size_text(needed_bytes)} needed, {size_text(free)} free")


def size_text(count: int) -> str:
    """`8.0 GiB`."""
    return f"{count / 2**30:.1f} GiB"
