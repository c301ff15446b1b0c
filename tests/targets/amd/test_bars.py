"""What the default loops of contractions keep on all targets: no waits for loads within a stage, no scratch, no accumulators moved, no
copies drained; the share of matrix instructions that the model gives whole large tiles; and more of them than the peers' loops have.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from targets.amd import programs

from treadle.bench.suite import choose
from treadle.options import CompileOptions
from treadle.targets.loop_report import LoopReport, ReportsLoops
from treadle.targets.registry import backend
from treadle.tools.audit import Row, own_rows, shortfalls

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
TABLE = "static-2026-11-26-amd-loops.json"
SHARES = {"gfx942": 0.75, "gfx950": 0.85}
KINDS = {"f16": "f32", "bf16": "f32", "i8": "i32"}


def report_row(text: str, target: str) -> Row:
    """The loop of a program's first kernel."""
    tool = backend(target)
    assert isinstance(tool, ReportsLoops)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "module.mlir")
        file.write_text(text)
        return own_rows(file, target, tool, CompileOptions(), None)[0]


def report(text: str, target: str) -> tuple[str, LoopReport]:
    """The schedule of a program's one kernel, and what its loop costs."""
    row = report_row(text, target)
    return row.schedule, row.loop


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("transposed", ["", "b"])
def test_loops_of_ragged_contractions(transposed: str, target: str, kind: str) -> None:
    schedule, loop = report(programs.matmul(1000, 1016, 1040, kind, KINDS[kind], transposed=transposed).text, target)
    assert schedule != "sequential"
    assert (loop.load_waits, loop.scratch, loop.moves, loop.broken) == (0, 0, 0, ())
    assert not schedule.startswith("async") or not loop.drains


@pytest.mark.parametrize(("target", "kind"), [(target, kind) for target in SHARES for kind in KINDS])
def test_whole_large_tiles_multiply_most_of_the_time(target: str, kind: str) -> None:
    schedule, loop = report(programs.matmul(4096, 4096, 4096, kind, KINDS[kind], transposed="b").text, target)
    assert schedule == {"gfx942": "stream-4", "gfx950": "async-5"}[target]
    assert loop.matrix_share >= SHARES[target] and loop.waves == 2
    assert (loop.load_waits, loop.scratch, loop.moves, loop.broken) == (0, 0, 0, ())
    assert not schedule.startswith("async") or not loop.drains


@pytest.mark.parametrize(
    ("workload", "target", "tile", "share"),
    [
        ("ragged-123x456x51234-f32", "gfx950", (128, 128), 0.95),
        ("ragged-123x456x51234-bf16", "gfx942", (128, 128), 0.9),
        ("ragged-128x512x50001-bf16", "gfx1100", (128, 128), 0.95),
        ("ragged-128x512x50001-bf16", "gfx1201", (128, 128), 0.95),
    ],
)
def test_narrow_loads_are_for_large_tiles_of_several_workgroups(workload: str, target: str, tile: tuple[int, int], share: float) -> None:
    """Rows of any length are loaded in pieces of 2 to 8 bytes: small tiles would wait for loads, long steps leave a unit one workgroup."""
    row = report_row(choose([workload])[0].text, target)
    assert row.tile == tile and row.loop.matrix_share >= share


def rows() -> list[dict[str, Any]]:
    """The rows of the committed table."""
    return json.loads((RESULTS / TABLE).read_text())["loops"]


def test_blocks_of_scales_are_not_waited_for_among_matrix_instructions() -> None:
    """The loop over a block is one trip long, and no loop of the code: the loop over the blocks is what is read."""
    (workload,) = choose(["fp8-8192-blocks"])
    _, loop = report(workload.text, "gfx942")
    assert (loop.load_waits, loop.scratch, loop.moves, loop.broken) == (0, 0, 0, ())


def test_the_table_keeps_the_bars() -> None:
    own = [row for row in rows() if row["compiler"] == "treadle" and "error" not in row and row["fences"]]
    assert {row["target"] for row in own} == set(programs.TARGETS)
    assert not [(row["workload"], row["target"]) for row in own if shortfalls(row["target"], row)]
    assert not [row["workload"] for row in rows() if "error" in row]


def test_more_matrix_instructions_for_each_instruction_than_peers() -> None:
    peers: dict[tuple[str, str], float] = {}
    for row in rows():
        if row["compiler"] != "treadle":
            place = row["workload"], row["target"]
            peers[place] = max(peers.get(place, 0.0), row["density"])
    own = [row for row in rows() if row["compiler"] == "treadle" and row["fences"]]
    behind = {(row["workload"], row["target"]) for row in own if row["density"] <= peers.get((row["workload"], row["target"]), 0.0)}
    assert not behind
