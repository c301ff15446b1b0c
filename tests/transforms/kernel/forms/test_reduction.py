"""The form reduction: tiles of rows and of what is reduced, right values for ragged sizes."""

import numpy as np
import pytest
from transforms.form_programs import lowered, problem_of

from treadle.bench.reductions import row_sums
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled
from treadle.transforms.kernel.forms import reduction


def sums(m: int, n: int) -> str:
    return row_sums("test", "test", m, n, "f32").text


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize(("m", "n"), [(77, 1001), (1, 5), (8192, 8192)])
def test_choices(m: int, n: int, target: str) -> None:
    problem = problem_of(sums(m, n), target)
    assert problem.nest.kind == "reduction" and reduction.refusal(problem) is None
    found = reduction.decide(problem)
    sizes = [int(np.prod(choice.config.extents(2))) for choice in found]
    assert sizes == [sizes[0] >> times for times in range(len(sizes))] and sizes[-1] == 1
    assert all(choice.config.form == "reduction" for choice in found)


def test_more_to_read_takes_no_less_time() -> None:
    times = [reduction.decide(problem_of(sums(m, 1000)))[0].seconds for m in (1, 7, 100, 5000, 100_000)]
    assert times == sorted(times)


@pytest.mark.parametrize(("m", "n"), [(3, 77), (65, 130)])
def test_what_is_built_computes_the_right_values(m: int, n: int) -> None:
    module, said = lowered(sums(m, n), "sm_90a", CompileOptions())
    assert said.startswith(f"reduction over {m}x{n}: tile ")
    array = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
    report = run_program_scheduled(module, [array], "late", 0)
    assert report.ok, str(report)
    (reference,) = evaluate_module(parse_module(sums(m, n), "test.mlir"), [array])
    assert check(report.outputs[0], reference).ok
