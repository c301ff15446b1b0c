"""The disk cache: complete or absent, one builder among processes, trimming."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treadle.errors import TreadleError
from treadle.runtime.cache import Cache, default_folder, key_of


def test_keys_keep_parts_apart() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of("a") != key_of("a", "")
    assert key_of("a", b"b") == key_of("a", "b")
    assert len(key_of()) == 64


def test_put_get(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(key_of("x")) is None
    cache.put(key_of("x"), {"a.bin": b"1", "manifest.json": b"{}"})
    assert cache.get(key_of("x")) == {"a.bin": b"1", "manifest.json": b"{}"}
    cache.put(key_of("x"), {"a.bin": b"2"})  # there already: the key says the contents are equal
    assert Cache(tmp_path).get(key_of("x")) == {"a.bin": b"1", "manifest.json": b"{}"}
    assert not any((tmp_path / "building").iterdir())


def test_a_failing_builder_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def build(folder: Path) -> None:
        (folder / "half").write_bytes(b"1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_create(key_of("x"), build)
    assert cache.find(key_of("x")) is None
    assert not any((tmp_path / "building").iterdir())
    cache.put(key_of("x"), {"a": b"whole"})
    assert cache.get(key_of("x")) == {"a": b"whole"}


def test_builders_may_nest(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    outer = "00" + "1" * 62
    inner = "00" + "2" * 62  # the same lock file

    def build(folder: Path) -> None:
        (folder / "a").write_text(cache.get_or_create(inner, lambda _: None).name)

    assert (cache.get_or_create(outer, build) / "a").read_text() == inner


@pytest.mark.parametrize("damage", ["short", "missing", "flipped", "extra", "no contents"])
def test_a_damaged_entry_is_none_and_is_replaced(tmp_path: Path, damage: str) -> None:
    cache, files = Cache(tmp_path), {"a.bin": b"12345", "manifest.json": b"{}"}
    cache.put(key_of("x"), files)
    place = cache.path_of(key_of("x"))
    match damage:
        case "short":
            (place / "a.bin").write_bytes(b"1234")
        case "missing":
            (place / "a.bin").unlink()
        case "flipped":
            (place / "a.bin").write_bytes(b"12335")
        case "extra":
            (place / "b.bin").write_bytes(b"")
        case _:
            (place / ".contents").unlink()
    assert cache.get(key_of("x")) is None
    cache.put(key_of("x"), files)
    assert cache.get(key_of("x")) == files


SCRIPT = """
import sys, time
from pathlib import Path
from treadle.runtime.cache import Cache, key_of
cache = Cache(Path(sys.argv[1]))
def build(folder):
    with open(sys.argv[1] + "/built", "a") as log: log.write("x")
    for i in range(20):
        (folder / f"f{i}").write_bytes(bytes([i]) * 1000)
        time.sleep(0.001)
for n in range(5):
    place = cache.get_or_create(key_of(str(n)), build)
    assert [p.read_bytes()[0] for p in sorted(place.iterdir(), key=lambda p: int(p.name[1:]))] == list(range(20)), place
"""


def test_eight_processes_build_each_entry_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": "src"}
    runs = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, stderr=subprocess.PIPE) for _ in range(8)]
    for run in runs:
        _, words = run.communicate(timeout=60)
        assert run.returncode == 0, words.decode()
    assert (tmp_path / "built").read_text() == "xxxxx"


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    keys = [key_of(str(i)) for i in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, {"f": b"x" * 1000})
        os.utime(cache.path_of(key), (time.time() - 1000 + age, time.time() - 1000 + age))
    assert cache.get(keys[0]) is not None  # used now
    stale = tmp_path / "building" / "crashed"
    stale.mkdir()
    os.utime(stale, (1, 1))
    cache.trim(2100)  # two entries and what they say of their contents
    assert [cache.find(k) is not None for k in keys] == [True, False, False, True]
    assert not stale.exists()


def test_the_knob_limits_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE_MIB", "1")
    cache = Cache(tmp_path)
    for i in range(70):
        cache.put(key_of(str(i)), {"f": b"x" * 100_000})
    assert 0 < sum(1 for _ in (tmp_path / "entries").glob("*/*")) <= 10 + 32


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TreadleError) as caught:
        Cache(tmp_path / "file" / "cache").put(key_of("x"), {"a": b""})
    assert caught.value.code == "TR902"


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("TREADLE_CACHE_DIR")
    assert default_folder().name == "treadle"
