"""Tuning: candidates of problems, compilation in processes, measuring, the record and who finds it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.fakes import FakeMachine
from generators.attention_texts import AttentionText

from treadle import driver
from treadle.bench import tuning
from treadle.bench.attention_candidates import AttentionProblem
from treadle.bench.candidates import Problem, candidates, problem_of
from treadle.bench.families import gated, matmul
from treadle.bench.protocol import MeasureOptions
from treadle.bench.reductions import row_sums
from treadle.bench.suite import find
from treadle.bench.tuning import compile_candidates, measure_candidates, record_path, store, tuned_options, winner
from treadle.dialects import pipe, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.errors import TreadleError
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.tile_config import ContractionShape
from treadle.tools.main import invoke

SMALL = matmul("nk", "g", 65, 72, 40, "bf16")
QUICK = MeasureOptions(rounds=1, warm_seconds=0.0)


@pytest.fixture(name="cache", autouse=True)
def fixture_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_problem_of_a_text() -> None:
    problem = problem_of(SMALL.text, "nk", "sm_90a", CompileOptions())
    assert isinstance(problem, Problem)
    assert problem.shape == ContractionShape(1, 65, 72, 40)
    assert problem.instruction == "wgmma_m64k16_f32_bf16_bf16"
    assert problem.types.operand_bytes == 2 and problem.roles is not None and problem.roles.results[0].element_bytes == 2
    both = problem_of(gated("g", "g", 33, 65, 129, "f16", outputs=3).text, "g", "gfx942", CompileOptions())
    assert isinstance(both, Problem)
    assert both.shape == ContractionShape(1, 33, 65, 129, root_count=2, shared="a")
    assert both.roles is None, "no bulk copies there"
    with pytest.raises(TreadleError, match="TR823"):
        problem_of(row_sums("s", "g", 5, 7, "f32").text, "s", "sm_90a", CompileOptions())


def test_attention_is_tuned() -> None:
    """Tiles of scores and stages, distinct, each taken by the form as it is asked for."""
    text = AttentionText((2, 8), 1000, 3000, 64, 64, is_causal=True).text()
    problem = problem_of(text, "attention", "sm_90a", CompileOptions())
    assert isinstance(problem, AttentionProblem) and problem.work == 16 * 1000 * 3000 * 128
    found = candidates(problem, "sm_90a", CompileOptions(), 40)
    assert found[0] == CompileOptions() and len(found) == len(set(found)) > 10
    assert {one.tile[:2] for one in found[1:]} >= {(128, 128), (128, 96), (64, 64)}
    for asked in found[1:4]:
        module = scheduled(read_source(text, "tensor"), "sm_90a", asked, None)
        (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
        roles = next(op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
        rings = [tile.memref_type(op.result).get_shape() for op in kernel.walk() if isinstance(op, tile.AllocOp)]
        assert [asked.num_stages, asked.tile[1], 64] in [list(shape) for shape in rings], (asked.tile, rings)
        assert list(roles.role_warps())[1] * 16 == asked.tile[0]


def test_candidates_have_clusters_or_none() -> None:
    """Rows that begin inside requests of the cache: beside tiles in clusters of four stand the same ones alone."""
    workload = find("gemm-bf16-tt-1464x544x18152")
    assert workload is not None
    options = CompileOptions(split_reduction="off")
    found = candidates(problem_of(workload.text, "tt", "sm_90a", options), "sm_90a", options, 40)
    assert {1, 4} <= {one.cluster for one in found} <= {1, 2, 4, 8}


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("name", ["square-4096-nk", "llama3-8b-decode-1-qkv", "llama3-8b-decode-16-o", "ragged-123x456x51234-f32"])
def test_candidates_are_distinct_and_begin_with_the_compilers_choice(name: str, target: str) -> None:
    workload = find(name)
    assert workload is not None
    found = candidates(problem_of(workload.text, name, target, workload.options), target, workload.options, 5)
    assert found[0] == workload.options
    assert len(found) == len(set(found)) == 6
    assert all(one.tile and one.warps for one in found[1:])
    has_roles = target_spec(target).bulk_tensor is not None and workload.options.f32_precision == "ieee" and "f32" not in name
    assert any(one.num_stages for one in found) == (has_roles or "decode-1-" in name)
    assert candidates(problem_of(workload.text, name, target, workload.options), target, workload.options, 1) == found[:2]


def test_candidates_compile_in_processes_and_a_bad_one_is_told() -> None:
    bad = CompileOptions(tile=(4096, 4096, 64), warps=(4, 1))
    found = {one.options: one.problem for one in compile_candidates(SMALL.text, "sm_90a", [CompileOptions(), bad], 2)}
    assert found[CompileOptions()] == ""
    assert found[bad]
    from treadle.runtime.cache import Cache

    key = driver.cache_key(read_source(SMALL.text), "sm_90a", CompileOptions(), None)
    assert Cache().find(key) is not None, "the winner is compiled already"


class Timed:
    """A program of the simulator that takes as long as its options say, on the test's clock."""

    def __init__(self, machine: FakeMachine, options: CompileOptions, *, off: float = 0.0) -> None:
        self._program = driver.compile(SMALL.text, target="sim")
        self.manifest = self._program.manifest
        self._results: Any = None
        self._machine, self._ms, self._off = machine, float(options.num_stages or 10), off

    def bind(self, *arrays: Any) -> Callable[[], Any]:
        results = self._program(*arrays)

        def call() -> Any:
            self._machine.now_ms += self._ms
            return tuple(result + result.dtype.type(self._off) for result in results)

        return call


