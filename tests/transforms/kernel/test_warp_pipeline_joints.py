"""Warp pipelines that follow one another: where the groups go on without meeting, where they meet, and that both are proven."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transforms.kernel.test_form_warp_pipeline import COLUMNS, PRIVATE, ROWS, Text, kernel_in

from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.errors import TreadleError
from treadle.ir.dialects import scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.remarks import collect_remarks
from treadle.transforms.kernel.enclose_stages import EncloseStagesPass
from treadle.transforms.kernel.form_warp_pipeline import FormWarpPipelinePass
from treadle.transforms.kernel.warp_pipelines.borders import read_pipelines
from treadle.transforms.kernel.warp_pipelines.orders import plan_slots
from treadle.transforms.kernel.warp_pipelines.rehoming import find_homes
from treadle.transforms.kernel.warp_pipelines.slots import Ends, write_slots
from treadle.verify.check import prove

MANY = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Chain(Text):
    """Loops and straight lines of stages, one behind the other; the number of the iteration, which picks the slot, goes on through all."""

    def __init__(self, slots: int = 2, groups: str = "") -> None:
        super().__init__(slots, groups=groups)
        self.parts: list[tuple[str, list[str]]] = []

    def loop(self, trips: str = "%n") -> "Chain":
        """What follows is a loop."""
        return self._begun(trips, f"%i{len(self.parts)}")

    def straight(self) -> "Chain":
        """What follows stands in straight-line code."""
        return self._begun("", f"%base{len(self.parts)}")

    def _begun(self, trips: str, number: str) -> "Chain":
        self.number, self.lines = number, []
        self.parts.append((trips, self.lines))
        return self

    def loops(self) -> str:
        found = ["  %base0 = arith.addi %c0, %c0 : index"]
        for at, (trips, lines) in enumerate(self.parts):
            found.append(f"  %base{at + 1} = arith.addi %base{at}, {trips or '%c1'} : index")
            found += [f"  scf.for %i{at} = %base{at} to %base{at + 1} step %c1 {{"] if trips else []
            found += [*lines, *([f"  }} {self.groups}"] if trips else [])]
        return "\n".join(found)


def formed(chain: Chain) -> tuple[tile.KernelOp, list[str]]:
    """The kernel, which is proven, and why groups meet ahead of a pipeline, or that they go on to it."""
    module = parse_module(str(chain), "chain.mlir")
    with collect_remarks() as log:
        run_passes(module, [EncloseStagesPass(), FormWarpPipelinePass()])
    kernel = kernel_in(module)
    verdict = prove(kernel)
    assert verdict.is_proven, verdict.first_error("k")
    return kernel, [remark.text for remark in log.remarks if "the groups" in remark.text]


GOES_ON = "the groups go on to it from the stages before as they are"


def entries(kernel: tile.KernelOp) -> int:
    """How often groups are let in."""
    return sum(isinstance(op, sync.BarrierOp) and op.groups is not None and tile.ints(op.groups) == (1,) for op in kernel.walk())


def reads_then_fills(chain: Chain) -> Text:
    """A slot is read and the next one filled in one stage, then multiplied: it flushes behind the first."""
    return chain.stage("memory", chain.read(), chain.store(1)).stage("compute")


def test_a_loop_behind_a_loop() -> None:
    """What the first one's slots do orders it, the wrap-around included; the groups go on."""
    chain = Chain()
    reads_then_fills(chain.loop())
    reads_then_fills(chain.loop())
    kernel, told = formed(chain)
    assert (told, entries(kernel)) == ([GOES_ON], 1)
    joined = [op for op in kernel.walk() if isinstance(op, scf.ForOp)][1].attributes[WARP_PIPELINED]
    assert "joins" in str(joined)


def test_straight_stages_behind_a_loop_and_a_loop_behind_them() -> None:
    chain = Chain()
    reads_then_fills(chain.loop())
    reads_then_fills(chain.straight())
    reads_then_fills(chain.loop())
    kernel, told = formed(chain)
    assert (told, entries(kernel)) == ([GOES_ON, GOES_ON], 1)


def test_nothing_to_order() -> None:
    """Stages that touch no shared memory, or only read it, need no slot that flushes between them."""
    for first, second in (("", ""), ("read", ""), ("read", "read")):
        chain = Chain()
        for what in (first, second):
            chain.loop().stage("a", chain.read() if what else "").stage("b").stage("c")
        kernel, told = formed(chain)
        assert (told, entries(kernel)) == ([GOES_ON], 1)
        assert not any(isinstance(op, sync.BarrierOp) and op.bare is None and isinstance(op.parent_op(), scf.ForOp) for op in kernel.walk())


def test_what_no_slot_orders_makes_the_groups_meet() -> None:
    """A write in the last stages of one, a read in the first ones of the other, and no slot between them that flushes."""
    chain = Chain(2)
    chain.loop("%slots").stage("a").stage("b").stage("c", chain.store()).stage("d")
    chain.loop("%slots").stage("e").stage("f", chain.read()).stage("g")
    kernel, told = formed(chain)
    assert entries(kernel) == 2
    assert told == [
        "the groups meet ahead of it: a store to shared memory (line 29) in stage 'c' comes before a load from shared memory (line 43) in "
        "stage 'f', and no slot between them flushes"
    ]
    assert sum(isinstance(op, sync.BarrierOp) and op.bare is None for op in kernel.body.block.ops) == 2


