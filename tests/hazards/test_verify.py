"""The verifier against the schedules: nothing against the right ones, every known race and every needed operation's fault caught."""

from time import process_time

import pytest
from hazards.kernels import kernel_of
from hazards.programs import PROGRAMS, RACES, SWEEP, Schedule

from treadle.verify.check import is_right, prove
from treadle.verify.faults import faults
from treadle.verify.lint import needed_sync_ops, sync_ops
from treadle.verify.verify_schedule import explained_verdict

MAX_SECONDS = 1.0

# Operations whose removal is no fault, by program: index among the operations that order memory.
SUPERFLUOUS = {"ping_pong": 3, "direct_ring": 1}
# Weakened forms that are still strong enough.
STRONG_ENOUGH = {"ping_pong": 1, "direct_ring": 1, "two_groups": 2}


@pytest.mark.parametrize("schedule", PROGRAMS.values(), ids=PROGRAMS)
def test_nothing_is_said_against_a_right_schedule(schedule: Schedule) -> None:
    kernel = kernel_of(schedule.text, schedule.name)
    start = process_time()
    verdict = prove(kernel)
    seconds = process_time() - start
    assert verdict.is_proven, verdict.first_error("k")
    assert seconds <= MAX_SECONDS


@pytest.mark.parametrize(("stages", "ahead"), SWEEP)
def test_rings_of_queued_copies(stages: int, ahead: int) -> None:
    assert prove(kernel_of(SWEEP[stages, ahead])).is_proven


@pytest.mark.parametrize("schedule", RACES.values(), ids=RACES)
def test_known_races_are_caught(schedule: Schedule) -> None:
    found = explained_verdict(kernel_of(schedule.text, schedule.name)).findings
    assert found
    assert found[0].rule in schedule.rules
    assert found[0].steps
    location = found[0].second.location
    assert location is not None and location.file == f"{schedule.name}.mlir"


@pytest.mark.parametrize("schedule", PROGRAMS.values(), ids=PROGRAMS)
def test_faults_are_caught(schedule: Schedule) -> None:
    kernel = kernel_of(schedule.text, schedule.name)
    removed = [f.description for f in faults(kernel, ("remove",)) if is_right(f.kernel)]
    weakened = [f.description for f in faults(kernel, ("weaken",)) if is_right(f.kernel)]
    assert len(removed) == SUPERFLUOUS.get(schedule.name, 0), removed
    assert len(weakened) == STRONG_ENOUGH.get(schedule.name, 0), weakened
    needed = needed_sync_ops(kernel)
    assert len(needed) + len(removed) == sum(1 for _ in sync_ops(kernel))


PHASE_FIXES = {
    ("tma_unpipelined", "sync.mbarrier_expect"): "add sync.mbarrier_expect of 16384 bytes before tile.copy",
    ("tma_unpipelined", "sync.wait_phase"): "add sync.wait_phase of %full, parity %parity, before tile.contract",
    ("two_consumers", "sync.mbarrier_expect"): "add sync.mbarrier_expect of 24576 bytes before tile.copy",
    ("two_consumers", "sync.arrive"): "add sync.arrive at sync.mbarrier_alloc",
    ("tma_ring_3_2", "sync.wait_phase"): "add sync.wait_phase of %full, parity %parity, before tile.contract",
    ("cluster_shared_operand", "sync.mbarrier_expect"): "add sync.mbarrier_expect of 16384 bytes before tile.copy",
    ("cluster_shared_operand", "sync.arrive"): "(%empty) after sync.wait",
    ("cluster_shared_operand", "sync.cluster_barrier"): "add sync.cluster_barrier",
    ("nested", "sync.wait_phase"): "add sync.wait_phase",
    ("dynamic_consumer", "sync.wait_phase"): "add sync.wait_phase",
}


@pytest.mark.parametrize(("name", "removed"), PHASE_FIXES)
def test_fixes_of_phases(name: str, removed: str) -> None:
    """Whatever is taken away is proposed again, and nothing is left to object to then."""
    kernel = kernel_of(PROGRAMS[name].text, name)
    walked = list(kernel.walk())
    fixes = [explained_verdict(f.kernel).findings[0].fix for f in faults(kernel, ("remove",)) if walked[f.index].name == removed]
    assert fixes
    assert all(PHASE_FIXES[name, removed] in fix and "another fault" not in fix for fix in fixes), fixes


def test_fixes_of_the_known_races() -> None:
    """What is proposed does fix it (it was verified), and is what a person would have done."""
    proposed = {name: explained_verdict(kernel_of(s.text, name)).findings[0].fix for name, s in RACES.items()}
    assert "before scf.for" in proposed["iree_22468_prologue_without_barrier"]
    assert "add sync.barrier before tile.local_store" in proposed["iree_23435_read_without_barrier"]
    assert "move sync.arrive" in proposed["nvfuser_3561_release_before_wait"]
    assert "move sync.barrier" in proposed["nvfuser_3865_wait_after_barrier"]
    assert "add sync.barrier before tile.local_store" in proposed["nvfuser_3960_epilogue_input_aliases_store_buffer"]
    assert "lower `pending`" in proposed["triton_9720_four_stages_on_three_buffers"]
    assert "add sync.barrier before sync.mbarrier_expect" in proposed["triton_11047_wait_narrower_than_readers"]
    assert "one more (2)" in proposed["trailing_group_one_slot"]
    assert 'add sync.wait "wgmma" pending 0 before scf.yield' in proposed["registers_given_up_in_flight"]
