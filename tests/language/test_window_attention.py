"""examples/window_attention.py: right for any length and window, with roles on sm_90a, and without steps for keys that no row sees."""

import runpy
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.staged_kernels import kernel_of
from window_attention import attend, attention, expected

from treadle.dialects import pipe
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.sim.schedule import simulate

SOME = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def arrays(heads: int, shared: int, length: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((1, count, length, 32)).astype(np.float16) for count in (heads, shared, shared))
    return q, k, v


@SOME
@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 200), st.integers(1, 220), st.sampled_from([16, 64]), st.sampled_from([16, 32]))
def test_any_window(shared: int, group: int, length: int, window: int, rows: int, columns: int) -> None:
    q, k, v = arrays(shared * group, shared, length)
    found = attend(q, k, v, window, BM=rows, BN=columns, target="sim")
    np.testing.assert_allclose(found, expected(q, k, v, window), atol=3e-3)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("examples/window_attention.py", run_name="__main__")
    assert float(capsys.readouterr().out.split()[2]) < 2e-3


def test_keys_that_nobody_sees_are_not_read() -> None:
    """NaN far from the diagonal reaches no row: tiles of 16 by 16 walk those of the window alone."""
    q, k, v = arrays(1, 1, 96)
    k[:, :, :32], v[:, :, :32] = np.nan, np.nan
    found = attend(q, k, v, 17, BM=16, BN=16, target="sim")
    assert np.isfinite(found[:, :, 64:]).all() and np.isnan(found[:, :, :32]).any()


@pytest.mark.parametrize(("length", "window"), [(140, 30), (64, 64), (1, 5), (200, 100)])
def test_roles(length: int, window: int) -> None:
    """One kernel for all lengths and windows, which runs under any timing; the walk begins within the keys."""
    q, k, v = arrays(2, 1, length)
    form, _, _ = attention[1, 1, 1]._resolved((q, k, v, np.zeros_like(q), window, 32**-0.5, 32, 64, 32), {}, 4, 2)
    kernel = kernel_of(scheduled(read_source(build(attention.function, form).module, "tile"), "sm_90a", CompileOptions(), None))
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    found: dict[str, int] = {"grid_x": -(-length // 64), "grid_y": 2, "grid_z": 1, "window": window}
    for name, heads in (("q", 2), ("o", 2), ("k", 1), ("v", 1)):
        axes = {"size0": 1, "size1": heads, "size2": length, "size3": 32, "stride0": heads * length * 32, "stride1": length * 32}
        found |= {f"{name}_{axis}": extent for axis, extent in {**axes, "stride2": 32}.items()}
    sizes = {name: found[name] for name in kernel.symbol_names()}
    report = simulate(kernel, [q, k, v, np.zeros_like(q)], sizes, mode="random", seed=length)
    assert report.ok, report
    np.testing.assert_allclose(report.outputs[0].reshape(q.shape), expected(q, k, v, window), atol=3e-3)
