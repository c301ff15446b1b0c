"""Loops: traces, repetition, trip counts that nobody knows."""

from math import gcd
from time import process_time

import pytest
from hazards import programs_amd as amd
from hazards import programs_nvidia as nvidia
from hazards import programs_queues
from hazards.kernels import kernel_of
from hypothesis import given
from hypothesis import strategies as st

from treadle.verify import repetition, trace
from treadle.verify.check import Proof, prove
from treadle.verify.events import LoopNode, compress
from treadle.verify.program import Program
from treadle.verify.trace import Tracer


@given(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 30), st.data())
def test_compressed_iterations_are_the_same(head: list[int], block: list[int], count: int, data: st.DataObject) -> None:
    tail = data.draw(st.lists(st.integers(0, 3), max_size=5))
    iterations = [(value,) for value in head + block * count + tail]
    segments = compress(iterations)
    assert [s.iterations[at % len(s.iterations)] for s in segments for at in range(s.length)] == iterations
    firsts = [sum(s.length for s in segments[:at]) for at in range(len(segments))]
    assert [s.first for s in segments] == firsts


def test_long_repetition_is_found() -> None:
    segments = compress([(9,), *[(i % 3,) for i in range(300)], (7,)])
    assert sum(len(s.iterations) for s in segments) < 10


def run_of(text: str, monkeypatch: pytest.MonkeyPatch, skip: bool) -> tuple[int, int]:
    """How many events a run looks at, and how many findings it has."""
    with monkeypatch.context() as patched:
        if not skip:
            patched.setattr(repetition.Repetitions, "turned", lambda self: None)  # pyright: ignore[reportUnknownLambdaType]
        proof = Proof(Program(kernel_of(text)), 8)
        found = len(proof.verdict().findings)
    return proof.cost, found


LONG = {
    "ring": nvidia.tma_ring(4, 2, 197),
    "roles": nvidia.producer_consumer(3, 2, 101),
    "carried": nvidia.producer_consumer(3, 1, 100, carried=True),
    "nested": nvidia.nested(3, 30, 16),
    "cp_async": programs_queues.cp_async_ring(5, 3, 99),
    "bulk_store": programs_queues.bulk_store_ring(90),
    "ping_pong": nvidia.ping_pong(80),
    "direct": amd.direct_ring(3, 2, 91),
    "two_groups": amd.two_groups(90),
}


@pytest.mark.parametrize("name", LONG)
def test_repetition_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, found = run_of(LONG[name], monkeypatch, skip=True)
    many, same = run_of(LONG[name], monkeypatch, skip=False)
    assert (found, same) == (0, 0)
    assert few * 2 < many


REMEMBERED = {
    "tiles": nvidia.nested(3, None, 7, meetings=1),
    "known tiles": nvidia.nested(4, 9, 6),
    "one loop": nvidia.producer_consumer(3, 2, None),
    "direct": amd.direct_ring(3, 2, 20),
}


@pytest.mark.parametrize("name", REMEMBERED)
def test_loops_that_are_followed_once_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = [Proof(Program(kernel_of(REMEMBERED[name])), 8)]
    verdicts = [proofs[0].verdict()]
    monkeypatch.setattr(trace, "remembered", lambda state, op, follow: follow)  # pyright: ignore[reportUnknownLambdaType]
    proofs.append(Proof(Program(kernel_of(REMEMBERED[name])), 8))
    verdicts.append(proofs[1].verdict())
    assert verdicts[0].is_proven and verdicts[1].is_proven
    assert proofs[0].trip_counts == proofs[1].trip_counts
    assert proofs[0].cost == proofs[1].cost, "events that the runs looked at"
    assert proofs[0].tracer.state.cost <= proofs[1].tracer.state.cost


LATE = {
    "last slot of the ring": nvidia.tma_ring(4, 2, 97).replace('sync.wait "wgmma" pending 2', 'sync.wait "wgmma" pending 3'),
    "copies": programs_queues.cp_async_ring(5, 3, 99, pending=3),
    "release": nvidia.producer_consumer(3, 2, 101, wait_first=False),
    "one slot": amd.two_groups(90, slots=1),
}


