"""The artifact as a folder: the manifest, the kernels' binaries and the constants (docs/artifact.md)."""

from collections.abc import Mapping
from pathlib import Path

from treadle import errors
from treadle.artifact import MANIFEST_FILE, Manifest
from treadle.errors import TreadleError


def write(folder: str | Path, manifest: Manifest, binaries: Mapping[str, bytes], constants: Mapping[str, bytes] | None = None) -> Path:
    """Write an artifact folder at once: it is complete when it appears, and an old one is replaced. Raises TR902, TR931."""
    import shutil  # readers start without these
    import tempfile

    if manifest.target == "sim":
        raise TreadleError(errors.MANIFEST, place="manifest.target", reason="a program for the simulator has no artifact")
    place, files = Path(folder), {**binaries, **(constants or {})}
    for name in [*(k.binary for k in manifest.kernels), *(b.file for b in manifest.buffers if b.file)]:
        if name not in files:
            raise TreadleError(errors.MANIFEST, place="artifact", reason=f"'{name}' is named in the manifest and not given")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    except OSError as problem:
        raise TreadleError(errors.WRITE_FILE, path=place, reason=problem.strerror) from None
    try:
        made.chmod(0o755)
        for name, data in files.items():
            (made / name).write_bytes(data)
        (made / MANIFEST_FILE).write_text(manifest.to_json() + "\n")
        if place.is_dir() and (place / MANIFEST_FILE).exists():  # only ever replace an artifact, never other people's files
            old = made.with_name(made.name + "-old")
            place.replace(old)
            made.replace(place)
            shutil.rmtree(old)
        else:
            made.replace(place)  # also onto an empty folder
    except OSError as problem:
        shutil.rmtree(made, ignore_errors=True)
        raise TreadleError(errors.WRITE_FILE, path=place, reason=problem.strerror) from None
    return place


def read(folder: str | Path) -> tuple[Manifest, dict[str, bytes]]:
    """Manifest and the files it names (binaries and constants). Raises TR901 for a file that cannot be read and TR931."""
    place = Path(folder)
    manifest = Manifest.from_json(_read(place / MANIFEST_FILE))
    names = {*(k.binary for k in manifest.kernels), *(b.file for b in manifest.buffers if b.file)}
    return manifest, {name: _read(place / name) for name in sorted(names)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise TreadleError(errors.READ_FILE, path=path, reason=problem.strerror) from None
