"""The model on steps written by hand: who waits for what, and how long."""

import pytest

from treadle.machine import target_spec
from treadle.timeline.durations import (
    CACHE_LATENCY,
    ISSUE,
    MEETING,
    MEMORY_LATENCY,
    Traffic,
    contraction,
    elementwise,
    local_access,
    transfer,
)
from treadle.timeline.model import MATRIX, MEMORY, Agent, Model, Outcome
from treadle.timeline.steps import Step

HOPPER = target_spec("sm_90a")


def run(*agents: tuple[str, list[Step]], mbarriers: dict[str, int] | None = None, until: float = float("inf")) -> Outcome:
    return Model([Agent(name, 4, iter(steps)) for name, steps in agents], mbarriers or {}, until).run()


def spans(outcome: Outcome, lane: str, kind: str) -> list[tuple[float, float]]:
    return [(s.start, s.end) for s in outcome.spans if (s.lane, s.kind) == (lane, kind)]


def test_work_follows_work() -> None:
    outcome = run(("a", [Step("work", "x", 10.0), Step("work", "y", 5.0)]))
    assert spans(outcome, "a", "work") == [(0, 10), (10, 15)]
    assert (outcome.clocks, outcome.is_cut, outcome.stuck) == (15, False, ())


def test_a_load_is_waited_for_where_it_is_used() -> None:
    load = Step("load", "l", 100.0, 50.0, defines=(1,))
    outcome = run(("a", [load, Step("work", "free", 20.0), Step("work", "user", 3.0, uses=(1,))]))
    assert spans(outcome, MEMORY, "copy") == [(ISSUE, ISSUE + 100)]
    assert spans(outcome, "a", "wait") == [(ISSUE + 20, ISSUE + 150)]
    assert outcome.clocks == ISSUE + 153


def test_matrix_units_serve_in_turn() -> None:
    steps = [Step("matrix", "m", 100.0, queue="wgmma"), Step("commit", "c", queue="wgmma"), Step("wait", "w", queue="wgmma", pending=0)]
    outcome = run(("a", list(steps)), ("b", list(steps)))
    assert spans(outcome, MATRIX, "matrix") == [(0, 100), (100, 200)]
    assert spans(outcome, "b", "wait") == [(ISSUE, 200)]
    assert outcome.busy(MATRIX) == 1.0
    assert outcome.waiting("b") == (200 - ISSUE) / 200


@pytest.mark.parametrize(("pending", "until"), [(0, 300.0), (1, 200.0), (2, 100.0)])
def test_a_wait_leaves_the_newest_groups(pending: int, until: float) -> None:
    one = [Step("matrix", "m", 100.0, queue="wgmma"), Step("commit", "c", queue="wgmma")]
    outcome = run(("a", [*one * 3, Step("wait", "w", queue="wgmma", pending=pending)]))
    assert spans(outcome, "a", "wait")[-1][1] == until


def test_what_nobody_committed_is_not_waited_for() -> None:
    outcome = run(("a", [Step("matrix", "m", 100.0, queue="wgmma"), Step("wait", "w", queue="wgmma", pending=0)]))
    assert spans(outcome, "a", "wait") == []


def test_in_order_counters_need_no_commit() -> None:
    copy = Step("copy", "c", 100.0, 10.0, queue="vmcnt", is_group=True)
    outcome = run(("a", [copy, copy, Step("wait", "w", queue="vmcnt", pending=1)]))
    assert spans(outcome, "a", "wait") == [(2 * ISSUE, ISSUE + 110)]


def test_a_read_wait_is_shorter_than_a_wait() -> None:
    copy_out = [Step("store_async", "s", 40.0, 500.0, queue="bulk_store"), Step("commit", "c", queue="bulk_store")]
    ends = [run(("a", [*copy_out, Step("wait", "w", queue="bulk_store", is_read=is_read)])).clocks for is_read in (True, False)]
    assert ends == [ISSUE + 40, ISSUE + 540]


