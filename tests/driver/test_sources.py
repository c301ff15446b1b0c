"""Text or path, and what cannot be read."""

from pathlib import Path

import pytest

from treadle.driver.sources import TEXT_FILE, read_source
from treadle.errors import TreadleError


def test_text_is_text() -> None:
    assert read_source("module {}").file == TEXT_FILE
    assert read_source("// nothing\n").text == "// nothing\n"


def test_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text("module {}", encoding="utf-8")
    assert read_source(path) == read_source(str(path))
    assert read_source(path).file == str(path)


@pytest.mark.parametrize("name", ["missing.mlir", ".", "latin.mlir"])
def test_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / "latin.mlir").write_bytes(b"// caf\xe9")
    with pytest.raises(TreadleError) as caught:
        read_source(tmp_path / name)
    assert caught.value.code == "TR901"
