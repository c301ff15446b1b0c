"""benchmarks/tutorial_kernels.py and stage_schedules.py: what they list, and that their problems are the examples'; nothing is measured."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
EXAMPLES = FOLDER.parent / "examples" / "kernels"


@pytest.fixture(name="tutorials")
def fixture_tutorials(monkeypatch: pytest.MonkeyPatch) -> Any:
    for folder in (EXAMPLES, EXAMPLES.parent, FOLDER):
        monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module("tutorial_kernels")


@pytest.fixture(name="schedules")
def fixture_schedules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("stage_schedules")


def test_every_example_has_sizes_and_a_peer(tutorials: Any) -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - {"harness", "triton_peers"}
    assert set(tutorials.SIZES) == names | {"attention"}
    peers = (EXAMPLES / "triton_peers.py").read_text(encoding="utf-8")
    assert all(f'    "{name}": {name},' in peers and f"\ndef {name}(" in peers for name in tutorials.SIZES)


def test_what_tutorials_list(tutorials: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tutorials.main(["softmax", "attention", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        *(f"softmax 4096x{n}" for n in (256, 1024, 4096, 12672)),
        "attention 4x32x1024x64x0",
    ]
    with pytest.raises(SystemExit):
        tutorials.main(["sofmax"])
    assert "no example sofmax" in capsys.readouterr().err


@pytest.mark.parametrize("causal", [0, 1])
def test_the_problem_of_attention(tutorials: Any, causal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls the example with arrays by name, all batches alike."""
    problem = tutorials.problem_of("attention", (2, 2, 70, 32, causal))
    monkeypatch.setattr(importlib.import_module("attention").attention, "target", "sim")
    problem.call(**problem.arrays)
    q, k, v = (problem.arrays[name].astype(np.float64) for name in "qkv")
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(32)) * (np.tri(70) if causal else 1)
    np.testing.assert_allclose(problem.arrays["o"], scores @ v / scores.sum(3, keepdims=True), atol=5e-3)
    np.testing.assert_allclose(problem.arrays["lse"], np.log(scores.sum(3)), atol=1e-4)
    assert set(problem.want) == {"o", "lse"} and problem.flops == 4 * 4 * 32 * (70 * 71 // 2 if causal else 70 * 70)


def test_lines_of_a_report(tutorials: Any) -> None:
    record = {"name": "softmax", "sizes": [4, 5], "error": 1e-3, "first_call_s": 2.5}
    assert tutorials.told(record).endswith("2.5 s to the first results, differ by 1.0e-03")
    assert "1.500  2.0000 ms, Triton 3.0000 ms" in tutorials.told({**record, "ms": {"treadle": 2, "triton": 3}, "ratio": 1.5})
    assert tutorials.told({"name": "softmax", "sizes": [4], "problem": "none"}).endswith("none")


def test_what_schedules_list(schedules: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert schedules.main(["--list", "8192x8192"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == [f"gemm 8192x8192x{k}" for k in (512, 1024, 8192)]
