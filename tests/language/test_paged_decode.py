"""examples/paged_decode.py: right for any pages, lengths and parts; pages are copied whole by a producer on sm_90a, or gathered."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.test_attention import kernel_of
from paged_decode import attend_to_part, decode, keys_a_step, problem

from treadle.dialects import pipe, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.sim.schedule import simulate
from treadle.targets.registry import backend

SOME = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXAMPLE = Path(__file__).parents[2] / "examples" / "paged_decode.py"
LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=3)


def drawn(seed: int, shared: int, group: int, page: int, lengths: Any, width: int) -> tuple[Any, ...]:
    """A problem whose pages are NaN beyond the lengths, and where they are nobody's."""
    *given, want = problem(np.random.default_rng(seed), len(lengths), shared, group, page, lengths, width)
    _, k, v, table, _ = given
    used = np.zeros(k.shape[:2], bool)
    for row, length in zip(table, lengths, strict=True):
        for place in range(length):
            used[row[place // page], place % page] = True
    if page % 16 == 0:  # what is copied lies in pages of the sequence: values behind its end are multiplied by zero
        used[table.ravel()] = True
    k[~used] = v[~used] = np.nan
    return (*given, want)


@SOME
@given(st.integers(1, 2), st.integers(1, 4), st.sampled_from([16, 48, 64]), LENGTHS, st.sampled_from([32, 64]), st.integers(1, 30))
def test_pages_that_are_copied(shared: int, group: int, page: int, lengths: Any, width: int, units: int) -> None:
    *given, want = drawn(len(lengths), shared, group, page, lengths, width)
    np.testing.assert_allclose(decode(*given, units=units, target="sim"), want, atol=4e-3)


@SOME
@given(st.integers(1, 2), st.sampled_from([1, 3, 7, 20]), st.lists(st.integers(1, 90), min_size=1, max_size=3), st.integers(1, 30))
def test_pages_that_are_gathered(shared: int, page: int, lengths: Any, units: int) -> None:
    *given, want = problem(np.random.default_rng(page), len(lengths), shared, 2, page, lengths, 32)
    np.testing.assert_allclose(decode(*given, units=units, target="sim"), want, atol=4e-3)


def test_steps() -> None:
    assert [keys_a_step(page) for page in (256, 128, 64, 48, 16, 20, 1)] == [128, 128, 64, 16, 16, 64, 64]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) < 2e-3


def launched(given: Any, parts: int, length: int, BN: int, target: str) -> tuple[tile.KernelOp, list[Any], list[int]]:
    """The kernel of a part for a target, its arrays and its sizes."""
    q, k, v, table, lengths = given
    batch, heads, queries, width = q.shape
    page, shared = k.shape[1:3]
    rows = heads // shared * queries
    o, lse = np.full((parts, batch, shared, rows, width), np.nan, np.float32), np.full((parts, batch, shared, rows), np.nan, np.float32)
    arrays = {"q": q.reshape(batch, shared, rows, width), "k": k, "v": v, "table": table, "lengths": lengths, "o": o, "lse": lse}
    arguments = (*arrays.values(), length, width**-0.5, page, width, 64, BN)
    form, _, numbers = attend_to_part[parts, shared, batch]._resolved(arguments, {}, 4, 3)  # pyright: ignore[reportPrivateUsage]
    module = scheduled(read_source(build(attend_to_part.function, form).module, "tile"), target, CompileOptions(), None)
    kernel = kernel_of(module)
    values = {f"{name}_size{axis}": size for name, array in arrays.items() for axis, size in enumerate(array.shape)}
    for name, array in arrays.items():
        values |= {f"{name}_stride{axis}": stride // array.itemsize for axis, stride in enumerate(array.strides)}
    values |= dict(zip(("grid_x", "grid_y", "grid_z", "part_length"), numbers, strict=True))
    return kernel, list(arrays.values()), [values[name] for name in kernel.symbol_names()]


@pytest.mark.parametrize(("page", "mode"), [(32, "late"), (64, "random")])
def test_roles_of_hopper(page: int, mode: Any) -> None:
    """The producer reads the table: its copies, and no others, are whole pages' parts; right when they are late."""
    *given, want = drawn(3, 2, 3, page, (150, 97), 64)
    kernel, arrays, sizes = launched(given, 2, 96 if page == 32 else 128, 32, "sm_90a")
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    producer, consumer = (list(region.walk()) for region in roles.roles)
    assert sum(isinstance(op, tile.CopyOp) for op in producer) == 3
    assert sum(isinstance(op, tile.ExtractOp) for op in producer) == 1 and not any(isinstance(op, tile.ExtractOp) for op in consumer)
    report = simulate(kernel, arrays, sizes, mode=mode, seed=page)
    assert report.ok, report
    found, logs = report.outputs[0].reshape(arrays[5].shape), report.outputs[1].reshape(arrays[6].shape)[..., None]
    weights = np.exp(logs - logs.max(0))
    np.testing.assert_allclose((found * weights).sum(0) / weights.sum(0), want.reshape(2, 2, 3, 64), atol=3e-3)


def test_code_of_hopper() -> None:
    *given, _ = drawn(3, 1, 4, 128, (300,), 128)
    kernel, _, _ = launched(given, 2, 256, 128, "sm_90a")
    code = backend("sm_90a")
    facts = code.assemble(code.emit(kernel)).facts
    assert facts.spill_bytes == 0 and facts.instructions["HGMMA"] >= 16


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("page", [16, 5])
def test_other_targets(target: str, page: int) -> None:
    """Proven, and right as their schedules run."""
    *given, want = problem(np.random.default_rng(page), 1, 1, 2, page, (37,), 32)
    kernel, arrays, sizes = launched(given, 1, 64, 16, target)
    report = simulate(kernel, arrays, sizes, mode="random", seed=page)
    assert report.ok, report
    np.testing.assert_allclose(report.outputs[0].reshape(1, 1, 2, 32), want.reshape(1, 1, 2, 32), atol=3e-3)
