"""Measured timelines: reading records back, and the instrumented build."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from treadle.bench.families import matmul
from treadle.bench.reductions import softmax
from treadle.dialects.stamp import CLOCK_BITS, HEADER
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.timeline.measured import instrumented
from treadle.timeline.perfetto import trace_events
from treadle.timeline.records import Recording, read_records
from treadle.transforms.kernel.insert_stamps import InsertStampsPass

EVENTS = {
    1: (None, "wait: phase of mbarrier 0"),
    2: ("wait: phase of mbarrier 0", "matrix: issue"),
    3: ("matrix: issue", "wait: wgmma <= 1"),
    4: ("wait: wgmma <= 1", None),
    40000: (None, "wait: wgmma <= 0"),
    5: ("wait: wgmma <= 0", None),
}
RECORDING = Recording("k", "sm_90a", ("consumer",), 2, 32, 1755, EVENTS)
FULL_CLOCK = (1 << CLOCK_BITS) - 100  # wraps within the records


def _words(workgroups: dict[int, tuple[int, int, list[tuple[int, int]]]], *, duration: int = 1000) -> np.ndarray:
    """`workgroup -> (steady clock, clock, events as (number, clocks since begin))`."""
    words = np.full((2, 1, 32), -1, np.int64)
    for number, (steady, clock, events) in workgroups.items():
        header = [steady, clock, 7, steady + duration * 1000 // 1755, clock + duration, len(events), -1, -1]
        words[number, 0, :HEADER] = header
        for at, (event, clocks) in enumerate(events):
            record = np.uint64(event << CLOCK_BITS | (clock + clocks) % (1 << CLOCK_BITS))
            words[number, 0, HEADER + at] = record.view(np.int64)
    return words


def test_spans_are_what_was_recorded() -> None:
    events = [(1, 10), (2, 30), (3, 35), (4, 36), (1, 40), (2, 50), (3, 55), (4, 100), (40000, 110), (5, 160)]
    found = read_records(_words({0: (5000, FULL_CLOCK, events)}), RECORDING)
    assert found.is_measured
    assert found.agents == ("wg0 consumer",)
    own = [(s.kind, s.label, s.start, s.end) for s in found.outcome.spans if s.lane == "wg0 consumer"]
    assert own[:3] == [("wait", "phase of mbarrier 0", 10, 30), ("matrix", "issue", 30, 35), ("wait", "wgmma <= 1", 35, 36)]
    assert own[-1] == ("wait", "wgmma <= 0", 110, 160)
    flight = [(s.start, s.end) for s in found.outcome.spans if s.lane == "wg0 consumer wgmma"]
    assert flight == [(30, 100), (100, 160)]  # the second group is known to run on its own from the end of the first
    assert found.outcome.clocks == 1000
    assert found.clock_mhz == 1755


def test_workgroups_lie_where_the_shared_clock_has_them() -> None:
    short = [(1, 0), (2, 10), (3, 20)]
    found = read_records(_words({0: (9000, 77, short), 1: (8000, 123456, short)}), RECORDING)
    starts = {lane: min(s.start for s in found.outcome.spans if s.lane == lane) for lane in found.agents}
    assert starts == {"wg1 consumer": 0, "wg0 consumer": pytest.approx(1755)}
    named = [e["args"]["name"] for e in trace_events([found])["traceEvents"] if e["name"] == "process_name"]
    assert named == ["k for sm_90a, 2 workgroups, measured"]


def test_the_clock_is_measured_where_a_kernel_runs_long_enough() -> None:
    long = _words({0: (0, 0, [(1, 0), (2, 50_000)])}, duration=100_000)
    assert read_records(long, RECORDING).clock_mhz in range(1750, 1760)
    long[0, 0, 3] = 100_000
    assert read_records(long, RECORDING).clock_mhz == 1000


def test_full_records_say_so_and_nonsense_is_refused() -> None:
    full = [(1 + at % 3, 10 * at) for at in range(32 - HEADER)]
    assert read_records(_words({0: (0, 0, full)}), RECORDING).outcome.is_cut
    with pytest.raises(TreadleError, match="no workgroup left records"):
        read_records(np.full(64, -1, np.int64), RECORDING)
    with pytest.raises(TreadleError, match="event 9"):
        read_records(_words({0: (0, 0, [(9, 0)])}), RECORDING)


@pytest.mark.parametrize("text", [matmul("nk", "g", 300, 520, 200, "bf16").text, softmax("s", "g", 33, 1000, "f32").text])
def test_an_instrumented_program_returns_records_behind_its_results(text: str) -> None:
    stamps = InsertStampsPass(workgroups=2, capacity=64)
    program, found = instrumented(text, "sm_90a", CompileOptions(), None, stamps)
    outputs = program.manifest.outputs
    assert [one.dtype for one in outputs[-len(found) :]] == ["i64"] * len(found)
    for one, output in zip(found, outputs[-len(found) :], strict=True):
        assert output.shape == (one.workgroups * len(one.lanes) * one.capacity,)
        assert all(number == at for at, number in enumerate(sorted(one.events), 1))
        known = set(one.events.values())
        assert len(known) == len(one.events)
        assert {ends for ends, _ in known if ends} == {begins for _, begins in known if begins}
    kinds = {label.partition(":")[0] for one in found for pair in one.events.values() for label in pair if label}
    assert kinds <= {"wait", "work", "local", "matrix", "copy", "store"}
    with pytest.raises(NotImplementedError):
        program.reference()


def test_spans_of_one_agent_do_not_overlap() -> None:
    rng = np.random.default_rng(3)
    clocks = np.cumsum(rng.integers(1, 50, 20))
    cycle = [1, 2, 3, 4]
    events = [(cycle[at % 4], int(clock)) for at, clock in enumerate(clocks)]
    found = read_records(_words({0: (0, 5, events)}), replace(RECORDING, lanes=("consumer",)))
    for lane in found.lanes:
        mine = sorted((s.start, s.end) for s in found.outcome.spans if s.lane == lane)
        assert all(before[1] <= after[0] for before, after in pairwise(mine))