@pytest.mark.parametrize("name", LATE)
def test_leaving_out_loses_no_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_of(LATE[name], monkeypatch, skip=True)[1] > 0
    assert run_of(LATE[name], monkeypatch, skip=False)[1] > 0


@pytest.mark.parametrize("steps", range(9))
def test_faults_behind_a_long_loop_see_the_right_remainder(steps: int) -> None:
    """The slot that is read behind the loop is the last one only for the right remainder."""
    total = 90 + steps
    text = programs_queues.cp_async_ring(3, 2, total)
    assert prove(kernel_of(text)).is_proven
    ahead = "%ahead = arith.constant "
    wrong = text.replace(f"{ahead}2", f"{ahead}3")
    assert prove(kernel_of(wrong)).findings


@pytest.mark.parametrize(
    "text",
    [nvidia.producer_consumer(4, 2, 10_000), nvidia.tma_unpipelined(80_000), nvidia.nested(4, 40, 80)],
    ids=["roles", "parity", "nested"],
)
def test_long_loops_cost_little(text: str) -> None:
    kernel = kernel_of(text)
    start = process_time()
    assert prove(kernel).is_proven
    assert process_time() - start < 2.5


def lengths(text: str) -> list[int]:
    """The trip counts that a proof looks at."""
    proof = Proof(Program(kernel_of(text)), 8)
    assert proof.verdict().is_proven
    return [max(trips.values()) for trips in proof.trip_counts]


def test_all_classes_of_trip_counts_are_run() -> None:
    counts = lengths(nvidia.producer_consumer(3, 1, None))
    assert set(range(6)) <= set(counts), "each, until the ring is full and whole rounds of it are known to repeat"
    assert len(counts) < 12


@pytest.mark.parametrize(("stages", "steps"), [(8, 23), (5, 7), (7, 1), (4, 13), (6, 9), (3, 20)])
@pytest.mark.parametrize("meetings", [0, 1, 3])
def test_tiles_and_ring_that_do_not_divide(stages: int, steps: int, meetings: int) -> None:
    """Slots and parities come back after a number of tiles; the states of the run do so no later, however the roles drift."""
    proof = Proof(Program(kernel_of(nvidia.nested(stages, None, steps, meetings=meetings))), 8)
    assert proof.verdict().is_proven
    tiles = 2 * stages // gcd(2 * stages, steps)
    assert proof.classes <= 3 * tiles + stages


def test_trip_counts_in_tiles_of_a_size() -> None:
    """The bound is a size in elements; every count of steps is reached once, not every size."""
    text = amd.double_buffer(dynamic=True).replace("to %n step %c1", "to %n step %c64").replace("%i, %c64 : index", "%i, %c1 : index")
    text = text.replace("%r = arith.remui %i, %ring", "%r0 = arith.divui %i, %c64 : index\n  %r = arith.remui %r0, %ring")
    counts = lengths(text)
    assert {0, 1, 2, 3} <= set(counts)
    assert len(counts) < 20


def test_loops_without_iterations_leave_no_node() -> None:
    tracer = Tracer(Program(kernel_of(nvidia.producer_consumer(3, 1, 0))))
    assert not any(isinstance(node, LoopNode) for node in tracer.run(()).nodes)
    assert prove(kernel_of(nvidia.producer_consumer(3, 1, 0))).is_proven


def test_workgroup_ids_are_tried() -> None:
    """A persistent loop runs fewer rounds in some workgroups: none, one, all."""
    text = amd.double_buffer(3).replace("%i = %c0 to %n step %c1", "%i = %p to %n step %c1")
    text = text.replace("  scf.for", "  %p = tile.program_id 0 : i64\n  scf.for").replace('grid = ["1"', 'grid = ["5"')
    assert set(lengths(text)) == {0, 1, 2, 3}
