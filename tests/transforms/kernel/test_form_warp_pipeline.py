"""form-warp-pipeline: which slots flush, what is refused with which text, and that no barrier of the result can be left out."""

from typing import Any

import numpy as np
import pytest
from hazards.schedules import EIGHT_COLUMNS as COLUMNS
from hazards.schedules import EIGHT_ROWS as ROWS
from language.staged_kernels import PRODUCTS, lowered, operands, tiles_in_turn

import treadle
from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.transforms.kernel.form_warp_pipeline import FormWarpPipelinePass
from treadle.verify.check import prove
from treadle.verify.faults import faults

BASES = ", ".join([*(f"[0, {1 << bit}]" for bit in range(6)), *(f"[{1 << bit}, 0]" for bit in range(6))])
SLOT = f"memref<64x64xf16, #tile.shared_layout<offset = [{BASES}], repeat = [1, 1]>, #tile.shared>"


def ring(slots: int) -> str:
    bases = BASES.replace("[", "[0, ")
    return f"memref<{slots}x64x64xf16, #tile.shared_layout<offset = [{bases}], repeat = [{slots}, 1, 1]>, #tile.shared>"


class Text:
    """The text of a loop with stages, line by line; each access goes to slot (i + ahead) % slots."""

    def __init__(self, slots: int = 2, warps: int = 8, target: str = "gfx942", groups: str = "") -> None:
        self.slots, self.warps, self.target, self.groups = slots, warps, target, groups
        self.lines: list[str] = []
        self.count, self.number = 0, "%i"

    def stage(self, label: str, *lines: str, priority: int | None = None) -> "Text":
        named = "" if priority is None else f" priority {priority} : i64"
        self.lines += [f'pipe.stage "{label}"{named}', *lines, "pipe.end_stage"]
        return self

    def add(self, *lines: str) -> "Text":
        self.lines += lines
        return self

    def _slot(self, ahead: int) -> tuple[str, list[str]]:
        self.count += 1
        n = self.count
        return f"%s{n}", [
            f"%d{n} = arith.constant {ahead} : index",
            f"%j{n} = arith.addi {self.number}, %d{n} : index",
            f"%r{n} = arith.remui %j{n}, %slots : index",
            f"%s{n} = pipe.slot %ring[%r{n}] : {ring(self.slots)} -> {SLOT}",
        ]

    def store(self, ahead: int = 0, layout: str = ROWS) -> str:
        name, lines = self._slot(ahead)
        kind = f"tensor<64x64xf16, {layout}>"
        value = "%x" if layout == ROWS else "%xc"
        return "\n".join([*lines, f"tile.local_store {value}, {name} array<i64: 0, 0> : {kind}, {SLOT}"])

    def read(self, ahead: int = 0, layout: str = COLUMNS) -> str:
        name, lines = self._slot(ahead)
        return "\n".join([*lines, f"%v{self.count} = tile.local_load {name} array<i64: 0, 0> : {SLOT} -> tensor<64x64xf16, {layout}>"])

    def loops(self) -> str:
        """The loop, or what a test has instead."""
        body = "\n".join(self.lines)
        return f"  scf.for %i = %c0 to %n step %c1 {{\n{body}\n  }} {self.groups}"

    def __str__(self) -> str:
        filled = "\n".join(
            f"  %q{n} = arith.constant {n} : index\n  %f{n} = pipe.slot %ring[%q{n}] : {ring(self.slots)} -> {SLOT}\n"
            f"  tile.local_store %x, %f{n} array<i64: 0, 0> : tensor<64x64xf16, {ROWS}>, {SLOT}"
            for n in range(self.slots)
        )
        return f"""
tile.kernel @k(%n: index) attributes {{
  symbols = ["n"], grid = ["1", "1", "1"], output_count = 0 : i64, num_warps = {self.warps} : i64, target = "{self.target}"
}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %slots = arith.constant {self.slots} : index
  %x = arith.constant dense<1.0> : tensor<64x64xf16, {ROWS}>
  %xc = arith.constant dense<1.0> : tensor<64x64xf16, {COLUMNS}>
  %ring = tile.alloc : {ring(self.slots)}
{filled}
{self.loops()}
  tile.return
}}
"""


def formed(text: Text) -> Operation:
    """The module with the pipeline, which is proven: whatever the pass reckons with, the program has every order that it needs."""
    module = parse_module(str(text), "staged.mlir")
    run_passes(module, [FormWarpPipelinePass()])
    verdict = prove(kernel_in(module))
    assert verdict.is_proven, verdict.first_error("k")
    return module


