"""Attention of the examples: right at random odd sizes, and on sm_90a with roles, rings and synchronisation that nobody wrote."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attention import attend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.attention_problems import Problem, symbols_of

from treadle.dialects import pipe, sync, tile
from treadle.ir.dialects import builtin, scf
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.targets.registry import backend
from treadle.verify.check import is_right

SOME = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXAMPLE = Path(__file__).parents[2] / "examples" / "attention.py"
WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))


def kernel_of(module: builtin.ModuleOp) -> tile.KernelOp:
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    return kernel


PROBLEMS = st.builds(
    Problem,
    batch=st.integers(1, 2),
    shared=st.integers(1, 3),
    group=st.integers(1, 3),
    queries=st.integers(1, 150),
    keys=st.integers(1, 200),
    width=st.sampled_from([32, 64, 128]),
    causal=st.booleans(),
    first=st.integers(0, 70),
)


@SOME
@given(PROBLEMS, st.sampled_from([16, 64]), st.sampled_from([32, 64]))
def test_any_lengths(problem: Problem, rows: int, columns: int) -> None:
    q, k, v = problem.arrays()
    results = attend(q, k, v, causal=problem.causal, first=problem.first, BM=rows, BN=columns, target="sim")
    problem.check(results, q, k, v)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert all(float(word) < 1e-3 for word in capsys.readouterr().out.split()[2:])
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


SMALL: dict[str, Any] = {"batch": 2, "shared": 1, "group": 2, "width": 64}


@pytest.mark.parametrize(("warps", "turns"), [(4, "off"), (8, "off"), (8, "always")])
@pytest.mark.parametrize("causal", [False, True])
def test_roles_of_hopper(causal: bool, warps: int, turns: str) -> None:
    """One kernel for all lengths: a producer's rings of Q, K and V, P in registers; proven, and right under any timing.

    In turns each group of four warps has its rows of Q, and a barrier for when it may multiply.
    """
    problem = Problem(**SMALL, queries=77, keys=131, causal=causal, first=5)
    kernel = kernel_of(problem.lowered("sm_90a", 16 * warps, 64, warps, issue_turns=turns))
    groups = 2 if turns == "always" else 1
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    producer, consumer = roles.roles
    assert roles.role_groups() == (1, groups)
    assert sum(isinstance(op, tile.CopyOp) for op in producer.walk()) == 2 + groups
    assert not any(isinstance(op, tile.LoadOp | tile.CopyOp) for op in consumer.walk())
    assert [op.holds_registers() for op in consumer.walk() if isinstance(op, tile.ContractOp)][-1]
    barriers = [1, 1, 2, 2, 2, 2] + [2] * (groups - 1)
    assert sorted(op.slot_count() for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp)) == barriers
    for queries, keys, first in ((77, 131, 5), (1, 1, 0), (130, 63, 0), (65, 200, 64)):
        one = Problem(**SMALL, queries=queries, keys=keys, causal=causal, first=first)
        q, k, v = one.arrays(seed=keys)
        symbols = symbols_of(kernel, one, 16 * warps)
        for mode, seed in WAYS:
            report = simulate(kernel, [q, k, v, *one.outputs()], symbols, mode=mode, seed=seed)
            assert report.ok, report
            one.check((report.outputs[0].reshape(q.shape), report.outputs[1].reshape(q.shape[:3])), q, k, v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [64, 128])
def test_code_of_hopper(width: int, causal: bool) -> None:
    """P is read from registers, nothing is spilled, and the tools serialise nothing."""
    module = Problem(1, 1, 1, 128, 128, width, causal).lowered("sm_90a", 128, 128, 8)
    target = backend("sm_90a")
    facts = target.assemble(target.emit(kernel_of(module))).facts
    assert facts.spill_bytes == 0 and facts.instructions["HGMMA"] >= (width + 128) // 16


@pytest.mark.parametrize("width", [64, 128])
def test_steps_overlap(width: int) -> None:
    """In the loop both products are in flight together, and the softmax is computed ahead of the wait for the second."""
    module = Problem(1, 1, 1, 128, 128, width).lowered("sm_90a", 128, 128, 8)
    loop = next(
        op for op in kernel_of(module).walk() if isinstance(op, scf.ForOp) and any(isinstance(o, tile.ContractOp) for o in op.walk())
    )
    kinds = (tile.ContractOp, sync.WaitOp, tile.ReduceOp)
    found = [op.pending.value.data if isinstance(op, sync.WaitOp) else op.name for op in loop.body.block.ops if isinstance(op, kinds)]
    assert found == ["tile.contract", "tile.contract", 1, "tile.reduce", "tile.reduce", 0]
    target = backend("sm_90a")
    text = target.assemble(target.emit(kernel_of(module))).assembly
    assert text.count("nanosleep.u32 0") == 1


def test_grids_of_several_axes_are_kept() -> None:
    """Roles once took all axes of a grid for its first."""
    kernel = kernel_of(Problem(**SMALL, queries=64, keys=64).lowered("sm_90a", 64, 64, 4))
    assert kernel.grid_text() == ("grid_x", "grid_y", "grid_z")
    assert {op.axis.value.data for op in kernel.walk() if isinstance(op, tile.ProgramIdOp)} == {0, 1, 2}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_element_types(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    problem = Problem(1, 1, 2, 33, 45, 64, causal=True, dtype=kind)
    q, k, v = problem.arrays()
    problem.check(attend(q, k, v, causal=True, BM=32, BN=32, target="sim"), q, k, v)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_are_waited_for_ahead_of_the_mask(causal: bool) -> None:
    """Once, not in either case of the branch; without the wait the proof fails."""
    kernel = kernel_of(Problem(**SMALL, queries=77, keys=131, causal=causal).lowered("sm_90a", 64, 64, 4))
    *_, masks, branch = (op for op in kernel.walk() if isinstance(op, scf.IfOp) and isinstance(op.results[0].type, builtin.TensorType))
    assert not any(op.name.startswith("sync.") for one in (masks, branch) for op in one.walk())
    assert is_right(kernel)
    waits = [op for op in kernel.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "wgmma" and op.parent is branch.parent]
    wait = next(op for op in waits if op.is_before_in_block(branch))
    assert wait.pending.value.data == 1
    wait.detach()
    wait.erase()
    assert not is_right(kernel)
