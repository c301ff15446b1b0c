"""A few mutants of the campaign; all of them: `python tests/hazards/mutations.py --count 4000`."""

from pathlib import Path

import pytest
from hazards import mutations
from hazards.mutations import judged, line_of, mutant, read_log, schedules, table
from hazards.mutations import mutations as changes_of

from treadle.dialects import sync
from treadle.verify.faults import erase
from treadle.verify.reports import Verdict

COUNT, SEED = 60, 7


def test_nothing_that_the_simulator_objects_to_passes() -> None:
    outcomes = [found for number in range(COUNT) if (found := mutant(number, SEED)) is not None]
    assert len(outcomes) > COUNT // 2
    assert [outcome for outcome in outcomes if outcome.is_missed] == []
    assert any(outcome.verifier for outcome in outcomes) and not all(outcome.verifier for outcome in outcomes)


def accepted(kernel: object, *, max_findings: int) -> Verdict:
    return Verdict()


def test_a_verifier_that_sees_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    name, kernel, symbols = next(schedule for schedule in schedules() if schedule[0] == "double_buffer")
    without = kernel.clone()
    erase(next(op for op in without.walk() if isinstance(op, sync.BarrierOp)))
    monkeypatch.setattr(mutations, "prove", accepted)
    assert judged(0, name, ("remove",), without, symbols).is_missed
    assert not judged(0, name, ("nothing",), kernel, symbols).is_missed


def test_every_kind_of_change_has_a_place() -> None:
    kinds = {kind for _, kernel, _ in schedules() for op in kernel.body.walk() for kind, _ in changes_of(op)}
    assert kinds >= {"swap with the next", "move up", "other parity", "the next slot", "one more pending", "one fewer pending", "duplicate"}
    assert kinds >= {"one more arrival", "one arrival fewer", "16 bytes more", "a peer fewer", "a receiver fewer", "another barrier"}


def test_changes_are_of_the_number_alone(tmp_path: Path) -> None:
    first, again = mutant(3, SEED), mutant(3, SEED)
    assert first == again
    log = tmp_path / "log"
    log.write_text(line_of(first, 3) + "\n" + line_of(None, 4) + "\n")
    assert read_log(log) == {3: first, 4: None}
    assert first is None or table([first]).splitlines()[-1].split()[1] == "1"


def test_a_ring_s_next_slot_stays_in_the_ring() -> None:
    kernel = next(kernel for name, kernel, _ in schedules() if name == "one_consumer").clone()
    op = next(op for op in kernel.body.walk() if isinstance(op, sync.MbarrierSlotOp))
    next(change for kind, change in changes_of(op) if kind == "the next slot")(op)
    kernel.verify()