def kernel_in(module: Operation) -> tile.KernelOp:
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def local(module: Operation) -> tuple[int, ...]:
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    found: Any = loop.attributes[WARP_PIPELINED]
    return tile.ints(found.data["local"])


# Group 1 holds rows 32 to 63, as in ROWS; within a group other warps than there hold an element.
PRIVATE = (
    "#tile.layout<register = [[1, 0], [2, 0], [4, 0]], lane = [[8, 0], [16, 0], [0, 1], [0, 2], [0, 4], [0, 8]], "
    "warp = [[0, 16], [0, 32], [32, 0]], repeat = [1, 1]>"
)


def test_slots_of_a_ring() -> None:
    """What a step reads and the fill for the next one stand in one stage; it has to be over for a group that is one stage ahead."""
    text = Text()
    module = formed(text.stage("memory", text.read(), text.store(1), priority=0).stage("compute", priority=3))
    assert local(module) == (0,)
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    around = [str(op) for op in kernel_in(module).body.block.ops if op.name.startswith("sync.")]
    assert around == [
        "sync.barrier",
        "sync.barrier bare groups array<i64: 1>",
        "sync.set_priority 0 : i64",
        "sync.sched_fence []",
        "sync.sched_fence []",
        "sync.barrier bare groups array<i64: 0>",
        "sync.set_priority 0 : i64",
    ]
    inside = [str(op) for op in loop.body.block.ops if op.name.startswith(("sync.", "pipe.stage", "pipe.end"))]
    fence = "sync.sched_fence []"
    first = [fence, "sync.set_priority 3 : i64", "sync.barrier", fence]
    assert inside == [*first, fence, "sync.set_priority 0 : i64", "sync.barrier bare", fence]


@pytest.mark.parametrize(
    ("stages", "slots", "expected"),
    [
        ("R,-,R,-,R,-,W,-", 1, (4, 6)),
        ("W,-,R,-", 2, (0,)),
        ("W,-,R,-", 1, (0, 2)),
        ("R,W,-,-", 3, (1,)),
        ("-,-", 1, ()),
    ],
)
def test_the_fewest_slots_flush(stages: str, slots: int, expected: tuple[int, ...]) -> None:
    """R reads the slot of the iteration, W fills it; where reads come first and there are several slots, that of the next iteration."""
    text = Text(slots)
    fills = 1 if stages.startswith("R") and slots > 1 else 0
    for number, what in enumerate(stages.split(",")):
        text.stage(str(number), text.store(fills) if what == "W" else text.read() if what == "R" else "")
    module = formed(text)
    assert local(module) == expected
    ops = [op for op in kernel_in(module).walk() if isinstance(op, sync.BarrierOp)]
    assert len(ops) == 3 + len(stages.split(","))


def test_a_slot_of_a_group_s_own() -> None:
    """Where no two groups meet, what is written in one stage may be read in the next."""
    text = Text(1)
    assert local(formed(text.stage("write", text.store()).stage("read", text.read(0, PRIVATE)).stage("rest"))) == (0, 1)
    text = Text(1)
    assert local(formed(text.stage("write", text.store()).stage("read", text.read(0, ROWS)).stage("rest"))) == ()


def refused(text: Text) -> str:
    with pytest.raises(treadle.TreadleError) as error:
        formed(text)
    return str(error.value)


def test_what_groups_cannot_share() -> None:
    """A write and a read of one slot in neighbouring stages: no barrier orders them across the groups."""
    text = Text(1)
    assert refused(text.stage("write", text.store()).stage("read", text.read())) == (
        "staged.mlir:20:1: error TR418: warp pipeline: a store to shared memory (line 20) in stage 'write' comes before a load from shared "
        "memory (line 27) in stage 'read' in the same iteration, which is 1 stage on; a group that is 1 stage ahead "
        "is there at the same time\n"
        "  fix: fill it 1 iteration ahead, in a buffer of 3 slots (slot (i + 1) % 3 of iteration i)"
    )
    text = Text(3)
    assert local(formed(text.stage("write", text.store(1)).stage("read", text.read()))) == (0,)


def test_a_buffer_of_too_few_slots() -> None:
    text = Text(2)
    assert refused(text.stage("write", text.store(1)).stage("read", text.read())) == (
        "staged.mlir:30:7: error TR418: warp pipeline: a load from shared memory (line 30) in stage 'read' comes before a store to shared "
        "memory (line 23) in stage 'write' 1 iteration later, which is 1 stage on; a group that is 1 stage ahead "
        "is there at the same time\n"
        "  fix: give the buffer 3 slots instead of 2"
    )


