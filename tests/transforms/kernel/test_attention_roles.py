"""Attention's shape gets roles and synchronisation: Q brought once, K and V in rings of their own, P handed over through registers, or
through shared memory where that is asked for.
"""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from generators.attention import attention

from treadle import pipelines
from treadle.dialects import pipe, sync, tile
from treadle.dialects.role_plan import RolePlanAttr
from treadle.ir.core import Operation
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.targets.registry import backend
from treadle.verify.check import is_right, prove

WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))
CASES = [(64, 64, 1, 2, 0), (128, 192, 1, 2, 0), (192, 320, 1, 3, 1), (192, 128, 2, 2, 0), (320, 192, 2, 3, 1)]
"""Rows, length, groups, stages, workgroups: one step; more than stages; several tiles a workgroup; groups without rows of their own."""


def scheduled(
    rows: int, length: int, groups: int, stages: int, workgroups: int, last: str = "insert-sync", through: str = ""
) -> tile.KernelOp:
    """The kernel after the pass `last`. `through`: the path that P is asked to take."""
    text = attention(rows, length, groups=groups, config=f"roles, num_stages = {stages}, workgroups = {workgroups}", through=through)
    assert not re.search(r"\b(sync|pipe\.roles)\b", text)
    module = parse_module(text, "attention.mlir")
    passes = pipelines.unproven_schedule_passes()
    run_passes(module, passes[: 1 + [one.name for one in passes].index(last)])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def expected(arrays: Sequence[np.ndarray]) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in arrays)
    p = np.exp(scores := q @ k.T - (q @ k.T).max(1, keepdims=True))
    assert scores.max() <= 0
    return p @ v / p.sum(1, keepdims=True)


@pytest.mark.parametrize("through", ["", "threads"])
@pytest.mark.parametrize(("rows", "length", "groups", "stages", "workgroups"), CASES)
def test_attention_is_proven_and_right(rows: int, length: int, groups: int, stages: int, workgroups: int, through: str) -> None:
    kernel = scheduled(rows, length, groups, stages, workgroups, through=through)
    assert prove(kernel).is_proven
    rng = np.random.default_rng(rows)
    arrays = [rng.standard_normal((n, 64)).astype(np.float16) for n in (rows, length, length)]
    want = expected(arrays)
    for mode, seed in WAYS:
        report = simulate(kernel, [*arrays, np.full((rows, 64), np.nan, np.float32)], mode=mode, seed=seed)
        assert report.ok, report
        # P is rounded to f16: half a unit of 2^-11, relative to a result below the largest |v|.
        assert np.abs(report.outputs[0].reshape(rows, 64) - want).max() <= 2**-11 * np.abs(arrays[2]).max()


def test_each_operand_has_a_ring_of_its_own() -> None:
    formed = scheduled(192, 320, 2, 3, 1, last="form-roles")
    assert not any(op.name.startswith("sync.") for op in formed.walk())
    kernel = scheduled(192, 320, 2, 3, 1)
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    assert roles.role_names() == ("producer", "consumer")
    producer, consumer = roles.roles
    rings = [(op.arrivals.value.data, op.slot_count()) for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp)]
    # Q of both groups two deep, for the next tile's comes under this one; K and V three: full by one expect, empty by both groups.
    assert rings == [(1, 2), (2, 2), (1, 3), (2, 3), (1, 3), (2, 3)]
    assert sum(isinstance(op, tile.CopyOp) for op in producer.walk()) == 4
    assert not any(isinstance(op, tile.CopyOp) for op in consumer.walk())
    assert not any(isinstance(op, tile.ContractOp | tile.LocalStoreOp) for op in producer.walk())


def test_k_is_handed_back_before_the_softmax() -> None:
    """A slot goes back where its reads are over: K's at the wait that the softmax needs."""
    kernel = scheduled(128, 192, 1, 2, 0)
    contract = next(op for op in kernel.walk() if isinstance(op, tile.ContractOp))
    names: list[str] = []
    op: Operation | None = contract
    while op is not None and op.name != "tile.reduce":
        names.append(op.name)
        op = op.next_op
    assert [n for n in names if not n.startswith("sync.mbarrier_slot")] == ["tile.contract", "sync.commit", "sync.wait", "sync.arrive"]


ORDERING = (sync.WaitOp, sync.WaitPhaseOp, sync.ArriveOp, sync.NamedBarrierOp, sync.FenceOp, sync.CommitOp, sync.MbarrierExpectOp)


@pytest.mark.parametrize("through", ["", "threads"])
def test_nothing_that_is_inserted_is_superfluous(through: str) -> None:
    """Every operation but what the end of the kernel makes unneeded is missed by the verifier."""
    count = sum(isinstance(op, ORDERING) for op in scheduled(192, 192, 1, 2, 1, through=through).walk())
    missed: list[str] = []
    for number in range(count):
        kernel = scheduled(192, 192, 1, 2, 1, through=through)
        op = [op for op in kernel.walk() if isinstance(op, ORDERING)][number]
        name = op.name
        op.detach()
        op.erase()
        if is_right(kernel):
            missed.append(name)
    assert missed == [], missed


def test_p_stays_in_registers() -> None:
    """No buffer and no barrier for it; its registers are given back at the end of each step."""
    kernel, other = scheduled(192, 320, 2, 3, 1), scheduled(192, 320, 2, 3, 1, through="threads")
    _, _, second, _ = (op for op in kernel.walk() if isinstance(op, tile.ContractOp))  # ahead of the loop, two in it, behind it
    assert second.holds_registers() and tile.layout_of(second.a) is not None

    def count(of: tile.KernelOp, kind: type[Operation]) -> int:
        return sum(isinstance(op, kind) for op in of.walk())

    assert count(kernel, tile.LocalStoreOp) == count(other, tile.LocalStoreOp) - 1
    assert count(kernel, sync.NamedBarrierOp) < count(other, sync.NamedBarrierOp)
    assert not any(isinstance(op, tile.ConvertLayoutOp) for op in kernel.walk())
    block = second.parent
    following = [op.name for op in block.ops if second.is_before_in_block(op)] if block is not None else []
    # The wait ahead is for the scores alone.
    assert [name for name in following if name in ("sync.commit", "sync.wait")] == ["sync.commit", "sync.wait", "sync.wait"]


@pytest.mark.parametrize("case", CASES)
def test_tools_find_nothing_to_serialise(case: tuple[int, int, int, int, int]) -> None:
    """Assembling audits: no C75xx, nothing spilled, no register of a matrix instruction touched in flight."""
    target = backend("sm_90a")
    facts = target.assemble(target.emit(scheduled(*case))).facts
    assert facts.instructions["HGMMA"] in (8, 16) and facts.spill_bytes == 0


def test_a_ring_that_does_not_fit_is_cut_back() -> None:
    with collect_remarks() as log:
        kernel = scheduled(128, 192, 1, 40, 0, last="set-roles")
    plan = kernel.attributes["roles"]
    assert isinstance(plan, RolePlanAttr)
    assert 2 <= plan.data.num_stages < 40
    assert any("stages instead of 40" in remark.text for remark in log.remarks)
