"""examples/staged_attention.py: right on the simulator, as groups run its stages, and with the roles that they become on sm_90a."""

import math
import runpy
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.staged_attentions import staged_attention
from language.staged_kernels import kernel_of
from staged_attention import TARGETS, attention, expected, operands

from treadle.dialects import pipe, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.sim.schedule import simulate

SOME = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("examples/staged_attention.py", run_name="__main__")
    told = capsys.readouterr().out
    assert float(told.splitlines()[0].split()[2]) < 1e-3
    for target in TARGETS:
        groups = "stages 'read K', 'scores', 'softmax, read V', 'values' of 2 groups of 4 warps, 1 stage(s) apart\n"
        how = "the stages' rings are the producer's: " if target == "sm_90a" else groups
        assert f"{target}\n  {how}" in told
    assert told.count("\n  proven") == len(TARGETS)


@SOME
@given(st.integers(1, 3), st.integers(1, 150), st.integers(1, 150), st.sampled_from([16, 32, 64]))
def test_any_lengths(heads: int, queries: int, keys: int, width: int) -> None:
    q, k, v, o = operands(heads, queries, keys, width)
    attention[-(-queries // 128), heads](q, k, v, o, width**-0.5, D=width, num_warps=8, target="sim")
    np.testing.assert_allclose(o, expected(q, k, v), atol=3e-3)


@pytest.mark.parametrize(("queries", "keys"), [(128, 128), (70, 100), (1, 1)])
def test_causal(queries: int, keys: int) -> None:
    q, k, v, o = operands(2, queries, keys, 32)
    attention[-(-queries // 128), 2](q, k, v, o, 32**-0.5, CAUSAL=True, num_warps=8, target="sim")
    scores = np.exp(q.astype(np.float64) @ k.swapaxes(1, 2) / math.sqrt(32)) * np.tri(queries, keys)
    np.testing.assert_allclose(o, scores @ v / scores.sum(2, keepdims=True), atol=3e-3)


@pytest.mark.parametrize(("queries", "keys"), [(128, 96), (70, 31), (1, 1), (140, 130)])
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
def test_schedules(target: str, queries: int, keys: int) -> None:
    kernel = kernel_of(staged_attention(target, *operands(1, queries, keys, 32)))
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk()) == (target == "sm_90a")
    assert any(WARP_PIPELINED in op.attributes for op in kernel.walk()) == (target != "sm_90a")
    q, k, v, o = operands(1, queries, keys, 32)
    report = simulate(kernel, [q, k, v, o], sizes_of(kernel, queries, keys, 32), mode="random", seed=keys)
    assert report.ok, report
    np.testing.assert_allclose(report.outputs[0].reshape(o.shape), expected(q, k, v), atol=3e-3)


def sizes_of(kernel: tile.KernelOp, queries: int, keys: int, width: int) -> dict[str, int]:
    """The kernel's sizes and strides for one head."""
    rows: dict[str, Any] = {"q": queries, "o": queries, "k": keys, "v": keys}
    found = {"grid_x": -(-queries // 128), "grid_y": 1}
    for name, length in rows.items():
        axes = {"size0": 1, "size1": length, "size2": width, "stride0": length * width, "stride1": width}
        found |= {f"{name}_{axis}": extent for axis, extent in axes.items()}
    return {name: found[name] for name in kernel.symbol_names()}
