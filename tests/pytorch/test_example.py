"""The example: a Llama block by `torch.compile`, its report and a kernel's timeline."""

from importlib import import_module
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

import treadle.torch  # noqa: E402


def test_the_llama_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    torch._dynamo.reset()
    treadle.torch.clear_report()
    example = import_module("llama_block")
    assert example.main(tmp_path / "kernel.svg") < (2e-2 if torch.cuda.is_available() else 1e-5)
    told = capsys.readouterr().out
    assert "7 of 7 matrix products and convolutions taken with 100.0 % of their FLOP" in told or torch.cuda.is_available()
    assert "producer" in told or "workgroup" in told
    assert (tmp_path / "kernel.svg").read_text(encoding="utf-8").startswith("<?xml")