def test_candidates_are_measured_and_compared() -> None:
    machine = FakeMachine()
    chosen = [
        CompileOptions(),
        CompileOptions(num_stages=3),
        CompileOptions(num_stages=7),
        CompileOptions(num_stages=1, consumer_warpgroups=2),
    ]

    def compile_text(text: str, options: CompileOptions) -> Any:
        assert text == SMALL.text
        return Timed(machine, options, off=1000.0 if options.consumer_warpgroups == 2 else 0.0)

    rows = measure_candidates(SMALL.text, chosen, machine, compile_text, QUICK)
    assert [row.get("ms") for row in rows] == [10.0, 3.0, 7.0, None]
    assert "differs" in rows[3]["problem"]
    best = winner(rows)
    assert best is not None
    assert best["options"] == {"num_stages": 3}
    assert winner([{"problem": "x"}]) is None


def test_the_winner_is_found_again(cache: Path) -> None:
    base = CompileOptions(f32_precision="tf32")
    assert tuned_options(SMALL.text, "sm_90a", base) is None
    best = {"options": {"num_stages": 3, "tile": [64, 128, 64]}, "ms": 1.0}
    path = store(SMALL.text, "sm_90a", "a product", base, best, [best])
    assert path == record_path(SMALL.text, "sm_90a", base)
    assert path.is_relative_to(cache)
    assert tuned_options(SMALL.text, "sm_90a", base) == CompileOptions(f32_precision="tf32", num_stages=3, tile=(64, 128, 64))
    assert tuned_options(SMALL.text, "gfx942", base) is None
    assert tuned_options(SMALL.text, "sm_90a", CompileOptions()) is None, "tuned for other numerics"
    assert tuned_options(SMALL.text + " ", "sm_90a", base) is None
    path.write_text(json.dumps(json.loads(path.read_text()) | {"treadle": "0.0.0"}))
    assert tuned_options(SMALL.text, "sm_90a", base) is None, "another Treadle's choice"
    path.write_text("{")
    assert tuned_options(SMALL.text, "sm_90a", base) is None


def test_the_verb_without_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_WORKERS", "1")
    file = tmp_path / "f.mlir"
    file.write_text(SMALL.text)
    assert invoke(["tune", str(file), "--dry-run", "--top", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["measured"]) == 2
    assert record["best"] is None
    assert not list((tmp_path / "cache").glob("tuned/*"))
    assert invoke(["tune", str(tmp_path / "absent.mlir"), "--dry-run"]) == 2
    assert "TR901" in capsys.readouterr().err


def test_tolerance_is_below_a_missing_tile() -> None:
    assert 0 < tuning.TOLERANCE < 0.5