def ring(trips: int, slots: int, *, arrive: bool = True) -> Outcome:
    """A producer and a consumer with full and empty barriers."""
    producer: list[Step] = []
    consumer: list[Step] = []
    for i in range(trips):
        slot, parity = i % slots, i // slots % 2
        full, empty = f"full[{slot}]", f"empty[{slot}]"
        producer += [
            Step("wait_phase", "empty", barrier=empty, parity=1 - parity),
            Step("expect", "expect", barrier=full, count=64),
            Step("copy", "copy", 100.0, 300.0, barrier=full, count=64),
        ]
        consumer += [Step("wait_phase", "full", barrier=full, parity=parity), Step("work", "use", 150.0)]
        consumer += [Step("arrive", "free", barrier=empty, count=1)] if arrive else []
    barriers = {f"{name}[{slot}]": 1 for name in ("full", "empty") for slot in range(slots)}
    return run(("producer", producer), ("consumer", consumer), mbarriers=barriers)


def test_deeper_rings_hide_latency() -> None:
    clocks = [ring(40, slots).clocks for slots in (1, 2, 4)]
    assert clocks[0] > 1.5 * clocks[1] > 1.5 * clocks[2]
    assert clocks[2] == pytest.approx(40 * 150, rel=0.2), "then computing is what takes the time"


def test_who_waits_forever_is_told() -> None:
    assert ring(9, 2).stuck == ()
    assert ring(9, 2, arrive=False).stuck == ("producer", "consumer")
    assert ring(2, 2, arrive=False).stuck == ()


def test_a_meeting_waits_for_all() -> None:
    meet = Step("barrier", "b", barrier="all", count=8)
    outcome = run(("a", [Step("work", "x", 10.0), meet, Step("work", "after", 1.0)]), ("b", [Step("work", "y", 50.0), meet]))
    assert spans(outcome, "a", "wait") == [(10, 50 + MEETING)]
    assert spans(outcome, "a", "work")[-1] == (50 + MEETING, 51 + MEETING)
    assert run(("a", [meet])).stuck == ("a",)


def test_who_only_arrives_goes_on() -> None:
    arrive, meet = (Step("barrier", "b", barrier="n", count=8, is_arrival=first) for first in (True, False))
    outcome = run(("a", [arrive, Step("work", "x", 90.0)]), ("b", [Step("work", "y", 50.0), meet]))
    assert spans(outcome, "a", "work") == [(0, 90)]
    assert spans(outcome, "b", "wait") == [(50, 50 + MEETING)]


def test_a_meeting_can_be_repeated() -> None:
    meet = Step("barrier", "b", barrier="all", count=8)
    outcome = run(("a", [meet, meet, meet]), ("b", [Step("work", "y", 50.0), meet, meet, Step("work", "y", 50.0), meet]))
    assert outcome.stuck == ()


def test_the_model_stops_where_it_is_told() -> None:
    outcome = run(("a", [Step("work", "x", 10.0)] * 100), until=55.0)
    assert (outcome.is_cut, outcome.stuck, outcome.clocks) == (True, (), 60)


def test_durations_from_facts() -> None:
    assert contraction(HOPPER, "wgmma_m64k16_f32_bf16_bf16", 64, 256, 64, 4) == 512
    assert contraction(HOPPER, "wgmma_m64k16_f32_bf16_bf16", 128, 128, 64, 4) == 512
    assert contraction(HOPPER, "wgmma_m64k32_f32_f8E4M3FN_f8E4M3FN", 64, 256, 64, 4) == 256
    assert contraction(HOPPER, "fma", 64, 64, 32, 8) == 64 * 64 * 32 / 128
    assert contraction(target_spec("gfx942"), "mfma_16x16x16_f32_bf16", 64, 64, 32, 4) == 4 * 4 * 2 * 16 / 4
    assert contraction(target_spec("gfx942"), "mfma_16x16x16_f32_bf16", 64, 64, 32, 1) == 4 * 4 * 2 * 16
    assert local_access(HOPPER, 1280) == 10
    assert elementwise(HOPPER, (64, 64), "arith.addf", 4) == 32
    assert elementwise(HOPPER, (64, 64), "arith.addf", 1) == 128
    assert elementwise(HOPPER, (64, 64), "math.exp", 4) == 256
    assert HOPPER.product.unit_bytes_per_clock == pytest.approx(20.7, abs=0.1)


def test_what_is_read_again_comes_out_of_the_cache() -> None:
    cold, cold_latency = transfer(HOPPER, 4600, Traffic(100.0, 100.0))
    warm, warm_latency = transfer(HOPPER, 4600, Traffic(100.0, 1.0))
    assert cold == pytest.approx(4600 / HOPPER.product.unit_bytes_per_clock)
    assert warm == 100
    assert (cold_latency, warm_latency) == (MEMORY_LATENCY, pytest.approx(CACHE_LATENCY, rel=0.02))
