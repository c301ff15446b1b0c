"""Runs that go on from another's moment, or end as another did: they judge as runs of their own do."""

from collections.abc import Iterator
from math import gcd
from random import Random

import pytest
from hazards import programs_amd as amd
from hazards import programs_nvidia as nvidia
from hazards.kernels import kernel_of
from hazards.mutations import mutations
from verify.class_programs import compared, passed, text

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.verify import moments, repetition, ring_counters
from treadle.verify.check import Proof, prove
from treadle.verify.clocks import Frame
from treadle.verify.engine import Engine
from treadle.verify.events import Node
from treadle.verify.memory import Geometry
from treadle.verify.program import Program
from treadle.verify.trace import Tracer

DYNAMIC = {
    "roles": nvidia.producer_consumer(3, 1, None),
    "groups": nvidia.producer_consumer(2, 2, None, carried=True),
    "tiles": nvidia.nested(3, None, 5, meetings=1),
    "buffers": amd.double_buffer(dynamic=True),
}
SIZES = range(9)
MUTANTS = 16


def is_refuted(kernel: tile.KernelOp, size: int) -> bool:
    """Whether one run of all iterations shows a fault: nothing is left out, nothing shared with other runs."""
    program = Program(kernel)
    tracer = Tracer(program)
    trace = tracer.run((size,))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repetition.Repetitions, "turned", lambda self: None)  # pyright: ignore[reportUnknownLambdaType]
        return bool(Engine(program, tracer.state.nodes, Geometry(program), 1).run(trace))


def mutants(source: str, seed: int) -> Iterator[tile.KernelOp]:
    """The kernel with one thing changed at random, as often as that gives a kernel that means something."""
    chosen = Random(seed)
    for _ in range(MUTANTS):
        kernel = kernel_of(source)
        changes = [(op, change) for op in kernel.body.walk() for _, change in mutations(op)]
        op, change = chosen.choice(changes)
        try:
            change(op)
            kernel.verify()
            Program(kernel)
        except TreadleError:
            continue
        yield kernel


@pytest.mark.parametrize("name", DYNAMIC)
def test_mutants_are_judged_as_by_runs_of_their_own(name: str) -> None:
    """Proven: no size of some has a fault in a full run. Refuted: the run at the size that the finding names shows one."""
    proven = refuted = 0
    for kernel in mutants(DYNAMIC[name], 11):
        verdict = prove(kernel, max_findings=1)
        if verdict.is_proven:
            proven += 1
            assert not any(is_refuted(kernel, size) for size in SIZES)
        elif verdict.findings:
            refuted += 1
            assert is_refuted(kernel, verdict.findings[0].where[0][1])
    assert refuted
    assert proven


def _no_counters(operations: "ring_counters.Operations") -> None:
    """Rings are seen as they are."""


@pytest.mark.parametrize(("stages", "steps"), [(8, 23), (5, 7), (7, 1), (4, 13), (6, 9), (3, 20)])
def test_rounds_are_whole_turns_of_the_ring(stages: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What repeats in a run over more tiles is counted from that run's own iterations, not from those of the run that it goes on from."""
    found: set[int] = set()
    known = repetition.Repetitions.end

    def end(repetitions: repetition.Repetitions) -> None:
        found.update(each for _, _, _, pumps in repetitions.log for _, stretch, each in pumps if stretch >= 0)
        known(repetitions)

    monkeypatch.setattr(repetition.Repetitions, "end", end)
    monkeypatch.setattr(ring_counters, "ring_counters", _no_counters)  # which see any iteration as a whole turn
    assert prove(kernel_of(nvidia.nested(stages, None, steps, meetings=1))).is_proven
    tiles = 2 * stages // gcd(2 * stages, steps)
    assert found
    assert all(each % tiles == 0 for each in found)


def two_workgroups(*, before: bool) -> str:
    """Both work on tiles in turn, one on three, one on two. The latter leaves out a barrier, `before` the loop or behind it."""
    once = [f"  {compared('%skip', 'eq', '%p', '%c1')}", *[line.replace("%x", "%ox").replace("%y", "%oy") for line in passed()]]
    loop = ["  %never = arith.constant false", "  scf.for %i = %p to %c5 step %c2 {", *passed("%never"), "  }"]
    return text(*(once + loop if before else loop + once), grid="2", numbers=(5,))


def test_what_is_left_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second workgroup has one tile left and the first one's state: only what stands behind the loop is another thing."""
    kernel = kernel_of(two_workgroups(before=False))
    assert prove(kernel).findings
    monkeypatch.setattr(repetition.Repetitions, "come_by", lambda self, trace: False)  # pyright: ignore[reportUnknownLambdaType]
    assert prove(kernel).findings
    monkeypatch.setattr(repetition, "have_same_rest", lambda *_, with_numbers: True)  # pyright: ignore[reportUnknownLambdaType]
    assert prove(kernel).is_proven


def test_what_was_done_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second workgroup comes to its loop as the first one does: only what stands before it is another thing."""
    kernel = kernel_of(two_workgroups(before=True))
    assert prove(kernel).findings
    compare = moments.frames_on

    def unchecked(nodes: list[Node], frames: tuple[Frame, ...], row: tuple[int, ...], *, is_blocked: bool) -> moments.Frames | None:
        return compare(nodes, frames, frames[0].items, is_blocked=is_blocked)

    monkeypatch.setattr(moments, "frames_on", unchecked)
    assert prove(kernel).is_proven


@pytest.mark.parametrize("name", ["roles", "tiles"])
def test_runs_go_on_where_they_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other lengths are short: they begin with what is another thing in them."""
    kernel = kernel_of(DYNAMIC[name])
    proof, alone = Proof(Program(kernel), 1), Proof(Program(kernel), 1)
    assert proof.verdict().is_proven
    monkeypatch.setattr(repetition.Repetitions, "come_by", lambda self, trace: False)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(repetition, "have_same_rest", lambda *_, with_numbers: False)  # pyright: ignore[reportUnknownLambdaType]
    assert alone.verdict().is_proven
    assert proof.classes <= alone.classes
    assert proof.cost * 10 < alone.cost * 7


def test_faults_that_a_run_has_found_are_kept_where_it_ends_as_another() -> None:
    """It goes on after the first of them, until it has found enough."""
    kernel = kernel_of(two_workgroups(before=True))
    assert [len(prove(kernel, max_findings=count).findings) > 0 for count in (1, 2, 8)] == [True, True, True]
