"""The form roles on operands that no descriptor copy brings: rows that are no multiple of 16 bytes, arrays that begin off 16 bytes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from transforms.form_programs import arrays_of, assert_right, lowered, problem_of, workload

from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import roles_of
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.schedule import run_program_scheduled
from treadle.transforms.kernel.forms import roles, swapped


def small(num_stages: int, consumer_warpgroups: int = 1, cluster: int = 1) -> CompileOptions:
    """Roles on small tiles."""
    asked: dict[str, Any] = {"num_stages": num_stages, "consumer_warpgroups": consumer_warpgroups, "cluster": cluster}
    return CompileOptions(form="roles", tile=(64, 64, 64), warps=(4, 1), **asked)


def paths(module: builtin.ModuleOp) -> list[str]:
    """How the operands come, in the order of their copies."""
    return sorted(op.path.data for op in module.walk() if isinstance(op, tile.CopyOp))


@pytest.mark.parametrize(
    ("sizes", "dtype", "kn", "pieces"),
    [
        ((256, 256, 132), "bf16", True, (8, 0)),
        ((256, 256, 132), "bf16", False, (8, 8)),
        ((256, 250, 128), "f16", True, (0, 4)),
        ((123, 456, 51234), "bf16", True, (4, 0)),
        ((256, 256, 136), "f16", False, (0, 0)),
        ((128, 512, 50001), "bf16", True, (2, 0)),
        ((256, 256, 133), "i8", False, (1, 1)),
    ],
)
def test_each_operand_comes_in_the_widest_pieces_of_its_rows(
    sizes: tuple[int, int, int], dtype: str, kn: bool, pieces: tuple[int, int]
) -> None:
    m, n, k = sizes
    problem = problem_of(workload(m, n, k, dtype, kn=kn).text)
    assert problem.copies.piece_bytes == pieces and roles.refusal(problem) is None
    assert (problem.descriptor_refusal is None) == (pieces == (0, 0))


def test_only_descriptor_copies_feed_swapped_operands() -> None:
    said = swapped.refusal(problem_of(workload(16, 4096, 4100).text))
    assert said is not None and "4100 elements is not known to be a multiple of 16 bytes" in said


@pytest.mark.parametrize(("m", "n", "k", "kn"), [(70, 72, 130, True), (40, 90, 99, True), (40, 64, 66, False)])
def test_f32_is_turned_and_rounded_on_the_way(m: int, n: int, k: int, kn: bool) -> None:
    """As tf32 an operand that lies across is copied element by element; all is rounded, so that nothing stays in flight."""
    work = workload(m, n, k, "f32", kn=kn)
    module, _ = lowered(work.text, "sm_90a", replace(small(3), tile=(64, 64, 32), f32_precision="tf32"))
    assert set(paths(module)) == {"cp_async"}
    assert {op.pending.value.data for op in module.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "cp_async"} == {0}
    a, b = arrays_of(work)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, [a, b], mode, 1)
        assert report.ok, str(report)
        exact = a.astype(np.float64) @ (b if kn else b.T).astype(np.float64)
        assert np.allclose(report.outputs[0], exact, atol=2**-9 * k**0.5)


@given(st.data())
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.explicit, Phase.generate])
def test_random_pitches_are_proven_and_right(data: st.DataObject) -> None:
    """Any pitch, few steps and many, rings of any depth, several tiles a workgroup: proven, right in both modes."""
    dtype = data.draw(st.sampled_from(["f16", "bf16"]))
    m, n = data.draw(st.integers(2, 150)), data.draw(st.integers(2, 150))
    k = data.draw(st.integers(9, 340))
    options = small(data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2)))
    work = workload(m, n, k, dtype)
    module, _ = lowered(work.text, "sm_90a", options)
    assert any(isinstance(op, pipe.RolesOp) for op in module.walk())
    assert set(paths(module)) == ({"cp_async"} if k % 8 else {"bulk_tensor"})
    assert_right(work, module)


def test_the_other_operand_stays_with_descriptor_copies() -> None:
    work = workload(100, 72, 202, "bf16", kn=True)
    module, _ = lowered(work.text, "sm_90a", small(4, 2))
    assert paths(module) == ["bulk_tensor", "cp_async", "cp_async"]
    (op,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    producer = roles_of(op)[0]
    moves = target_spec("sm_90a").register_moves
    assert moves is not None and producer.executing_warps == 4 and producer.registers == moves.copy_split[0]
    assert_right(work, module)


@pytest.mark.parametrize("groups", [1, 2])
def test_twice_as_many_warps_shift_rows(groups: int) -> None:
    """Rows of A begin anywhere: eight warps copy, right in any order, whatever the consumers."""
    work = workload(100, 72, 203, "bf16", kn=True)
    module, _ = lowered(work.text, "sm_90a", small(4, groups))
    (op,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    assert roles_of(op)[0].executing_warps == 8 and [role.registers for role in roles_of(op)] == [0, 0]
    assert_right(work, module)


def test_a_pitch_that_the_runtime_gives_is_any() -> None:
    """One kernel for all, whose threads shift; proven for all sizes, right for an odd one."""
    work = workload(70, 64, 133, "bf16", kn=True)
    text = work.text.replace("70x133x", "70x?x").replace("133x64x", "?x64x")
    module, _ = lowered(text, "sm_90a", small(3))
    assert set(paths(module)) == {"bulk_tensor", "cp_async"}
    a, b = arrays_of(work)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, [a, b], mode, 1)
        assert report.ok, str(report)
        assert np.allclose(report.outputs[0].astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), rtol=2**-6, atol=0.1)


def test_shifted_rows_are_handed_over_at_once() -> None:
    """They are complete when they are committed; pieces that stay in flight are handed over later."""
    for k, pending in ((203, {0}), (202, {2, 0})):
        module, _ = lowered(workload(100, 72, k, "bf16", kn=True).text, "sm_90a", small(4))
        waits = [op for op in module.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "cp_async"]
        assert {op.pending.value.data for op in waits} == pending


def test_threads_copies_are_not_shared_by_a_cluster() -> None:
    work = workload(256, 128, 132)
    module, _ = lowered(work.text, "sm_90a", small(3, cluster=2))
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert kernel.cluster is None or kernel.cluster.value.data == 1
