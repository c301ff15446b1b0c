"""Text, path or module, and what cannot be read."""

import copy
import pickle
from pathlib import Path

import pytest

from treadle.driver.sources import MODULE_FILE, TEXT_FILE, read_source
from treadle.errors import TreadleError
from treadle.ir.text import parse_module, print_module


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


TEXT = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n"


def test_a_module_is_a_source() -> None:
    module = parse_module(TEXT, "t.mlir")
    before = print_module(module)
    source = read_source(module)
    assert source.file == MODULE_FILE and "t.mlir" in source.text
    loaded = source.load()
    assert print_module(loaded.module) == before
    for op in list(loaded.module.body.block.ops):
        op.detach()
    assert print_module(source.load().module) == before == print_module(module), "a loaded module is the caller's to change"


def test_a_pickled_source_is_its_text() -> None:
    source = read_source(parse_module(TEXT, "t.mlir"))
    again = pickle.loads(pickle.dumps(source))
    assert again.module is None
    assert print_module(again.load().module) == print_module(source.load().module)
    assert copy.deepcopy(source).text == source.text