def test_a_gap_that_is_too_wide() -> None:
    text = Text(2, groups="{warp_pipeline = {groups = 2 : i64, gap = 2 : i64}}")
    message = refused(text.stage("a", text.read(), text.store(1)).stage("b"))
    assert message.endswith(
        "which is 2 stages on; a group that is 2 stages ahead is there at the same time\n"
        "  fix: fill it 2 iterations ahead, in a buffer of 4 slots (slot (i + 2) % 4 of iteration i), "
        "or let the groups be 1 stage apart (gap = 1)"
    )
    text = Text(4, groups="{warp_pipeline = {groups = 2 : i64, gap = 2 : i64}}")
    assert local(formed(text.stage("a", text.read(), text.store(2)).stage("b"))) == (0,)


def test_more_groups_than_two() -> None:
    """Four groups one stage apart are as far apart as two groups three stages apart, and enter one after the other."""
    text = Text(4, groups="{warp_pipeline = {groups = 4 : i64}}")
    module = formed(text.stage("a", text.read(), text.store(2)).stage("b"))
    conditional = [str(op) for op in kernel_in(module).walk() if isinstance(op, sync.BarrierOp) and op.groups is not None]
    assert conditional == [f"sync.barrier bare groups array<i64: {those}>" for those in ("1, 2, 3", "2, 3", "3", "0, 1, 2", "0, 1", "0")]


FORM: dict[str, tuple[Text, str]] = {
    "one stage": (
        Text().stage("only"),
        "a loop of one stage: the groups have nothing different to do at a time\n  fix: cut the loop into at least two stages",
    ),
    "no end": (
        Text().add('pipe.stage "a"'),
        "stage 'a' has no end in its block\n  fix: end it with pipe.end_stage",
    ),
    "no begin": (Text().add("pipe.end_stage"), "the end of a stage that has not begun\n  fix: begin it with pipe.stage"),
    "stage in a stage": (
        Text().add('pipe.stage "a"', 'pipe.stage "b"'),
        "a stage within stage 'a'\n  fix: end the one before the other begins",
    ),
    "barrier in a stage": (
        Text().stage("a", "sync.barrier").stage("b"),
        "sync.barrier inside of stage 'a'\n  fix: put it between two stages: end the stage before it and begin another one behind it",
    ),
    "wait in a stage": (
        Text().stage("a").stage("b", 'sync.wait "lgkmcnt" pending 0 : i64'),
        "sync.wait inside of stage 'b'\n  fix: put it between two stages: end the stage before it and begin another one behind it",
    ),
    "two barriers at a border": (
        Text().stage("a").add("sync.barrier", "sync.barrier").stage("b"),
        "a second barrier between stages 'a' and 'b'\n"
        "  fix: leave one of them out, or put an empty stage between them, for which all groups pause",
    ),
    "barriers at the top and the bottom": (
        Text().add("sync.barrier").stage("a").stage("b").add("sync.barrier"),
        "a barrier ahead of the first stage and one behind the last, which are the same border\n  fix: leave one of them out",
    ),
    "a conditional barrier": (
        Text().stage("a").add("sync.barrier groups array<i64: 1>").stage("b"),
        "a conditional barrier between stages 'a' and 'b'\n"
        "  fix: leave the groups out: they are let in one after the other ahead of the loop",
    ),
    "an operation between stages": (
        Text()
        .stage("a")
        .add(
            "%z = pipe.slot %ring[%i] : " + ring(2) + " -> " + SLOT,
            f"tile.local_store %x, %z array<i64: 0, 0> : tensor<64x64xf16, {ROWS}>, {SLOT}",
        )
        .stage("b"),
        "tile.local_store between stages 'a' and 'b'\n"
        "  fix: put it into a stage; between stages stand waits, barriers and arithmetic alone",
    ),
    "a loop with stages in a stage": (
        Text().stage("a", "scf.for %q = %c0 to %n step %c1 {", 'pipe.stage "x"', "pipe.end_stage", "}").stage("b"),
        "a loop with stages inside of stage 'a'\n  fix: let the outer or the inner loop have stages",
    ),
    "a stage in a branch": (
        Text().add("%t = arith.cmpi slt, %i, %c1 : index", "scf.if %t {", 'pipe.stage "x"', "pipe.end_stage", "}").stage("b"),
        "a stage in a branch\n  fix: let the loop's own body begin and end stages, and put the branch into a stage",
    ),
    "no stages": (
        Text(groups="{warp_pipeline = {groups = 2 : i64}}"),
        "groups of warps for a loop that has no stages\n  fix: cut the loop into stages, or leave groups and gap out",
    ),
    "one group": (
        Text(groups="{warp_pipeline = {groups = 1 : i64}}").stage("a").stage("b"),
        "1 group of warps: nobody computes while it copies\n  fix: use at least two groups, or leave the stages out",
    ),
    "no gap": (
        Text(groups="{warp_pipeline = {gap = 0 : i64}}").stage("a").stage("b"),
        "a gap of 0 stages: all groups would run the same stage\n  fix: let groups be at least one stage apart",
    ),
    "warps that make no groups": (
        Text(warps=1).stage("a").stage("b"),
        "1 warp cannot be dealt to 2 groups\n  fix: launch it with num_warps = 2",
    ),
    "an unknown word": (
        Text(groups="{warp_pipeline = {group = 2 : i64}}").stage("a").stage("b"),
        "warp_pipeline with group = 2 : i64\n  fix: write {groups = 2 : i64, gap = 1 : i64}",
    ),
}


