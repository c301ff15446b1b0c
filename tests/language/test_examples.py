"""The examples in Python: right at odd sizes on the simulator, compiled and proven for GPUs, explained, and drawn."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.language.autotune import Tuned
from treadle.language.kernel import Kernel

FOLDER = Path(__file__).parents[2] / "examples" / "kernels"
SIZES: dict[str, list[tuple[int, ...]]] = {
    "vector_add": [(1,), (1023,), (5001,)],
    "softmax": [(1, 1), (5, 781), (3, 1024)],
    "matmul": [(1, 1, 1), (131, 145, 100), (64, 128, 64)],
    "swiglu": [(3, 5, 7), (131, 77, 100)],
    "layer_norm": [(1, 2), (5, 781)],
    "grouped_matmul": [(5, 3, 9, 17), (150, 4, 77, 40)],
    "dropout": [(1,), (2500,)],
}
TARGETS = ["sm_90a", "gfx942", "gfx1201"]


@pytest.fixture(name="example")
def fixture_example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module(request.param)


def kernel_of(module: Any) -> Kernel:
    (kernel,) = [value for value in vars(module).values() if isinstance(value, Kernel | Tuned)]
    return kernel.kernel if isinstance(kernel, Tuned) else kernel


def test_every_example_is_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*SIZES, "harness", "triton_peers"}


@pytest.mark.parametrize(("example", "sizes"), [(name, s) for name, each in SIZES.items() for s in each], indirect=["example"])
def test_results(example: Any, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    harness = importlib.import_module("harness")
    monkeypatch.setattr(kernel_of(example), "target", "sim")
    problem = example.problem(np.random.default_rng(sum(sizes)), *sizes)
    problem.call(**problem.arrays)
    harness.check(problem, problem.arrays)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("example", SIZES, indirect=True)
def test_code_explanations_and_timelines(example: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(example)
    monkeypatch.setattr(kernel, "target", "sim")
    problem = example.problem(np.random.default_rng(0), *SIZES[example.__name__][-1])
    problem.call(**problem.arrays)
    assert "decision of assign-layouts" in kernel.explain(target)
    assert "tile.kernel" in kernel.ir() and "tile.kernel" in kernel.ir("schedule", target)
    assert f"kernel {kernel.function.__name__}" in kernel.asm(target)
    timeline = kernel.timeline(target)
    assert timeline.outcome.clocks > 0 and timeline.workgroups >= 1


def test_the_matrix_product_is_short() -> None:
    lines = (FOLDER / "matmul.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40


def test_an_example_by_itself() -> None:
    told = subprocess.run([sys.executable, str(FOLDER / "softmax.py"), "--sizes", "3", "77"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("softmax (3, 77): right")
