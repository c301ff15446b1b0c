"""Warps of chained contractions that become groups, and their turns at the matrix units (results: tests/language/test_attention.py)."""

from typing import Any

import numpy as np
import pytest
from language.attention_problems import Problem

import treadle
import treadle.language as tl
from treadle.dialects import pipe, sync, tile
from treadle.ir.dialects import builtin, scf
from treadle.options import CompileOptions
from treadle.targets.registry import backend

TURNS = CompileOptions(issue_turns="always")


def kernel_of(module: builtin.ModuleOp) -> tile.KernelOp:
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


@pytest.mark.parametrize(("width", "causal"), [(64, False), (128, True)])
def test_turns_stand_around_the_products_of_a_step(width: int, causal: bool) -> None:
    """Each group waits for its turn behind the keys, issues both products, and passes the turn on before it waits for either."""
    module = Problem(1, 1, 1, 200, 300, width, causal).lowered("sm_90a", 128, 128, 8, issue_turns="always")
    (roles,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    assert roles.role_groups() == (1, 2) and roles.role_warps()[1] == 4
    (loop,) = (op for op in roles.roles[1].walk() if isinstance(op, scf.ForOp))
    kinds = (sync.WaitPhaseOp, tile.ContractOp, sync.ArriveOp, sync.WaitOp)
    found = [op.name.split(".")[1] for op in loop.body.block.ops if isinstance(op, kinds)]
    assert found == ["wait_phase", "wait_phase", "contract", "wait_phase", "contract", "arrive", "wait", "arrive", "wait", "arrive"]
    assert {tile.tile_type(op.result).get_shape()[0] for op in roles.walk() if isinstance(op, tile.ContractOp)} == {64}
    target = backend("sm_90a")
    assert target.assemble(target.emit(kernel_of(module))).facts.spill_bytes == 0


@treadle.kernel(options=TURNS)
def exchanging(q: Any, k: Any, v: Any, o: Any, ends: Any, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr) -> None:
    """Behind the loop sums go over rows of all warps."""
    m = tl.program_id(0) * BM
    queries = tl.load(q[m : m + BM, 0:D])
    top, acc = tl.full((BM, 1), -1e30, tl.float32), tl.zeros((BM, D))
    for n in range(0, k.shape[0], BN):
        scores = tl.dot(queries, k[n : n + BN, 0:D].T)
        before, top = top, tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        acc = tl.dot(tl.exp(scores - top).to(v.dtype), v[n : n + BN, 0:D], acc * tl.exp(before - top))
    o[m : m + BM, 0:D] = acc
    ends[tl.program_id(0), 0:D] = tl.sum(acc, 0)


def test_warps_that_share_rows_stay_one_group() -> None:
    q = np.zeros((128, 64), np.float16)
    arrays = (q, q.copy(), q.copy(), q.copy(), np.zeros((1, 64), np.float32))
    trace = exchanging[1].trace(*arrays, 64, 128, 64, num_warps=8, num_stages=2, target="sm_90a", until="schedule")
    (told,) = (remark.text for remark in trace.remarks if remark.pass_name == "divide-groups")
    assert told.startswith("the warps are one group: ")
    assert "groups = array<i64: 1, 2>" not in trace.stages["schedule"]


def test_nobody_who_does_not_ask_gets_turns() -> None:
    module = Problem(1, 1, 1, 128, 128, 64).lowered("sm_90a", 128, 128, 8)
    (roles,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    assert roles.role_groups() == (1, 1)
