"""Attention's shape, written at tile level without roles or synchronisation, on a GPU: what the passes make of it is right."""

from typing import Any

import numpy as np
import pytest
from attention import attend
from device.test_schedules_cuda import RUNS
from generators.attention import attention
from language.attention_problems import Problem
from transforms.kernel.test_attention_roles import CASES, expected

import treadle

LARGE = [(2048, 4096, 2, 2, 132), (4096 + 64, 1024 + 64, 1, 3, 132)]
"""As in `CASES`: rows, length, groups, stages, workgroups."""


@pytest.mark.parametrize("through", ["", "threads"])
@pytest.mark.parametrize(("rows", "length", "groups", "stages", "workgroups"), [*CASES, *LARGE])
@pytest.mark.usefixtures("hopper")
def test_attention_is_right_again_and_again(rows: int, length: int, groups: int, stages: int, workgroups: int, through: str) -> None:
    text = attention(rows, length, groups=groups, config=f"roles, num_stages = {stages}, workgroups = {workgroups}", through=through)
    shapes = ", ".join(f'["{extent}", "64"]' for extent in (rows, length, length, rows))
    program = treadle.compile(text.replace("symbols = []", f"symbols = [], arg_shapes = [{shapes}]"), target="sm_90a")
    rng = np.random.default_rng(rows + length)
    arrays = [rng.standard_normal((extent, 64)).astype(np.float16) for extent in (rows, length, length)]
    want = expected(arrays)
    (first,) = (np.asarray(result) for result in program(*arrays))
    assert np.abs(first - want).max() <= 1.01 * 2**-11 * np.abs(arrays[2]).max()  # P is rounded to f16, the rest to f32
    for _ in range(RUNS):
        (again,) = (np.asarray(result) for result in program(*arrays))
        assert np.array_equal(again, first)


PROBLEMS = [
    Problem(2, 2, 2, 77, 131, 64),
    Problem(1, 1, 4, 1, 1, 128, causal=True),
    Problem(2, 3, 1, 515, 515, 128, causal=True),
    Problem(1, 2, 2, 1023, 2049, 128),
    Problem(3, 1, 2, 130, 1000, 96, causal=True, first=870),
    Problem(1, 2, 1, 300, 700, 256),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.usefixtures("hopper")
def test_the_example_is_right_again_and_again(problem: Problem) -> None:
    q, k, v = problem.arrays()
    columns = 128 if problem.width <= 128 else 64
    options: dict[str, Any] = {
        "causal": problem.causal,
        "first": problem.first,
        "BN": columns,
        "num_warps": 8,
        "num_stages": 2,
        "target": "sm_90a",
    }
    first = attend(q, k, v, **options)
    problem.check(first, q, k, v)
    for _ in range(RUNS):
        again = attend(q, k, v, **options)
        assert all(map(np.array_equal, again, first))
