"""Stages and shared memory of the language: results on the simulator, what moves to another stage, and errors at the Python line."""

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.staged_kernels import PRODUCTS, module_of, operands

import treadle
import treadle.language as tl
from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.options import CompileOptions
from treadle.sim.schedule import simulate

SOME = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a")


@SOME
@given(st.integers(1, 200), st.integers(1, 70), st.integers(1, 200), st.sampled_from(sorted(PRODUCTS)))
def test_products_of_any_size(m: int, n: int, k: int, stages: str) -> None:
    a, b, c = operands(m, n, k)
    PRODUCTS[stages][-(-m // 128), -(-n // 32)](a, b, c, num_warps=8)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b)


@treadle.kernel(target="sim")
def sums(x: Any, y: Any, B: tl.constexpr = 64, S: tl.constexpr = 3, A: tl.constexpr = 1) -> None:
    """Sums of blocks of rows, which come by a ring of S slots that is filled A iterations ahead."""
    column = tl.program_id(0) * B
    ring = tl.allocate_shared((B, B), tl.float32, slots=S)
    for i in tl.static_range(A):
        ring[i] = x[i * B : i * B + B, column : column + B]
    total = tl.zeros((B, B), tl.float32)
    for i in tl.range(0, tl.cdiv(x.shape[0], B), groups=2, gap=1):
        with tl.warp_pipeline_stage("fill"):
            first = (i + A) * B
            ring[(i + A) % S] = tl.exp(x[first : first + B, column : column + B])
        with tl.warp_pipeline_stage("use"):
            total += ring[i % S]
    y[column : column + B, 0:B] = total


@treadle.kernel(target="sim")
def columns(x: Any, y: Any, B: tl.constexpr = 64) -> None:
    """The sum of each column: warps have parts of it, which meet two stages later."""
    column = tl.program_id(0) * B
    total = tl.zeros((B,), tl.float32)
    for i in range(0, x.shape[0], B):
        with tl.warp_pipeline_stage("load"):
            rows = x[i : i + B, column : column + B]
        with tl.warp_pipeline_stage("reduce"):
            found = tl.sum(rows, axis=0)
        with tl.warp_pipeline_stage("pause"):
            pass
        with tl.warp_pipeline_stage("add"):
            total += found
    y[0, column : column + B] = total


X, Y = np.ones((256, 64), np.float32), np.ones((64, 64), np.float32)


EXCHANGES = ("a reduction", "a change of layout")


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_without_products(target: str) -> None:
    """On every target, for the barriers of a warp pipeline are those of any workgroup; proven, and what `trace` gives says what moved."""
    schedule = sums[1].trace(X, Y, num_warps=8, target=target, until="schedule")
    assert "sync.barrier bare groups array<i64: 1>" in schedule.stages["schedule"]
    schedule = columns[1].trace(X, Y, num_warps=8, target=target, until="schedule")
    told = [remark.text for remark in schedule.remarks if remark.pass_name == "form-warp-pipeline"]
    assert told[1] in [f"{what} across warps of stage 'reduce' ends in stage 'add', behind a barrier" for what in EXCHANGES]


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
@pytest.mark.parametrize("rows", [256, 70])
def test_what_moved_computes_the_same(target: str, rows: int) -> None:
    """At schedule level, where the groups run."""
    x = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64) % 5
    module = scheduled(read_source(module_of(columns, (1,), x, Y), "tile"), target, CompileOptions(), None)
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    known = {"x_size0": rows, "x_size1": 64, "x_stride0": 64, "y_size0": 64, "y_size1": 64, "y_stride0": 64, "grid_x": 1}
    for seed in (1, 2):
        report = simulate(kernel, [x, Y], known, mode="random", seed=seed)
        assert report.ok
        np.testing.assert_array_equal(report.outputs[0][0], x.sum(0))


def test_their_results() -> None:
    x, y = np.arange(150 * 70, dtype=np.float32).reshape(150, 70) % 7, np.zeros((1, 70), np.float32)
    columns[2](x, y, num_warps=8)
    np.testing.assert_array_equal(y[0], x.sum(0))


# --- errors


@treadle.kernel(target="sim")
def reduced(x: Any, y: Any, B: tl.constexpr = 64) -> None:
    total = tl.zeros((B,), tl.float32)
    for i in range(0, x.shape[0], B):
        with tl.warp_pipeline_stage("load"):
            rows = x[i : i + B, 0:B]
        with tl.warp_pipeline_stage("reduce"):
            total += tl.sum(rows, axis=0)
    y[tl.program_id(0), 0:B] = total


@treadle.kernel(target="sim")
def multiplied(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        with tl.warp_pipeline_stage("load"):
            x, y = a[0:BM, k : k + BK], b[k : k + BK, 0:BN]
        with tl.warp_pipeline_stage("multiply"):
            acc = tl.dot(x, y, acc)
    c[0:BM, 0:BN] = acc


@treadle.kernel(target="sim")
def turned(x: Any, y: Any, B: tl.constexpr = 64) -> None:
    for i in range(0, x.shape[0], B):
        with tl.warp_pipeline_stage("load"):
            block = x[i : i + B, 0:B]
        with tl.warp_pipeline_stage("turn"):
            y[0:B, 0:B] = block + block.T


@treadle.kernel(target="sim")
def shared(a: Any, b: Any, c: Any, S: tl.constexpr = 3, A: tl.constexpr = 1, BM: tl.constexpr = 128, BK: tl.constexpr = 32) -> None:
    """A product whose right operand, which all groups read, comes by a ring of S slots that is filled A iterations ahead."""
    m = tl.program_id(0) * BM
    ring, rows = tl.allocate_shared((BK, BK), tl.float16, slots=S), tl.allocate_shared((BM, BK), tl.float16)
    rows[0] = a[m : m + BM, 0:BK]
    for i in tl.static_range(A):
        ring[i] = b[i * BK : i * BK + BK, 0:BK]
    acc = tl.zeros((BM, BK), tl.float32)
    for i in range(tl.cdiv(b.shape[0], BK)):
        with tl.warp_pipeline_stage("fill"):
            k = (i + A) * BK
            ring[(i + A) % S] = b[k : k + BK, 0:BK]
        with tl.warp_pipeline_stage("use"):
            acc = tl.dot(rows[0], ring[i % S], acc)
    c[m : m + BM, 0:BK] = acc


def message(kernel: Any, *arrays: Any, target: str = "gfx942", **named: Any) -> str:
    """The error, with the number of the line in the kernel's function for that in the file."""
    with pytest.raises(treadle.TreadleError) as error:
        kernel[1].trace(*arrays, target=target, until="schedule", **{"num_warps": 8, **named})
    place = error.value.location
    assert place is not None and place.file == __file__
    first = inspect.getsourcelines(kernel.function)[1]
    text = error.value.message
    for line in range(first, first + 30):
        text = text.replace(f"(line {line})", f"(line {line - first})")
    return f"{place.line - first} {error.value.code}: {text}\n{error.value.fix}"


PRODUCT = (np.ones((128, 64), np.float16), np.ones((64, 32), np.float16), np.ones((128, 32), np.float32))
INSIDE = "goes through shared memory, which takes a barrier inside of stage"
LATER = "use its result 2 stages later or more, in a loop of at least 4 stages; within a stage exchange nothing across warps"


def test_what_hides_a_barrier() -> None:
    assert message(reduced, X, Y) == f"7 TR418: warp pipeline: a reduction across warps {INSIDE} 'reduce'\n{LATER}"
    assert message(turned, X, Y) == f"6 TR418: warp pipeline: a change of layout across warps {INSIDE} 'turn'\n{LATER}"
    assert message(multiplied, *PRODUCT) == (
        f"7 TR418: warp pipeline: an operand of a product {INSIDE} 'multiply'\n"
        "pass it on by a buffer of your own (tl.allocate_shared), stored in one stage and loaded in a later one"
    )


def test_what_groups_cannot_share() -> None:
    """Written in one stage and read in the next, by groups that are a stage apart; with what the message asks for it compiles."""
    assert message(shared, *PRODUCT, S=1, A=0) == (
        "12 TR418: warp pipeline: a store to shared memory (line 12) in stage 'fill' comes before a load from shared memory (line 14) in "
        "stage 'use' in the same iteration, which is 1 stage on; a group that is 1 stage ahead is there at the same time\n"
        "fill it 1 iteration ahead, in a buffer of 3 slots (slot (i + 1) % 3 of iteration i)"
    )
    assert message(shared, *PRODUCT, S=2, A=1) == (
        "14 TR418: warp pipeline: a load from shared memory (line 14) in stage 'use' comes before a store to shared memory (line 12) in "
        "stage 'fill' 1 iteration later, which is 1 stage on; a group that is 1 stage ahead is there at the same time\n"
        "give the buffer 3 slots instead of 2"
    )
    shared[1].trace(*PRODUCT, num_warps=8, target="gfx942", until="schedule", S=3, A=1)


def test_one_group_of_warps() -> None:
    assert message(sums, X, Y, num_warps=1) == ("8 TR417: warp pipeline: 1 warp cannot be dealt to 2 groups\nlaunch it with num_warps = 2")


@treadle.kernel(target="sim")
def misused(x: Any, y: Any, what: tl.constexpr = "") -> None:
    if what == "label":
        with tl.warp_pipeline_stage(3):
            pass
    if what == "priority":
        with tl.warp_pipeline_stage("a", priority=4):
            pass
    if what == "as":
        with tl.warp_pipeline_stage("a") as stage:
            ring = stage
    ring = tl.allocate_shared((8, 8), tl.float32, slots=2)
    if what == "slot":
        ring[2] = x[0:8, 0:8]
    if what == "two":
        ring[0, 1] = x[0:8, 0:8]
    if what == "shape":
        ring[0] = x[0:8, 0:16]
    if what == "slots":
        ring = tl.allocate_shared((8, 8), tl.float32, slots=0)
    if what == "groups":
        for i in tl.range(0, 4, groups=1.5):
            ring[i] = x[0:8, 0:8]
    for _ in range(4):
        if what == "inside":
            tl.allocate_shared((8, 8), tl.float32)
        if what == "return":
            with tl.warp_pipeline_stage("a"):
                return


MISUSES = {
    "label": "the label 3 of a stage\nlabels are strings",
    "priority": "the priority 4 of a stage\npriorities are 0, 1, 2 and 3, or None",
    "as": "a 'with' that opens no stage, or more\nwrite with tl.warp_pipeline_stage(\"load\"): and nothing else",
    "slot": "slot 2 of 2 slots of float32[8, 8] in shared memory\nslots are numbered from 0 to 1",
    "two": "2 subscripts of 2 slots of float32[8, 8] in shared memory\nname one slot: ring[i % 2]",
    "shape": "a tile of float32[8, 16] is stored to a slot of float32[8, 8] in shared memory\ngive both one shape",
    "slots": "a buffer of 0 slots\ngive a positive number, known when the kernel is compiled",
    "groups": "groups = 1.5\ngive an integer, known when the kernel is compiled",
    "inside": "shared memory is allocated inside of a loop or branch\nallocate it once, ahead of all loops",
    "return": "a return inside of a loop or branch of the kernel\nend the branch without it, and return at the end",
}


@pytest.mark.parametrize("what", MISUSES)
def test_misuse(what: str) -> None:
    with pytest.raises(treadle.TreadleError) as error:
        misused[1].trace(X, Y, target="gfx942", until="tile", what=what)
    assert error.value.code == "TR109"
    problem, _, _ = error.value.message.partition("\n")
    assert f"{problem}\n{error.value.fix}" == MISUSES[what]
