"""examples/persistent_matmul.py runs without a GPU, says what became of its loops, and compiles with the schedules that are measured."""

import importlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language.persistent_products import lowered, staged
from persistent_matmul import automatic

from treadle.dialects import pipe
from treadle.targets.registry import backend

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(name="benchmark")
def fixture_benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("ping_pong")


def test_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path("examples/persistent_matmul.py")
    example["main"]()
    told = capsys.readouterr().out
    assert "2 sets of 4 warps take the tiles of a workgroup in turn (ping-pong)" in told
    assert told.count("\n  stages 'memory', 'compute' of 2 groups of 4 warps") == 2
    assert told.count("\n  proven") == len(example["TARGETS"])


@pytest.mark.parametrize(("name", "by_hand"), [("automatic 128x128", "ping-pong 128x128"), ("automatic 128x256", "cooperative 128x256")])
def test_what_the_compiler_chooses(benchmark: Any, name: str, by_hand: str) -> None:
    """Of loops of which nothing is said, with the tile: the schedule by hand that is fastest with it, to the operation."""
    found: list[list[str]] = []
    for kernel, given in ((automatic, benchmark.AUTOMATIC[name]), (staged, benchmark.SCHEDULES[by_hand])):
        constants = dict(given)
        lowered_kernel, _, _ = lowered(
            kernel, 512, 512, 512, grid=132, stages=constants.pop("num_stages"), warps=benchmark.WARPS, **constants
        )
        (roles,) = (op for op in lowered_kernel.walk() if isinstance(op, pipe.RolesOp))
        found.append([op.name for op in roles.walk() if op.name.startswith(("tile.", "sync."))])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["ping-pong 128x128", "ping-pong 128x192", "cooperative 128x128", "cooperative 128x256"])
def test_the_schedules_that_are_measured(benchmark: Any, name: str) -> None:
    """Matrix instructions, and no register goes to memory."""
    constants = dict(benchmark.SCHEDULES[name])
    stages = constants.pop("num_stages")
    kernel, told, _ = lowered(staged, 512, 512, 512, grid=132, stages=stages, warps=benchmark.WARPS, **constants)
    assert not any("stages instead of" in text for text in told)
    code = backend("sm_90a")
    facts = code.assemble(code.emit(kernel)).facts
    assert facts.instructions["HGMMA"] >= 4
    assert not facts.spill_bytes


def test_what_the_benchmark_lists(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["128", "--rows", "64", "--list"]) == 0
    assert capsys.readouterr().out == f"64x8192x128: {', '.join(benchmark.SCHEDULES)}\n"
    assert benchmark.main(["128", "--rows", "64", "--list", "--automatic"]) == 0
    assert capsys.readouterr().out.endswith(", automatic 128x128, automatic 128x256\n")
    assert benchmark.fastest({"a 1": 2.0, "a 2": 1.0, "b 1": 0.5}, "a") == "a 2"


def test_any_size_on_the_simulator() -> None:
    for m, n, k in ((136, 72, 104), (1, 8, 8), (264, 40, 0)):
        a, b = np.ones((m, k), np.float16), np.ones((k, n), np.float16)
        c = np.full((m, n), np.nan, np.float16)
        staged[2](a, b, c, num_warps=8, target="sim", BN=64, BK=32)
        assert (c == k).all()
