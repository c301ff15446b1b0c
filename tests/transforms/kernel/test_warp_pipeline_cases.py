"""Cases that other warp pipeliners are known to get right or to refuse, for waves of 64 and of 32 lanes.

Here are those that no other test of warp pipelines has: branches and loops in stages, arithmetic between stages, dependences at each
distance, unrolled loops. Stages of a ring, three stages, triple buffers, refusals: test_form_warp_pipeline.py and
test_warp_pipelines_copies.py; straight lines: test_enclose_stages.py; pipelines that follow one another: test_warp_pipeline_joints.py.
"""

import re

import pytest
from language.staged_kernels import kernel_of, lowered, unrolled
from transforms.kernel.test_form_warp_pipeline import Text, formed, kernel_in, local, refused

from treadle.dialects import sync
from treadle.ir.dialects import scf

WAVE32 = re.compile(r"\]\], lane = \[(\[[^]]*\]), ")


class Waves(Text):
    """The text for a target, whose layouts have its lanes."""

    def __str__(self) -> str:
        text = super().__str__()
        return WAVE32.sub(r"], \1], lane = [", text) if self.target == "gfx1201" else text


pytestmark = pytest.mark.parametrize("target", ["gfx942", "gfx1201"])


@pytest.mark.parametrize(
    ("stages", "slots", "expected"),
    [
        ("R,-,R,-,R,-,W,-", 1, (4, 6)),
        ("W,-,R,-", 1, (0, 2)),
        ("-,W,-,R,-", 1, (1, 3)),
        ("RW,-", 2, (0,)),
        ("-,RW,-", 2, (1,)),
        ("W,-,-,R,-,-", 1, (2, 5)),
        ("-,-,-", 1, ()),
    ],
)
def test_dependences_at_each_distance(target: str, stages: str, slots: int, expected: tuple[int, ...]) -> None:
    """R reads the slot of the iteration; W fills it, or where R comes first that of the next one. Slots that flush are as few as can be."""
    text = Waves(slots, target=target)
    for number, what in enumerate(stages.split(",")):
        done = [text.read() if each == "R" else text.store(1 if what == "RW" else 0) for each in what if each != "-"]
        text.stage(str(number), *done)
    found = local(formed(text))
    assert len(found) == len(expected)
    assert found <= expected


def test_accesses_in_branches(target: str) -> None:
    """They count as if the branch were taken."""
    text = Waves(1, target=target)
    taken = "%t = arith.cmpi slt, %i, %slots : index"
    text.stage("a", taken, "scf.if %t {", text.store(), "}").stage("b").stage("c", text.read()).stage("d")
    assert local(formed(text)) == (0, 2)


def test_loops_in_stages(target: str) -> None:
    text = Waves(1, target=target)
    text.stage("a", "scf.for %q = %c0 to %slots step %c1 {", text.store(), "}").stage("b").stage("c", text.read()).stage("d")
    assert local(formed(text)) == (0, 2)


def test_a_branch_between_stages(target: str) -> None:
    text = Waves(2, target=target)
    text.stage("a").add("%t = arith.cmpi slt, %i, %slots : index", "scf.if %t {", text.store(), "}").stage("b")
    found = refused(text).split("error TR417: warp pipeline: ")[1]
    assert (
        found == "scf.if between stages 'a' and 'b'\n  fix: put it into a stage; between stages stand waits, barriers and arithmetic alone"
    )


def test_a_loop_between_stages(target: str) -> None:
    text = Waves(2, target=target)
    text.stage("a").add("scf.for %q = %c0 to %slots step %c1 {", text.store(), "}").stage("b")
    found = refused(text).split("error TR417: warp pipeline: ")[1]
    assert (
        found == "scf.for between stages 'a' and 'b'\n  fix: put it into a stage; between stages stand waits, barriers and arithmetic alone"
    )


def test_a_wait_or_barrier_in_a_branch_of_a_stage(target: str) -> None:
    for line in ("sync.barrier", "sync.barrier bare"):
        text = Waves(2, target=target)
        text.stage("a", "%t = arith.cmpi slt, %i, %slots : index", "scf.if %t {", line, "}").stage("b")
        found = refused(text).split("error TR417: warp pipeline: ")[1]
        assert found == (
            "sync.barrier inside of stage 'a'\n  fix: put it between two stages: end the stage before it and begin another one behind it"
        )


def test_arithmetic_between_stages_that_a_wait_parts(target: str) -> None:
    """Numbers that are computed ahead of a wait, and used behind it."""
    text = Waves(3, target=target)
    queue = "lgkmcnt" if target == "gfx942" else "dscnt"
    text.stage("a", text.store(1)).add("%next = arith.addi %i, %c1 : index", f'sync.wait "{queue}" pending 0 : i64')
    text.stage("b", "%again = arith.addi %next, %c1 : index").stage("c", text.read())
    loop = next(op for op in formed(text).walk() if isinstance(op, scf.ForOp))
    found = [str(op) for op in loop.body.block.ops if isinstance(op, sync.BarrierOp | sync.WaitOp)]
    assert found[:2] == [f'sync.wait "{queue}" pending 0 : i64', "sync.barrier bare"]


def test_priorities(target: str) -> None:
    """Set at each slot where stages differ, primed ahead of the loop, reset behind it; none where no stage has one."""
    for priorities, expected in (((2, None, 3), [2, 0, 3, 2, 0]), ((1, 1, 1), [1, 0]), ((None, None, None), [])):
        text = Waves(2, target=target)
        for label, priority in zip("abc", priorities, strict=True):
            text.stage(label, priority=priority)
        kernel = kernel_in(formed(text))
        assert [op.priority.value.data for op in kernel.walk() if isinstance(op, sync.SetPriorityOp)] == expected


@pytest.mark.parametrize("by", [2, 4])
def test_unrolled_loops_and_what_is_left(target: str, by: int) -> None:
    """Each step has its stages, in the loop and in that of the rest, and each stage its priority; the groups go on between the two."""
    kernel = kernel_of(lowered(unrolled, target, k=200, U=by))
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    inside = [[op.priority.value.data for op in loop.walk() if isinstance(op, sync.SetPriorityOp)] for loop in loops]
    assert inside == [[1, 0] * by, [1, 0]]
    assert sum(isinstance(op, sync.BarrierOp) and op.groups is not None for op in kernel.walk()) == 2
