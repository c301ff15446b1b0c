"""set-stages: the compiler's stages are those that a user would write, are proven, and are left out where no cut keeps the order."""

import re
from typing import Any

import numpy as np
import pytest
from hazards.schedules import EIGHT_ROWS as ROWS
from language.staged_kernels import kernel_of, lowered, operands
from transforms.kernel.test_form_warp_pipeline import Text

import treadle
import treadle.language as tl
from treadle.dialects import pipe
from treadle.dialects.stages import WARP_PIPELINED
from treadle.ir.core import Operation
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.transforms.kernel.set_stages import SetStagesPass

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a")


@treadle.kernel(target="sim")
def cut(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32, S: tl.constexpr = 3) -> None:
    """The loop of `two_stages` without its stages."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=S)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=S)
    ring_a[0] = a[m : m + BM, 0:BK]
    ring_b[0] = b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, a.shape[1], BK, stages="auto"):
        i = k // BK
        x = ring_a[i % S]
        y = ring_b[i % S]
        ring_a[(i + 1) % S] = a[m : m + BM, k + BK : k + 2 * BK]
        ring_b[(i + 1) % S] = b[k + BK : k + 2 * BK, n : n + BN]
        acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def loads_apart(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32, S: tl.constexpr = 3) -> None:
    """The stages that a user would give that loop."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=S)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=S)
    ring_a[0] = a[m : m + BM, 0:BK]
    ring_b[0] = b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("global", priority=0):
            next_a = a[m : m + BM, k + BK : k + 2 * BK]
            next_b = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("rest", priority=1):
            x = ring_a[i % S]
            y = ring_b[i % S]
            ring_a[(i + 1) % S] = next_a
            ring_b[(i + 1) % S] = next_b
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def plain(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    """A product without a ring of its own."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, a.shape[1], BK, stages="auto"):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = acc


def shape(op: Operation) -> list[str]:
    """What a kernel does, by the names of its operations; scalar arithmetic may stand elsewhere."""
    return [re.sub(r"loc\(.*", "", inner.name) for inner in op.walk() if not inner.name.startswith(("arith.", "pipe.slot"))]


@pytest.mark.parametrize("target", TARGETS)
def test_loops_are_cut_on_every_target(target: str) -> None:
    """And proven; a remark has the model's stages."""
    with collect_remarks() as log:
        lowered(cut, target, 128, 64, 200)
    (told,) = [remark.text for remark in log.remarks if remark.pass_name == "set-stages"]
    assert re.match(
        r"cut into \d stages \(.* clocks\) for 2 groups, 1 stage\(s\) apart: \d+ clocks an iteration, matrix units busy \d+%", told
    )


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
def test_they_are_those_of_a_user(target: str) -> None:
    """The same operations in the same order, synchronisation included: loads have a stage of their own, which ends before their use."""
    sizes: dict[str, Any] = {"BN": 64, "BK": 32, "S": 3}
    found = kernel_of(lowered(cut, target, 128, 64, 200, **sizes))
    assert shape(found) == shape(kernel_of(lowered(loads_apart, target, 128, 64, 200, **sizes)))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_a_loop_without_a_ring_is_pipelined_first(target: str) -> None:
    """The ring is that of pipeline-loops, with a slot more for the groups."""
    with collect_remarks() as log:
        kernel = kernel_of(lowered(plain, target, 128, 64, 200))
    assert any(remark.text.startswith("cut into") for remark in log.remarks if remark.pass_name == "set-stages")
    assert any(WARP_PIPELINED in op.attributes for op in kernel.walk())


@pytest.mark.parametrize("k", [100, 32, 20])
@pytest.mark.parametrize("kernel", [cut, plain])
def test_results(kernel: Any, k: int) -> None:
    a, b, c = operands(128, 64, k)
    found = kernel_of(lowered(kernel, "gfx942", 128, 64, k))
    sizes = {"a_size0": 128, "a_size1": k, "b_size0": k, "b_size1": 64, "c_size0": 128, "c_size1": 64, "grid_x": 1, "grid_y": 1}
    report = simulate(found, [a, b, c], {**sizes, "a_stride0": k, "b_stride0": 64, "c_stride0": 64}, mode="random", seed=5)
    assert report.ok
    np.testing.assert_array_equal(report.outputs[0], a.astype(np.float64) @ b)


def test_what_no_cut_orders_is_left_alone() -> None:
    """One slot, filled behind the product that reads it: a loop as any other, with barriers, and a remark that says why."""
    text = Text(1, groups="{warp_pipeline = {auto}}")
    product = f"%p = arith.addf %v1, %v1 : tensor<64x64xf16, {ROWS}>"
    text.add(text.read(layout=ROWS), product, text.store())
    module = parse_module(str(text), "loop.mlir")
    with collect_remarks() as log:
        run_passes(module, [SetStagesPass()])
    assert not any(isinstance(op, pipe.StageOp) for op in module.walk())
    assert [remark.text for remark in log.remarks] == ["not cut into stages: nothing multiplies"]


def test_what_slots_do_not_order() -> None:
    """A ring that hardware copies fill."""
    with collect_remarks() as log:
        kernel = kernel_of(lowered(plain, "sm_90a", 128, 64, 200))
    (told,) = [remark.text for remark in log.remarks if remark.pass_name == "set-stages"]
    assert told.startswith("not cut into stages: warp pipeline: descriptor copies of sm_90a reach shared memory by themselves")
    assert not any(WARP_PIPELINED in op.attributes for op in kernel.walk())


def test_too_few_warps() -> None:
    with collect_remarks() as log:
        lowered(cut, "gfx942", 128, 64, 200, num_warps=4)
    (told,) = [remark.text for remark in log.remarks if remark.pass_name == "set-stages"]
    assert told == "not cut into stages: 4 warps make no groups that all matrix units have a warp of"


def test_stages_that_are_there() -> None:
    text = Text(groups="{warp_pipeline = {auto}}").stage("a").stage("b")
    with pytest.raises(treadle.TreadleError) as error:
        run_passes(parse_module(str(text), "staged.mlir"), [SetStagesPass()])
    assert str(error.value).split("TR417: ")[1] == (
        "warp pipeline: a loop with stages that asks for them, too\n  fix: leave one of both out"
    )


def test_loops_that_do_not_ask_are_left_alone() -> None:
    text = Text()
    text.add(text.store())
    module = parse_module(str(text), "loop.mlir")
    before = print_module(module)
    run_passes(module, [SetStagesPass()])
    assert print_module(module) == before


@treadle.kernel(target="sim")
def misused(x: Any, y: Any, what: tl.constexpr = "") -> None:
    if what == "word":
        for i in tl.range(0, 4, stages="two"):
            y[i, 0:8] = x[i, 0:8]
    if what == "groups":
        for i in tl.range(0, 4, stages="auto", groups=2):
            y[i, 0:8] = x[i, 0:8]
    if what == "unroll":
        for i in tl.range(0, 4, unroll=0):
            y[i, 0:8] = x[i, 0:8]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("word", "stages = 'two'\nwrite stages=\"auto\", or cut the loop by tl.warp_pipeline_stage"),
        ("groups", "groups or a gap for stages that the compiler chooses\nleave them out, or cut the loop by tl.warp_pipeline_stage"),
        ("unroll", "unroll = 0\ngive the number of steps of an iteration, 1 or more"),
    ],
)
def test_misuse(what: str, message: str) -> None:
    x = np.zeros((8, 8), np.float32)
    with pytest.raises(treadle.TreadleError) as error:
        misused[1].trace(x, x.copy(), target="gfx942", until="tile", what=what)
    problem, _, _ = error.value.message.partition("\n")
    assert f"{problem}\n{error.value.fix}" == message