@pytest.mark.parametrize("case", FORM)
def test_what_is_no_pipeline(case: str) -> None:
    text, message = FORM[case]
    found = refused(text)
    assert found.split("error TR417: warp pipeline: ")[1] == message


def test_a_store_and_a_load_in_one_stage() -> None:
    text = Text(2)
    assert refused(text.stage("a", text.store(), text.read()).stage("b")).split("TR418: ")[1] == (
        "warp pipeline: a store to shared memory (line 23) in stage 'a' and a load from shared memory (line 28) in stage 'a' meet in one "
        "slot, and no barrier stands inside of a stage\n  fix: put them into different stages, or into different slots of the buffer"
    )


def test_text_of_stages() -> None:
    """It parses as it prints; a stage may have a label, a priority, both or neither."""
    lines = ["pipe.stage", 'pipe.stage "a"', "pipe.stage priority 2 : i64", 'pipe.stage "b" priority 3 : i64']
    text = Text().add(*(part for line in lines for part in (line, "pipe.end_stage")))
    printed = print_module(parse_module(str(text), "staged.mlir"))
    assert print_module(parse_module(printed, "again.mlir")) == printed
    assert [line.strip() for line in printed.splitlines() if "pipe.stage" in line] == lines
    with pytest.raises(treadle.TreadleError, match=r"TR416: 'pipe\.stage': the priority 7 is not between 0 and 3"):
        parse_module(str(Text().stage("a", priority=7)), "staged.mlir")


def test_loops_without_stages_are_left_alone() -> None:
    text = Text()
    text.add(text.store())
    module = parse_module(str(text), "staged.mlir")
    before = print_module(module)
    run_passes(module, [FormWarpPipelinePass()])
    assert print_module(module) == before


def test_a_refused_kernel_is_untouched() -> None:
    text = Text(1)
    module = parse_module(str(text.stage("write", text.store()).stage("read", text.read())), "staged.mlir")
    before = print_module(module)
    with pytest.raises(treadle.TreadleError):
        run_passes(module, [FormWarpPipelinePass()])
    assert print_module(module) == before


def test_a_barrier_that_is_there_is_the_slot_s() -> None:
    """One ahead of the first stage stands at the border behind the last. It flushes where the slot has to; waits stay ahead of it."""
    text = Text()
    text.add('sync.wait "lgkmcnt" pending 0 : i64', "sync.barrier bare")
    text.stage("memory", text.read(), text.store(1)).add("sync.barrier bare").stage("compute")
    loop = next(op for op in formed(text).walk() if isinstance(op, scf.ForOp))
    found = [str(op) for op in loop.body.block.ops if isinstance(op, sync.BarrierOp | sync.WaitOp)]
    assert found == ["sync.barrier", 'sync.wait "lgkmcnt" pending 0 : i64', "sync.barrier bare"]


def test_a_wait_of_the_user_s_drains_a_slot() -> None:
    text = Text()
    text.stage("memory", text.read(), text.store(1)).add('sync.wait "lgkmcnt" pending 0 : i64').stage("compute")
    loop = next(op for op in formed(text).walk() if isinstance(op, scf.ForOp))
    found = [str(op) for op in loop.body.block.ops if isinstance(op, sync.BarrierOp | sync.WaitOp)]
    assert found == ['sync.wait "lgkmcnt" pending 0 : i64', "sync.barrier bare", "sync.barrier bare"]


