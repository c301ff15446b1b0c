"""The benchmark of blocks in PyTorch: what it draws, that it runs through, and that it tells wrong results."""

import json
import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(name="blocks")
def fixture_blocks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the script measures with."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return import_module("torch_block_rows")


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["torch_blocks.py", "--tiny", *arguments, "--json", str(file)])
    return import_module("torch_blocks").main(), json.loads(file.read_text(encoding="utf-8")) if file.exists() else []


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.usefixtures("blocks")
def test_rows_hold_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str) -> None:
    status, (decode, trained) = run(monkeypatch, tmp_path, "llama-decode", "swiglu-training", "--mode", mode)
    assert status == 0
    assert (decode["taken"], trained["taken"]) == (7, 9) == (decode["products"], trained["products"])
    for row in (decode, trained):
        assert row["is_right"] and row["ratio"] > 0
        assert set(row["host_us"]) == {"aot_eager", "treadle"}
        assert "us modelled" in row["report"]


def test_gradients_that_are_zero_hide_no_error(blocks: Any) -> None:
    """Their rounding is no multiple of nothing, and a small tensor that is wrong is told beside large ones."""
    exact = [torch.tensor([1.0, 100.0]).double(), torch.tensor([0.0, 0.0]).double(), torch.tensor([3.0]).double()]
    rounded = [exact[0].float(), torch.tensor([1e-6, -1e-6]), torch.tensor([3.0])]
    assert max(blocks.errors(rounded, exact)) < 2e-5
    wrong = [*rounded[:2], torch.tensor([3.01])]
    eager = blocks.errors(rounded, exact)
    assert blocks.are_right(eager, eager, torch.float32)
    assert not blocks.are_right(blocks.errors(wrong, exact), eager, torch.float32)


@pytest.mark.usefixtures("blocks")
def test_blocks_may_be_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, rows = run(monkeypatch, tmp_path, "bert", "clip-text", "--jobs", "2")
    assert status == 0
    assert {row["block"] for row in rows} == {"bert", "clip-text"}
    assert all(row["is_right"] for row in rows)
    status, rows = run(monkeypatch, tmp_path, "bert", "clip-text", "--jobs", "2", "--deadline", "1e-9")
    assert "2 not begun, from 'bert' on" in capsys.readouterr().out


def test_a_wrong_result_is_told(blocks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = blocks.compiled

    def wrong(model: Any, compiler: str, options: Any) -> Any:
        made = whole(model, compiler, options)

        def more(*inputs: Any) -> Any:
            return made(*inputs) * 1.1

        return more if compiler == "treadle" else made

    monkeypatch.setattr(blocks, "compiled", wrong)
    status, (row,) = run(monkeypatch, tmp_path, "bert")
    assert status == 1
    assert not row["is_right"]


@pytest.mark.usefixtures("blocks")
def test_no_block_is_begun_behind_the_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = run(monkeypatch, tmp_path, "bert", "llama-decode", "--deadline", "1e-9")
    assert (status, found) == (0, [])
    assert "2 not begun, from 'bert' on" in capsys.readouterr().out


def test_what_is_drawn(blocks: Any) -> None:
    rng = random.Random(3)
    drawn = [blocks.random_block(rng) for _ in range(300)]
    assert drawn[0][0] == blocks.random_block(random.Random(3))[0]
    shapes = [block.shapes[0] for _, block in drawn]
    assert all(1 <= batch * length <= 4096 and 20 <= width <= 8192 for batch, length, width in shapes)
    assert {block.dtype for _, block in drawn} == set(blocks.SLACK)
    assert {width % 64 == 0 for *_, width in shapes} == {False, True}
    assert {length == 1 for _, length, _ in shapes} == {batch == 1 for batch, *_ in shapes} == {False, True}
    assert {name.partition(" ")[0] for name, _ in drawn} == {"mlp", "attention", "block"}
