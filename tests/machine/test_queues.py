"""Queues of the rows: one of each role, waits encoded as the generation's instruction has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import Queue, known_targets, target_spec

ENCODINGS = {
    # the immediates of `s_waitcnt vmcnt(0)`, `vmcnt(9)`, `lgkmcnt(0)` as LLVM assembles them
    ("gfx942", "vmcnt", 0): 0x0F70,
    ("gfx942", "vmcnt", 9): 0x0F79,
    ("gfx942", "vmcnt", 63): 0xCF7F,
    ("gfx942", "lgkmcnt", 0): 0xC07F,
    ("gfx1100", "vmcnt", 0): 0x03F7,
    ("gfx1100", "lgkmcnt", 0): 0xFC07,
    ("gfx1201", "dscnt", 0): 0,
}
QUEUES = [(name, queue) for name in known_targets() if ":" not in name for queue in target_spec(name).queues]


def queue(target: str, name: str) -> Queue:
    found = target_spec(target).queue(name)
    assert found is not None
    return found


@pytest.mark.parametrize(("target", "name", "pending"), ENCODINGS)
def test_waits_are_encoded_as_the_generation_does(target: str, name: str, pending: int) -> None:
    field = queue(target, name).wait
    assert field is not None and field.immediate(pending) == ENCODINGS[target, name, pending]


@given(st.sampled_from([found for _, found in QUEUES if found.wait is not None]), st.data())
def test_a_wait_is_for_its_own_queue_alone(found: Queue, data: st.DataObject) -> None:
    pending = data.draw(st.integers(0, found.max_pending))
    assert found.wait is not None
    immediate, bits = found.wait.immediate(pending), 0
    own = sum(((1 << count) - 1) << first for first, count in found.wait.parts)
    read = 0
    for first, count in found.wait.parts:
        read |= (immediate >> first & (1 << count) - 1) << bits
        bits += count
    assert read == pending
    assert immediate & ~own == found.wait.others & ~own


@pytest.mark.parametrize("target", [name for name in known_targets() if ":" not in name])
def test_roles_and_names_tell_queues_apart(target: str) -> None:
    spec = target_spec(target)
    assert len({found.role for found in spec.queues}) == len({found.name for found in spec.queues}) == len(spec.queues)
    for found in spec.queues:
        assert spec.queue(found.name) is spec.queue_for(found.role) is found
    assert spec.queue("none") is None