def test_a_nested_loop_in_a_stage() -> None:
    """Its slots are not told apart, and its iterations are those of the stage."""
    text = Text(2)
    inner = text.read()
    text.stage("a", "scf.for %q = %c0 to %slots step %c1 {", inner, "}").stage("b").stage("c", text.store(1)).stage("d")
    assert local(formed(text)) == (0, 2)


# --- what is formed is proven, and nothing in it can be left out


def is_plain_slot(op: Operation) -> bool:
    return isinstance(op, sync.BarrierOp) and op.bare is not None and isinstance(op.parent_op(), scf.ForOp)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_no_barrier_of_a_product_can_be_left_out(name: str, target: str) -> None:
    """Nor can a slot that flushes be made plain, or a group be left out of a slot. Only a plain slot that all groups leave out may be
    missing: it makes one stage of two.
    """
    module = lowered(PRODUCTS[name], target)
    kernel = kernel_in(module)
    assert prove(kernel).is_proven
    ops = list(kernel.walk())
    found = [fault for fault in faults(kernel, ("remove", "weaken")) if isinstance(ops[fault.index], sync.BarrierOp)]
    flushing = sum(op.bare is None for op in ops if isinstance(op, sync.BarrierOp))
    assert sum(fault.kind == "weaken" and fault.description.endswith("bare") for fault in found) == flushing
    missed = [fault for fault in found if not prove(fault.kernel).findings]
    assert all(fault.kind == "remove" and is_plain_slot(ops[fault.index]) for fault in missed)
    assert len(missed) == {"two": 0, "three": 2, "four": 2}[name]
    assert all(prove(fault.kernel).is_proven for fault in missed)


def test_a_pipeline_in_a_loop() -> None:
    """What follows the loop is the next turn of the one around it: the groups meet, and what they did is over by then."""
    kernel = kernel_in(lowered(tiles_in_turn, "gfx942", m=300))
    assert prove(kernel).is_proven
    assert sum(isinstance(op, sync.BarrierOp) and op.groups is None for op in kernel.walk()) == 3
    text = Text(3)
    text.stage("a").stage("b", text.store(1)).stage("c", text.read())
    module = parse_module(twice(text), "staged.mlir")
    run_passes(module, [FormWarpPipelinePass()])
    kernel = kernel_in(module)
    assert prove(kernel).is_proven
    ops = list(kernel.walk())
    last = max(n for n, op in enumerate(ops) if isinstance(op, sync.BarrierOp) and op.groups is None)
    without = next(fault for fault in faults(kernel, ("remove",)) if fault.index == last)
    assert prove(without.kernel).findings


def twice(text: Text) -> str:
    """The loop, and what fills its ring, within a loop of two turns."""
    whole = str(text).replace("%q0 =", "%two = arith.constant 2 : index\n  scf.for %turn = %c0 to %two step %c1 {\n  %q0 =")
    return whole.replace("  tile.return", "  }\n  tile.return")


def objects(kernel: tile.KernelOp) -> bool:
    """Whether the simulator finds a fault, or a wrong result, in one workgroup with several iterations."""
    a, b, c = operands(128, 32, 100)
    known = {"a_size0": 128, "a_size1": 100, "a_stride0": 100, "b_size0": 100, "b_size1": 32, "b_stride0": 32}
    sizes = {**known, "c_size0": 128, "c_size1": 32, "c_stride0": 32, "grid_x": 1, "grid_y": 1}
    ways: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))
    for mode, seed in ways:
        report = simulate(kernel, [a, b, c], sizes, mode=mode, seed=seed)
        if not report.ok or not np.array_equal(report.outputs[0], a.astype(np.float64) @ b):
            return True
    return False


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_simulator_agrees(name: str) -> None:
    """On what is right, and that a plain slot in place of one that flushes, or a group that is let in alone, is not."""
    kernel = kernel_in(lowered(PRODUCTS[name], "gfx942", k=100))
    assert not objects(kernel)
    ops = list(kernel.walk())
    for fault in faults(kernel, ("remove", "weaken")):
        op = ops[fault.index]
        if isinstance(op, sync.BarrierOp) and (op.groups is not None or fault.description.endswith("bare")):
            assert objects(fault.kernel), fault.description
