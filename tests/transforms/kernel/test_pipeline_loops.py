"""pipeline-loops keeps the values for every trip count, and leaves alone what it refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generators.pipelined_kernels import CASES, ROWS, STEP
from generators.unpipelined_kernels import REFUSED
from numpy.typing import NDArray

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.simplify import CsePass, DcePass
from treadle.ir.text import parse_module, print_module
from treadle.plan.stages import Mode, Request, Tail
from treadle.remarks import collect_remarks
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel
from treadle.transforms.kernel.pipeline_loops import PipelineLoopsPass
from treadle.transforms.kernel.pipelining.request import PIPELINE, PIPELINED, request_attribute
from treadle.transforms.kernel.set_pipeline import SetPipelinePass

Array = NDArray[Any]


def run(kernel: tile.KernelOp, n: int) -> Array:
    # Integers in float: sums are exact, so that equal means equal.
    rng = np.random.default_rng(n)
    x, y = (rng.integers(-3, 4, size=ROWS * n + 1).astype(np.float32) for _ in range(2))
    out = np.full((ROWS, 2 * ROWS), np.nan, np.float32)
    TileKernel(kernel).launch([Pointer(a.reshape(-1)) for a in (x, y, out)], [n])
    return out


def innermost(module: Operation) -> list[scf.ForOp]:
    return [op for op in module.walk() if isinstance(op, scf.ForOp) and not any(isinstance(o, scf.ForOp) for o in op.body.walk())]


def requested(make: Callable[[int | None], tile.KernelOp], n: int | None, stages: int, tail: Tail, buffers: int = 0) -> tile.KernelOp:
    kernel = make(n)
    for loop in innermost(kernel):
        copies = any(isinstance(op, tile.CopyOp) for op in loop.body.walk())
        mode: Mode = "async" if copies else "stream"
        loop.attributes[PIPELINE] = request_attribute(Request(stages if copies else min(stages, 3), mode, buffers, tail))
    module = builtin.ModuleOp([kernel])
    run_passes(module, [PipelineLoopsPass(), CsePass(), DcePass()])
    if n is None:
        assert print_module(parse_module(print_module(module), "again")) == print_module(module)
    kernel.detach()
    return kernel


FORMS: list[tuple[int, Tail]] = [(2, "peeled"), (3, "peeled"), (4, "peeled"), (3, "versioned"), (2, "guarded"), (4, "guarded")]


@pytest.mark.parametrize(("stages", "tail"), FORMS)
@pytest.mark.parametrize("name", CASES)
def test_values_for_every_trip_count(name: str, stages: int, tail: Tail) -> None:
    make = CASES[name]
    sequential, dynamic = make(None), requested(make, None, stages, tail)
    assert any(PIPELINED in loop.attributes for loop in innermost(dynamic))
    for trips in range(2 * stages + 2):
        n = max(trips * STEP - (STEP - 1) * (trips % 2), 0)  # every other time the last tile has one column
        expected = run(sequential, n)
        assert np.array_equal(run(dynamic, n), expected, equal_nan=True), f"dynamic, {trips} trips"
        if tail != "versioned" and trips in (0, 1, stages - 1, stages, stages + 1):  # versioned is peeled where it is static
            assert np.array_equal(run(requested(make, n, stages, tail), n), expected, equal_nan=True), f"static, {trips} trips"


@pytest.mark.parametrize("name", ["stream_matmul", "two_results", "through_scratch", "async_matmul"])
def test_more_buffers_than_needed(name: str) -> None:
    sequential, kernel = CASES[name](None), requested(CASES[name], None, 3, "peeled", 4)
    for trips in range(9):
        assert np.array_equal(run(kernel, trips * STEP), run(sequential, trips * STEP), equal_nan=True)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_loops_are_untouched(name: str) -> None:
    make, rule, at = REFUSED[name]
    before = print_module(builtin.ModuleOp([make()]))
    module = builtin.ModuleOp([make()])
    with collect_remarks() as log:
        run_passes(module, [SetPipelinePass(stages=3), PipelineLoopsPass()])
    assert print_module(module) == before
    (remark,) = log.remarks
    assert (remark.kind, remark.pass_name) == ("refusal", "set-pipeline")
    assert f"({rule})" in remark.text and (at == "scf.for" or at in remark.text or rule == "escape")
    with collect_remarks() as log:
        for loop in innermost(module):
            copies = any(isinstance(op, tile.CopyOp) for op in loop.body.walk())
            loop.attributes[PIPELINE] = request_attribute(Request(3, "async" if copies else "stream"))
        run_passes(module, [PipelineLoopsPass()])
    assert print_module(module) == before
    assert [r.pass_name for r in log.remarks] == ["pipeline-loops"]
