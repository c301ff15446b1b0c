"""Contractions in the vector units whose operands the threads' copies bring: random sizes, layouts and pitches, whenever copies land."""

import random

import numpy as np
import pytest
from generators.contractions import LAYOUTS, ContractionCase
from sim.schedule.faults import kernel_of

from treadle.driver import trace
from treadle.options import CompileOptions
from treadle.sim.schedule import simulate

RESULTS = {"f32": "f32", "f64": "f64", "i64": "i64"}
TILES = ((32, 32, 16), (64, 32, 8), (32, 64, 4), (16, 16, 32))


def drawn(seed: int) -> ContractionCase:
    """A product of few steps and tiles, most sizes odd."""
    rng = random.Random(seed)
    m, n, k = rng.randint(1, 70), rng.randint(1, 70), rng.choice([rng.randint(1, 90), 16 * rng.randint(1, 6)])
    element = rng.choice(list(RESULTS))
    tile, warps = rng.choice(TILES), rng.choice([(2, 1), (1, 2), (2, 2)])
    return ContractionCase(m, n, k, element, rng.choice(LAYOUTS), RESULTS[element], options={"tile": tile, "warps": warps})


def schedule(case: ContractionCase) -> str:
    """The program at schedule level, proven."""
    return trace(case.text, "sm_90a", CompileOptions(**case.options), until="schedule").stages["schedule"]


def operands(case: ContractionCase, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, whose products any order sums alike."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-8, 9, spec.shape).astype({"f32": "f4", "f64": "f8", "i64": "i8"}[case.element]) for spec in case.inputs)
    return a, b


@pytest.mark.parametrize("seed", range(24))
def test_right_whenever_copies_land(seed: int) -> None:
    case = drawn(seed)
    text = schedule(case)
    assert 'path "cp_async"' in text and '"fma"' in text, "multiply-adds of what the threads' copies bring"
    a, b = operands(case, seed)
    left, right = (a if case.layout[0] == "n" else a.T), (b if case.layout[1] == "n" else b.T)
    for mode in ("late", "random"):
        report = simulate(kernel_of(text), [a, b, np.zeros((case.m, case.n), a.dtype)], mode=mode, seed=seed)
        assert report.ok, str(report)
        assert np.array_equal(report.outputs[0], left @ right)


def test_loops_overlap_unless_that_is_refused() -> None:
    case = ContractionCase(70, 70, 200, "f32", "nt")
    text = schedule(case)
    assert "pipelined = {stages" in text and 'sync.wait "cp_async" pending 2' in text
    alone = trace(case.text, "sm_90a", CompileOptions(pipeline_stages=1), until="schedule").stages["schedule"]
    assert "pipelined" not in alone
