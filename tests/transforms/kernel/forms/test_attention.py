"""The form attention: right and proven for any sizes, in one kernel with roles, and the same on other machines."""

import numpy as np
import pytest
from generators.attention_texts import AttentionText
from transforms.attention_kernels import Late, check, kernels, lowered, simulated

from treadle.dialects import pipe, sync, tile
from treadle.ir.dialects import arith, math, scf
from treadle.sim.program import SimProgram
from treadle.targets.registry import backend

PLAIN = [
    AttentionText((2,), 200, 300, 64, 64),
    AttentionText((), 77, 93, 40, 72, is_late=True),
    AttentionText((1, 3), 65, 130, 96, 128, "bf16", is_named=True),
    AttentionText((2, 2), 64, 64, 32, 32, is_transposed=True),
    AttentionText((3,), 129, 70, 256, 256),
]


@pytest.mark.parametrize("problem", PLAIN, ids=str)
def test_plain_attention_is_proven_and_right(problem: AttentionText) -> None:
    module = lowered(problem)
    (kernel,) = kernels(module)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    check(simulated(module, problem), problem)


OTHERS = [
    AttentionText((2,), 100, 150, 64, 64, dynamic="mna"),
    AttentionText((2,), 200, 200, 64, 64, is_causal=True),
    AttentionText((2, 2, 3), 70, 100, 64, 64, shared=3),
    AttentionText((2,), 100, 100, 64, 64, has_mask=True),
]


@pytest.mark.parametrize("problem", OTHERS, ids=str)
def test_masks_and_shared_heads(problem: AttentionText) -> None:
    module = lowered(problem)
    (kernel,) = kernels(module)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    check(simulated(module, problem), problem)


@pytest.mark.parametrize("target", ["gfx950", "gfx1100"])
def test_other_machines(target: str) -> None:
    problem = AttentionText((2,), 70, 150, 40, 64, "bf16", is_causal=True)
    check(simulated(lowered(problem, target), problem), problem)


@pytest.mark.parametrize("rows", [60, 1024])
@pytest.mark.parametrize("width", [40, 128, 208, 224, 256])
@pytest.mark.parametrize("is_causal", [False, True])
def test_tools_take_every_width(width: int, is_causal: bool, rows: int) -> None:
    """Assembling audits: no C75xx, nothing of a matrix instruction touched in flight; none of the form's other candidates is needed."""
    target = backend("sm_90a")
    module = lowered(AttentionText((2,), rows, 1000, width, width, "bf16", is_causal=is_causal), verify=False)
    (kernel,) = kernels(module)
    assert target.assemble(target.emit(kernel)).facts.spill_bytes == 0


@pytest.mark.parametrize("is_causal", [False, True])
def test_two_workgroups_share_the_registers_of_a_unit(is_causal: bool) -> None:
    """Those of one warpgroup each; the one that computes has what the producer leaves of half a unit's registers."""
    problem = AttentionText((3,), 50, 150, 64, 64, is_causal=is_causal)
    module, target = lowered(problem), backend("sm_90a")
    (kernel,) = kernels(module)
    emitted = target.emit(kernel)
    assert '"nvvm.minctasm"="2"' in emitted.llvm_text and "setmaxnreg.inc.sync.aligned.u32 216" in emitted.llvm_text
    facts = target.assemble(emitted).facts
    assert facts.spill_bytes == 0 and facts.registers == 128
    check(simulated(module, problem), problem)


def test_sums_are_rescaled_behind_the_wait_for_values() -> None:
    """Nothing but waits stands between the first product of a step and what its second reads: ptxas would put it ahead of the first."""
    (kernel,) = kernels(lowered(PLAIN[0]))
    steady = [op.body.block for op in kernel.walk() if isinstance(op, scf.ForOp)]
    (ops,) = [list(b.ops) for b in steady if sum(isinstance(op, tile.ContractOp) for op in b.ops) == 2]
    first, second = (at for at, op in enumerate(ops) if isinstance(op, tile.ContractOp))
    wait = next(at for at in range(first, second) if isinstance(ops[at], sync.WaitPhaseOp))
    assert first < wait < next(at for at in range(first, second) if isinstance(ops[at], arith.MulfOp))


