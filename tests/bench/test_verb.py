"""`treadle bench` with a worker that the test plays: progress, table, means, what is kept, exit status."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from treadle import driver
from treadle.bench import records
from treadle.bench.records import CaseRecord
from treadle.tools import bench
from treadle.tools.main import invoke

Asked = list[Mapping[str, Any]]


class FakeSession:
    """Answers every case with a ratio of 1.25, a wrong one for `k512`, and no answer for `swiglu`."""

    asked: Asked = []

    def __enter__(self) -> "FakeSession":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[str, Any]:
        self.asked.append({**request, "seconds": seconds})
        if request["kind"] == "environment":
            return "ok", {"device": "a device", "packages": {"torch": "9.9"}}
        name = request["name"]
        if name == "swiglu":
            return "timeout", "no answer after 1 s"
        record = CaseRecord(name, "g", name, ms={"treadle": 0.8, "torch": 1.0}, ratio={"torch": 1.25}, host_us={"treadle": 5.0})
        record.state = {"clocks.sm": "1755 MHz"}
        if name == "k512":
            record.status, record.message = "wrong", "output y is outside its bounds"
        return "ok", record.plain()


@pytest.fixture(name="asked")
def fixture_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    def nothing() -> None:
        return None

    def target(device: str) -> str:
        return "sm_90a"

    monkeypatch.setattr(bench, "Session", FakeSession)
    monkeypatch.setattr(bench, "require_torch", nothing)
    monkeypatch.setattr(driver, "target_of_device", target)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(FakeSession, "asked", [])
    return FakeSession.asked


def test_all_is_right(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "square-2048-*", "--quick", "--option", "num_stages=3", "--timeout", "77"]) == 0
    shown = capsys.readouterr()
    assert "geometric means of peer / treadle: g 1.250, all 1.250" in shown.out
    assert "2 of 2 right on a device; torch 9.9" in shown.out
    assert "1755 MHz" in shown.out
    assert "2/2 square-2048-kn: ok" in shown.err
    assert [request["kind"] for request in asked] == ["environment", "case", "case"]
    assert asked[1]["options"] == {"num_stages": 3}
    assert asked[1]["peers"] == ["torch"]
    assert asked[1]["measure"]["rounds"] == 11
    assert asked[1]["seconds"] == 77


def test_what_goes_wrong_is_told_and_kept(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "k512", "swiglu", "square-2048-nk", "--save", "mine", "--max-autotune"]) == 1
    shown = capsys.readouterr().out
    assert "k512: wrong: output y is outside its bounds" in shown
    assert "swiglu: timeout: no answer after 1 s" in shown
    assert "1 of 3 right" in shown
    kept = records.read(Path("benchmarks/results/mine.json"))
    assert [(record.name, record.status) for record in kept] == [("square-2048-nk", "ok"), ("k512", "wrong"), ("swiglu", "timeout")]
    assert asked[1]["peers"] == ["torch", "torch.compile"]
    assert asked[1]["seconds"] > 150


def test_the_part_of_a_copys_rate_is_shown() -> None:
    plain = CaseRecord("square", "g", "t", ms={"treadle": 0.8, "torch": 1.0}, ratio={"torch": 1.25}, host_us={"treadle": 5.0})
    beside = CaseRecord("decode", "g", "t", ms={"treadle": 0.8, "torch": 1.0, "copy": 0.7}, ratio={"torch": 1.25}, of_copy=0.875)
    beside.host_us = {"treadle": 5.0}
    failed = CaseRecord("late", "g", "t", status="timeout")
    made = bench.results_table([plain, beside, failed])
    cells = {str(column.header): list(column.cells) for column in made.columns}
    assert cells["of copy"] == ["-", "87.5%", "-"]
    assert not any("copy ms" in name or "x copy" in name for name in cells)
    assert {len(column) for column in cells.values()} == {3}
    assert "of copy" not in [column.header for column in bench.results_table([plain]).columns]


def test_json_and_no_peer(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "k512", "--vs", "none", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["cases"][0]["status"] == "wrong"
    assert content["cases"][0]["best_ratio"] is None
    assert asked[1]["peers"] == []


def test_a_deadline_leaves_cases_out(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "prefill", "--deadline", "0.000001", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["cases"] == []
    assert len(content["environment"]["not_begun"]) == 4


def test_names_and_lists(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "--save", "../x"]) == 2
    assert invoke(["bench", "nonsense"]) == 2
    assert "TR821" in capsys.readouterr().err
    assert invoke(["bench", "decode", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 8
    assert invoke(["bench", "k512", "--text"]) == 0
    assert "func.func @matmul" in capsys.readouterr().out
    assert asked == []


def test_tuned_options_are_used(asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from treadle.bench.suite import find
    from treadle.bench.tuning import store

    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    workload = find("square-2048-nk")
    assert workload is not None
    store(workload.text, "sm_90a", "a product", workload.options, {"options": {"num_stages": 5}, "ms": 1.0}, [])
    assert invoke(["bench", "square-2048-*", "--tuned", "--option", "consumer_warpgroups=2"]) == 0
    assert [request["options"] for request in asked[1:]] == [{"consumer_warpgroups": 2, "num_stages": 5}, {"consumer_warpgroups": 2}]


def test_random_workloads_are_measured_and_reported(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "--random", "4", "--seed", "9", "--dtype", "bf16", "--layouts", "nn"]) == 0
    names = [request["name"] for request in asked[1:]]
    assert len(names) == 4
    assert all(name.startswith("gemm-bf16-nn-") for name in names)
    shown = capsys.readouterr().out
    assert "4 workloads: geometric mean 1.250" in shown
    assert f"1.250 {names[0]}: contraction" in shown


def test_unknown_samples_types_and_layouts_are_refused(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--sample", "mine"], ["--dtype", "q4"], ["--layouts", "xy"]):
        assert invoke(["bench", "--random", "4", *words]) == 2
        assert f"{words[0]} {words[1]}: known are" in capsys.readouterr().err
