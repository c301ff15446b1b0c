"""Attention of few queries, its keys cut into parts: right at random odd sizes, roles and rings on sm_90a, parts for all units."""

import runpy
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import attend_to_part, decode, parts_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.attention_problems import Problem
from language.test_attention import kernel_of

from treadle.dialects import pipe, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.sim.schedule import simulate
from treadle.targets.registry import backend

SOME = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXAMPLE = Path(__file__).parents[2] / "examples" / "decode.py"
PROBLEMS = st.builds(
    Problem,
    batch=st.integers(1, 2),
    shared=st.integers(1, 3),
    group=st.integers(1, 4),
    queries=st.integers(1, 5),
    keys=st.integers(1, 500),
    width=st.sampled_from([32, 64, 128]),
)


def empty(shape: tuple[int, ...], is_wide: bool) -> Any:
    return np.full(shape, np.nan, np.float32 if is_wide else np.float16)


@SOME
@given(PROBLEMS, st.sampled_from([16, 64]), st.integers(1, 40))
def test_any_lengths_and_parts(problem: Problem, columns: int, units: int) -> None:
    q, k, v = problem.arrays()
    found = decode(q, k, v, empty, units=units, BN=columns, target="sim")
    want, _ = problem.expected(q, k, v)
    assert np.abs(found.astype(np.float64) - want).max() <= 2.1 * 2.0**-11 * np.abs(v.astype(np.float64)).max()


@given(st.integers(1, 3000), st.integers(1, 100_000), st.integers(1, 300), st.sampled_from([16, 64, 128]))
def test_parts_cover_all_keys_and_none_is_empty(heads: int, keys: int, units: int, columns: int) -> None:
    parts, length = parts_of(heads, keys, units, columns)
    assert length % columns == 0 and (parts - 1) * length < keys <= parts * length and 1 <= parts <= 64


def test_units_are_busy() -> None:
    assert parts_of(64, 32768, 132, 128) == (2, 16384)
    assert parts_of(1, 32768, 132, 128)[0] == 64
    assert parts_of(132, 32768, 132, 128)[0] == 1
    assert parts_of(8, 128, 132, 128)[0] == 1


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) < 1e-3


def test_roles_of_hopper() -> None:
    """A producer's rings of keys and values, both products on matrix instructions, no spills; right under late copies."""
    problem, width, parts, length = Problem(1, 2, 3, 1, 300, 64), 64, 3, 128
    q, k, v = problem.arrays()
    grouped = q.reshape(1, 2, 3, width)
    o, lse = np.full((parts, 1, 2, 3, width), np.nan, np.float32), np.full((parts, 1, 2, 3), np.nan, np.float32)
    launch = attend_to_part[parts, 2, 1]
    form, _, numbers = launch._resolved((grouped, k, v, o, lse, length, 1 / sqrt(width), width, 64, 64), {}, 4, 2)  # pyright: ignore
    module = scheduled(read_source(build(attend_to_part.function, form).module, "tile"), "sm_90a", CompileOptions(), None)
    kernel = kernel_of(module)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk()) and sum(isinstance(op, tile.CopyOp) for op in kernel.walk()) == 3
    target = backend("sm_90a")
    facts = target.assemble(target.emit(kernel)).facts
    assert facts.spill_bytes == 0 and facts.instructions["HGMMA"] >= 8
    arrays = dict(zip(("q", "k", "v", "o", "lse"), (grouped, k, v, o, lse), strict=True))
    values = {f"{name}_size{axis}": size for name, array in arrays.items() for axis, size in enumerate(array.shape)}
    for name, array in arrays.items():
        values |= {f"{name}_stride{axis}": stride // array.itemsize for axis, stride in enumerate(array.strides)}
    values |= dict(zip(("grid_x", "grid_y", "grid_z", "length"), numbers, strict=True))
    report = simulate(kernel, [grouped, k, v, o, lse], [values[name] for name in kernel.symbol_names()], mode="late", seed=0)
    assert report.ok, report
    found, logs = report.outputs[0].reshape(parts, 2, 3, width), report.outputs[1].reshape(parts, 2, 3, 1)
    weights = np.exp(logs - logs.max(0))
    want, _ = problem.expected(q, k, v)
    error = np.abs((found * weights).sum(0) / weights.sum(0) - want.reshape(2, 3, width)).max()
    assert error <= 1.1 * 2.0**-11 * np.abs(v.astype(np.float64)).max()
