"""Timelines of real kernels: compiled ones on two vendors' machines, hand-written schedules, the picture, the trace, the verb."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from sim.schedule.faults import kernel_of
from sim.schedule.programs import PROGRAMS

from treadle.bench.families import gated, matmul
from treadle.bench.reductions import softmax
from treadle.errors import TreadleError
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.timeline.extract import Extractor
from treadle.timeline.kernels import timelines
from treadle.timeline.model import MATRIX, Model
from treadle.timeline.perfetto import trace_events
from treadle.tools.main import invoke

LARGE = matmul("nk", "g", 1024, 1024, 1024, "bf16").text
RAGGED = matmul("kn", "g", 123, 77, 501, "f16", transposed=False).text


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_schedules_come_to_their_end(name: str) -> None:
    kernel = kernel_of(PROGRAMS[name]().text)
    extracted = Extractor(kernel, target_spec(kernel.target.data), {}).extract()
    outcome = Model(extracted.agents, extracted.mbarriers).run()
    assert outcome.stuck == ()
    assert outcome.clocks > 0
    assert not outcome.is_cut


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("text", [LARGE, RAGGED, softmax("s", "g", 33, 1000, "f32").text, gated("g", "g", 65, 130, 77, "f16").text])
def test_compiled_kernels_have_a_timeline(text: str, target: str) -> None:
    for one in timelines(text, target):
        outcome = one.outcome
        assert outcome.clocks > 0
        assert one.workgroups > 0
        for lane in one.lanes:
            mine = sorted((s.start, s.end) for s in outcome.spans if s.lane == lane)
            assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(mine)), f"{lane} does two things at once"
            assert 0 < outcome.busy(lane) + outcome.waiting(lane) <= 1 + 1e-9


def test_roles_keep_the_matrix_units_busier_than_one_after_the_other() -> None:
    roles = timelines(LARGE, "sm_90a")[0]
    plain = timelines(LARGE, "sm_90a", CompileOptions(tile=(128, 128, 64), warps=(4, 1)))[0]
    assert len(roles.agents) > 1
    assert plain.agents == ("workgroup",)
    assert roles.outcome.busy(MATRIX) > plain.outcome.busy(MATRIX)


def test_the_model_may_be_cut() -> None:
    one = timelines(LARGE, "sm_90a", until=3000)[0]
    assert one.outcome.is_cut
    assert all(span.start < 3000 + 5000 for span in one.outcome.spans)


def test_trace_events_are_those_of_the_format() -> None:
    found = timelines(LARGE, "sm_90a", until=20000)
    events = trace_events(found)["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(found[0].outcome.spans)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in complete} == named
    assert all(e["dur"] > 0 and e["ts"] >= 0 for e in complete)
    assert complete[0]["dur"] == pytest.approx(complete[0]["args"]["clocks"] / 1755, rel=0.01)


def test_sizes_that_only_the_runtime_knows() -> None:
    dynamic = RAGGED.replace("tensor<123x", "tensor<?x").replace("%t2 = tensor.empty() :", "%t2 = tensor.empty(%m) :")
    dynamic = dynamic.replace("{\n", "{\n  %c0 = arith.constant 0 : index\n  %m = tensor.dim %x, %c0 : tensor<?x501xf16>\n", 1)
    dynamic = dynamic.replace("tensor.empty() : tensor<?x", "tensor.empty(%m) : tensor<?x")
    with pytest.raises(TreadleError, match="TR824") as error:
        timelines(dynamic, "sm_90a")
    name = error.value.fix.partition("--size ")[2].partition("=")[0]
    small, large = (timelines(dynamic, "sm_90a", sizes={name: size})[0].workgroups for size in (64, 6400))
    assert large > small


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(RAGGED)
    assert invoke(["timeline", str(file), "--target", "gfx942"]) == 0
    shown = capsys.readouterr().out
    assert "matrix units" in shown
    assert "modelled" in shown
    assert invoke(["timeline", str(file), "-o", str(tmp_path / "t.json")]) == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert invoke(["timeline", str(file), "-o", str(tmp_path / "t.txt")]) == 2
    assert invoke(["timeline", str(file), "--size", "s0"]) == 2
    assert "TR801" in capsys.readouterr().err


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    for ending, start in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        path = tmp_path / f"t{ending}"
        assert invoke(["timeline", "k512", "-o", str(path), "--end", "3000", "--until", "4000"]) == 0
        assert path.read_bytes().startswith(start)


def test_a_picture_without_matplotlib(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.timeline import draw

    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(draw, "import_module", absent)
    assert invoke(["timeline", "k512", "-o", str(tmp_path / "t.svg"), "--until", "2000"]) == 2
    assert "TR551" in capsys.readouterr().err
