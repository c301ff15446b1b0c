"""Single results of convolutions, compared with what their windows give: the same as whole images, wrong ones found."""

from random import Random
from typing import Any

import numpy as np
import pytest
from bench.fakes import FakeMachine

from treadle import driver
from treadle.bench.case import compare, run_case
from treadle.bench.protocol import MeasureOptions
from treadle.bench.suite import find
from treadle.bench.windows import places_of, sampled_images
from treadle.bench.workload import Workload
from treadle.frontends import mlir
from treadle.options import CompileOptions
from treadle.sim.reference import evaluate_module

QUICK = MeasureOptions(rounds=1, warm_seconds=0.0, pause_seconds=0.0, rows=3, columns=4)


def random_workload(seed: int) -> Workload:
    draw = Random(seed)
    n, c, f, k = (draw.randint(1, most) for most in (3, 5, 7, 4))
    h, w = (draw.randint(8, 13) for _ in range(2))
    step, spread, pad = draw.randint(1, 3), draw.randint(1, 2), draw.choice([0, 1, 4])
    name = f"conv-f16-{n}x{h}x{w}x{c}-{f}-k{k}-s{step}-d{spread}-p{pad}{draw.choice(['', '-bias', '-silu'])}"
    found = find(name)
    assert found is not None, name
    return found


def given(workload: Workload) -> list[Any]:
    machine = FakeMachine()
    return [machine.tensor(spec, number) for number, spec in enumerate(workload.inputs)]


@pytest.mark.parametrize("seed", range(10))
def test_windows_give_what_whole_images_give(seed: int) -> None:
    workload = random_workload(seed)
    window, arrays = workload.window, given(workload)
    assert window is not None
    (whole,) = evaluate_module(mlir.load(workload.text, workload.name), arrays)
    places = places_of(range(workload.rows * window.sides[0] * window.sides[1]), window.sides)
    images = sampled_images(FakeMachine(), arrays[0], workload.inputs[0], window, places)
    module = mlir.load(window.write(len(places), workload.columns), workload.name)
    (parts,) = evaluate_module(module, [images, *arrays[1:]])
    assert np.array_equal(np.asarray(parts.value).reshape(whole.value.shape), whole.value)


@pytest.mark.parametrize("seed", range(10))
def test_a_wrong_result_is_found(seed: int) -> None:
    """A sample has the first result and the last one."""
    workload = random_workload(seed)
    arrays, options = given(workload), CompileOptions()
    (right,) = evaluate_module(mlir.load(workload.text, workload.name), arrays)
    for wrong in (False, True):
        made = np.array(right.value, np.float16)
        made[-1, -1, -1, -1] += 1000 * wrong
        (verdict,) = compare(workload, FakeMachine(), arrays, [made], QUICK, options)
        assert verdict.ok != wrong


def test_a_case_from_text_to_record() -> None:
    workload = find("conv-f16-2x7x9x5-6-k3")
    assert workload is not None
    record = run_case(workload, FakeMachine(mark_ms=0.5), lambda text, options: driver.compile(text, "sim", options), {}, QUICK)
    assert record.status == "ok"