def test_straight_stages_flush_for_what_comes_behind_them() -> None:
    """They are passed once, which costs no more than meeting."""
    chain = Chain(2)
    chain.straight().stage("a", chain.store()).stage("b").stage("c")
    chain.loop().stage("d").stage("e", chain.read(1)).stage("f")
    kernel, told = formed(chain)
    assert told == [GOES_ON]
    flushing = [at for at, op in enumerate(op for op in kernel.walk() if isinstance(op, sync.BarrierOp)) if op.bare is None]
    assert flushing == [0, 4]


@pytest.mark.parametrize(("where", "joins"), [("c", True), ("b", False)])
def test_a_slot_of_the_first_that_flushes(where: str, joins: bool) -> None:
    """The write is ordered by a slot behind it, which flushes for something else; one ahead of it orders nothing."""
    chain = Chain(2)
    flush = 'sync.wait "lgkmcnt" pending 0 : i64'
    chain.loop("%slots")
    for label in "abcd":
        chain.stage(label, *([chain.store()] if label == "c" else []))
        chain.add(*([flush] if label == where else []))
    chain.loop("%slots").stage("e").stage("f", chain.read(1)).stage("g")
    _, told = formed(chain)
    assert told == ([GOES_ON] if joins else told)
    if not joins:
        assert "no slot between them flushes" in told[0]


def test_a_later_stage_of_the_straight_line_is_ordered_by_its_own_slot() -> None:
    """What a later one of the second's slots does orders what comes behind it."""
    chain = Chain(2)
    chain.loop("%c1").stage("a").stage("b").stage("c", chain.store(1))
    chain.straight().stage("e").add('sync.wait "lgkmcnt" pending 0 : i64').stage("f").stage("g").stage("h", chain.read())
    _, told = formed(chain)
    assert told == [GOES_ON]


def test_loops_of_other_groups_meet() -> None:
    chain = Chain(4)
    chain.groups = "{warp_pipeline = {gap = 2 : i64}}"
    reads_then_fills(chain.loop()).stage("more").stage("most")
    reads_then_fills(chain.loop())
    first, _, second = str(chain).rpartition("gap = 2")
    chain.loops = lambda: first_loops(f"{first}gap = 1{second}")  # type: ignore[method-assign]
    _, told = formed(chain)
    assert told == ["the groups meet ahead of it: they are others, or other stages apart"]


def first_loops(text: str) -> str:
    """The part of a kernel's text that is its loops."""
    return text[text.index("  %base0") : text.index("  tile.return")]


def test_a_barrier_between_them() -> None:
    """The groups meet at what stands there, and are let in anew."""
    chain = Chain()
    reads_then_fills(chain.loop())
    reads_then_fills(chain.loop())
    whole = first_loops(str(chain)).replace("  scf.for %i1", "  sync.barrier\n  scf.for %i1")
    chain.loops = lambda: whole  # type: ignore[method-assign]
    kernel, told = formed(chain)
    assert (told, entries(kernel)) == ([], 2)


LAYOUTS = (ROWS, COLUMNS, PRIVATE)


@st.composite
def chains(draw: st.DrawFn) -> str:
    """Two or three loops or straight lines, with accesses of any layouts in any stages of theirs to slots of one ring. What stands between
    two others is passed once: a loop there may make no iteration for all that is known, whatever the loops around it do.
    """
    chain = Chain(draw(st.integers(1, 3)), draw(st.sampled_from(["", "{warp_pipeline = {gap = 2 : i64}}"])))
    count = draw(st.integers(2, 3))
    for number in range(count):
        trips = draw(st.sampled_from(["%c1", ""] if 0 < number < count - 1 else ["%n", "%c1", ""]))
        chain.loop(trips) if trips else chain.straight()
        stages = draw(st.integers(2, 4))
        done = draw(st.integers(0, stages - 1)), draw(st.sampled_from("RWN")), draw(st.integers(0, 1)), draw(st.sampled_from(LAYOUTS))
        for stage in range(stages):
            place, what, ahead, layout = done
            line = "" if place != stage or what == "N" else chain.read(ahead, layout) if what == "R" else chain.store(ahead)
            chain.stage(str(stage), line)
            if draw(st.integers(0, 5)) == 0:
                chain.add('sync.wait "lgkmcnt" pending 0 : i64')
    return str(chain)


@MANY
@given(chains())
def test_random_chains_are_proven_and_meet_where_they_must(text: str) -> None:
    """Whatever joins is proven. Where the groups meet for lack of a slot, going on is refuted."""
    module = parse_module(text, "chain.mlir")
    try:
        with collect_remarks() as log:
            run_passes(module, [EncloseStagesPass(), FormWarpPipelinePass()])
    except TreadleError as error:
        assert error.code == "TR418"
        return
    assert prove(kernel_in(module)).is_proven, text
    if any(remark.text.endswith("no slot between them flushes") for remark in log.remarks):
        assert prove(joined_anyway(text)).findings, text


def joined_anyway(text: str) -> tile.KernelOp:
    """The kernel whose groups never meet between its loops."""
    module = parse_module(text, "chain.mlir")
    run_passes(module, [EncloseStagesPass()])
    kernel, spec = kernel_in(module), target_spec("gfx942")
    found = read_pipelines(kernel)
    plans = [plan_slots(pipeline, find_homes(pipeline, kernel), kernel, spec) for pipeline in found]
    for number, (pipeline, plan) in enumerate(zip(found, plans, strict=True)):
        before = found[number - 1] if number else None
        write_slots(pipeline, plan, kernel, spec, Ends(before, goes_on=number + 1 < len(found)))
    return kernel