@pytest.mark.parametrize("dynamic", ["", "m", "a"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_that_see_most_keys_begin_first(is_causal: bool, dynamic: str) -> None:
    """The last tiles of rows, where rows see the keys before them and their number is known."""
    problem = AttentionText((2,), 300, 300, 64, 64, is_causal=is_causal, dynamic=dynamic)
    module = lowered(problem)
    (kernel,) = kernels(module)
    roles = next(op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    turned = any(isinstance(op, arith.SubiOp) and isinstance(op.rhs.owner, tile.ProgramIdOp | arith.RemUIOp) for op in roles.walk())
    assert turned == (is_causal and dynamic != "m")
    check(simulated(module, problem), problem)


@pytest.mark.parametrize(
    "problem",
    [
        AttentionText((2,), 300, 300, 64, 64, is_causal=True, window=1),
        AttentionText((), 260, 260, 32, 32, is_causal=True, window=129, has_logs=True),
        AttentionText((2,), 250, 150, 40, 64, is_causal=True, window=120, is_named=True),
        AttentionText((1,), 200, 300, 64, 64, is_causal=True, window=70, dynamic="mn", shared=1),
        AttentionText((1, 2), 190, 190, 64, 64, is_causal=True, window=500, shared=2),
    ],
    ids=str,
)
def test_sliding_windows(problem: AttentionText) -> None:
    """The loop begins with the first tile of keys that a row of the workgroup sees: NaN in front of it reaches no row."""
    check(simulated(lowered(problem), problem), problem)


@pytest.mark.parametrize(
    "problem",
    [
        AttentionText((4,), 77, 130, 64, 64, divided=2),
        AttentionText((2, 6), 40, 93, 40, 72, is_late=True, divided=3),
        AttentionText((2, 4), 65, 65, 64, 64, "bf16", is_causal=True, divided=4, has_logs=True),
        AttentionText((2, 4), 70, 70, 32, 32, is_causal=True, is_transposed=True, has_mask=True, divided=2, dynamic="mn"),
        AttentionText((3, 4), 90, 90, 64, 64, is_causal=True, is_named=True, divided=2, window=30, dynamic="a"),
    ],
    ids=str,
)
def test_heads_that_are_read_at_quotients(problem: AttentionText) -> None:
    module = lowered(problem)
    assert len(kernels(module)) == 1
    check(simulated(module, problem), problem)


def test_what_is_left_of_sums_is_scaled_behind_the_difference_of_maxima() -> None:
    """A fused multiplication and difference of two like products is what one of them is rounded by: of the lowest numbers, of rows that
    have seen no key yet, a power of it is infinite, and NaN times no sum.
    """
    (kernel,) = kernels(lowered(AttentionText((), 300, 300, 64, 64, is_causal=True, window=20)))
    powers = [op for op in kernel.walk() if isinstance(op, math.Exp2Op) and tile.tile_type(op.results[0]).get_shape()[1] == 1]
    assert powers
    for power in powers:
        scaled = power.operands[0].owner
        assert isinstance(scaled, arith.MulfOp) and isinstance(scaled.lhs.owner, arith.SubfOp)


def test_keys_in_front_of_windows_are_not_read() -> None:
    problem = AttentionText((), 300, 300, 32, 32, is_causal=True, window=20)
    q, k, v = problem.arrays()
    k[:64], v[:64] = np.nan, np.nan
    found = SimProgram(lowered(problem), Late)(q, k, v)[0]
    assert np.isnan(found[:64]).all() and np.isfinite(found[256:]).all()


def test_rows_that_see_nothing_are_nan_and_others_are_not() -> None:
    """A row whose scores are all minus infinity is 0 / 0 as the text's softmax is; a tile of them before finite ones adds nothing."""
    problem = AttentionText((1,), 70, 300, 32, 32, has_mask=True)
    q, k, v, mask = problem.arrays()
    mask[:] = 0
    mask[:, :200] = -np.inf
    mask[5] = -np.inf
    mask[6] = np.finfo(np.float32).min
    (found,) = SimProgram(lowered(problem), Late)(q, k, v, mask)
    scores = (q.astype(np.float64) @ k.swapaxes(1, 2).astype(np.float64))[0] * problem.factor + mask
    scores[6] = 0  # the lowest number and any score are the lowest number
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(1, keepdims=True))
    want = weights @ v[0].astype(np.float64) / weights.sum(1, keepdims=True)
    assert np.isnan(found[0, 5]).all() and not np.isnan(np.delete(found[0], 5, 0)).any()
    assert np.nanmax(np.abs(found[0] - want)) <= 2.1 * 2**-11 * np.abs(v.astype(np.float64)).max()


LOGS = [
    AttentionText((2,), 100, 150, 64, 64, is_late=True, has_logs=True),
    AttentionText((), 65, 93, 40, 72, is_causal=True, has_logs=True),
    AttentionText((1, 3), 70, 130, 96, 128, "bf16", has_mask=True, shared=3, has_logs=True),
    AttentionText((2,), 100, 100, 64, 64, is_causal=True, dynamic="mna", has_logs=True),
]


@pytest.mark.parametrize("problem", LOGS, ids=str)
def test_logarithms_of_sums_are_a_result_of_the_same_kernel(problem: AttentionText) -> None:
    module = lowered(problem)
    assert len(kernels(module)) == 1
    arrays = problem.arrays()
    found, logs = SimProgram(module, Late)(*arrays)
    check(found, problem)
    want = problem.expected_logs(arrays)
    assert np.abs(logs - want).max() <= 4e-6 * (1 + np.abs(want).max())


def test_logarithms_of_rows_that_see_nothing_are_those_of_the_text() -> None:
    problem = AttentionText((1,), 70, 90, 32, 32, has_mask=True, has_logs=True)
    q, k, v, mask = problem.arrays()
    mask[5] = -np.inf
    found, logs = SimProgram(lowered(problem), Late)(q, k, v, mask)
    assert np.isnan(found[0, 5]).all() and np.isnan(logs[0, 5])
    assert not np.isnan(np.delete(found[0], 5, 0)).any() and not np.isnan(np.delete(logs[0], 5)).any()
