"""The disk cache: folders of files under the digest of everything they depend on, safe under concurrent processes.

An entry is built in a folder of its own and renamed into place, so it is either absent or complete. Builders of one key wait for each
other; readers never wait. Entries that were not used for longest go first when the cache grows beyond `TREADLE_CACHE_MIB`.
"""

import contextlib
import errno
import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final

from treadle import errors, knobs
from treadle.errors import TreadleError

_TRIM_EVERY: Final = 32
"""Entries are counted and trimmed once in so many writes of a process."""

_CONTENTS: Final = ".contents"
"""The file of an entry that tells what the others hold: a full disk or a crash of the machine can leave less."""


def _contents(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{zlib.crc32(data):08x} {len(data)} {name}\n" for name, data in sorted(files.items())).encode()


def key_of(*parts: str | bytes) -> str:
    """SHA-256 of the parts; each is preceded by its length, so that no two lists of parts run into each other."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def default_folder() -> Path:
    """Where the cache is unless told otherwise."""
    if (chosen := knobs.CACHE_DIR.get()) is not None:
        return chosen
    if sys.platform == "linux":  # as platformdirs has it, without the time its import takes
        return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache").expanduser() / "treadle"
    import platformdirs

    return Path(platformdirs.user_cache_dir("treadle", appauthor=False))


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock that is this file, among threads and processes. A thread that holds it may take it again."""
    import threading  # only writers need these

    try:
        import fcntl
    except ImportError:  # not POSIX
        import filelock

        with filelock.FileLock(path, is_singleton=True):
            yield
        return
    mine = (threading.get_ident(), path)
    if mine in _held:
        yield
        return
    with path.open("ab") as file:  # what filelock does as well, without the time its import takes
        fcntl.flock(file, fcntl.LOCK_EX)
        _held.add(mine)
        try:
            yield
        finally:
            _held.discard(mine)


_held: set[tuple[int, Path]] = set()
"""Threads and the locks they hold."""


class Cache:
    """The cache in one folder (made when first written). Raises TR902 where the folder cannot be written."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._writes = 0

    def path_of(self, key: str) -> Path:
        """The folder of a key, whether it exists or not."""
        return self.folder / "entries" / key[:2] / key

    def find(self, key: str) -> Path | None:
        """The folder of a key that is there; counts as a use."""
        place = self.path_of(key)
        try:
            os.utime(place)
        except OSError:  # absent, or a cache that may only be read
            return place if place.is_dir() else None
        return place

    def get_or_create(self, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of a key; if absent, `build` fills an empty folder, once even among processes. An exception leaves nothing."""
        if (place := self.find(key)) is not None:
            return place
        with self._writing(), _locked(self._lock_file(key)):
            if (place := self.find(key)) is not None:
                return place
            return self._build(key, build)

    def get(self, key: str) -> dict[str, bytes] | None:
        """All files of an entry that `put` stored, by name; None if there is none. A damaged entry is removed, and is none."""
        place = self.find(key)
        if place is None:
            return None
        try:
            files = {path.name: path.read_bytes() for path in sorted(place.iterdir())}
        except OSError:  # trimmed by another process meanwhile
            return None
        if files.pop(_CONTENTS, b"") == _contents(files):
            return files
        with contextlib.suppress(OSError):  # a cache that may only be read keeps it
            self._remove(place)
        return None

    def put(self, key: str, files: Mapping[str, bytes]) -> None:
        """Store an entry, unless it is there already."""

        def build(folder: Path) -> None:
            for name, data in {**files, _CONTENTS: _contents(files)}.items():
                (folder / name).write_bytes(data)

        self.get_or_create(key, build)

    def trim(self, limit_bytes: int) -> None:
        """Remove the entries that were not used for longest until the rest fits; and what crashed builders left an hour ago."""
        entries: list[tuple[float, int, Path]] = []
        for path in (self.folder / "entries").glob("*/*"):
            with contextlib.suppress(OSError):
                entries.append((path.stat().st_mtime, sum(f.stat().st_size for f in path.iterdir()), path))
        import shutil

        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= limit_bytes:
                break
            self._remove(path)
            total -= size
        for path in (self.folder / "building").glob("*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - 3600:
                    shutil.rmtree(path, ignore_errors=True)

    def _build(self, key: str, build: Callable[[Path], None]) -> Path:
        import shutil  # only writers need these
        import tempfile

        building = self.folder / "building"
        building.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=key[:8] + "-", dir=building))
        try:
            build(made)
            place = self.path_of(key)
            place.parent.mkdir(parents=True, exist_ok=True)
            made.chmod(0o755)
            try:
                made.rename(place)
            except OSError as problem:
                if problem.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        self._writes += 1
        limit = knobs.CACHE_MIB.get()
        if limit and self._writes % _TRIM_EVERY == 1:
            self.trim(limit << 20)
        return place

    def _remove(self, path: Path) -> None:
        """Take an entry out of sight in one step, then delete it."""
        import shutil
        import tempfile

        (self.folder / "building").mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            aside = Path(tempfile.mkdtemp(prefix="old-", dir=self.folder / "building"))
            path.rename(aside / path.name)
            shutil.rmtree(aside, ignore_errors=True)

    def _lock_file(self, key: str) -> Path:
        # One of 256 files for all keys: lock files cannot be deleted safely, so there must not be one a key.
        locks = self.folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        return locks / key[:2]

    @contextlib.contextmanager
    def _writing(self):
        try:
            yield
        except OSError as problem:
            raise TreadleError(
                errors.WRITE_FILE, path=problem.filename or self.folder, reason=problem.strerror or str(problem)
            ) from problem
