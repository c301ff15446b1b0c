"""order-issue: loads of scales run under the matrix instructions of their role; what instructions or stores need stays where it is."""

import ml_dtypes
import numpy as np
import pytest
from transforms.role_kernels import SPEC

from treadle import pipelines
from treadle.bench.families import block_scaled
from treadle.dialects import pipe, tile
from treadle.ir.core import Block
from treadle.ir.dialects import arith
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.verify.check import is_right

ROLES = CompileOptions(tile=(64, 128, 128), warps=(4, 1), consumer_warpgroups=2, num_stages=3)
LISTED = ("sync.wait_phase", "tile.contract", "tile.load", "arith.mulf", "sync.commit", "sync.wait", "sync.arrive", "math.fma")
WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))


def scaled(m: int, n: int, k: int, options: CompileOptions = ROLES, *, until: str = "insert-sync") -> tile.KernelOp:
    """The schedule, up to the pass `until`, of a product of 8-bit floats with scales of blocks."""
    module = parse_module(block_scaled("blocks", "quantised", m, n, k, "f8E4M3FN").text, "test.mlir")
    passes = [*pipelines.tensor_passes(SPEC, options), *pipelines.tile_passes(SPEC, options), *pipelines.unproven_schedule_passes(options)]
    run_passes(module, passes[: 1 + [one.name for one in passes].index(until)])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def block_of(kernel: tile.KernelOp) -> Block:
    """The block of the first contraction."""
    block = next(op.parent for op in kernel.walk() if isinstance(op, tile.ContractOp))
    assert block is not None
    return block


@pytest.mark.parametrize(("m", "n", "k"), [(130, 256, 384), (192, 128, 128), (72, 256, 640)])
def test_scales_are_loaded_under_the_instructions_that_they_scale(m: int, n: int, k: int) -> None:
    """The instructions wait for their operands alone: what waits for a load stands behind them, ahead of the wait for them. The loads of
    a step are of the next one's scales (load-ahead), where there is one.
    """
    kernel = scaled(m, n, k)
    names = [op.name for op in block_of(kernel).ops if op.name in LISTED]
    loads = ["tile.load", "tile.load", "arith.mulf"] if k == 128 else ["arith.mulf", "tile.load", "tile.load"]
    assert names == ["sync.wait_phase", "tile.contract", "sync.commit", *loads, "sync.wait", "sync.arrive", "math.fma"]
    assert is_right(kernel)
    compute(kernel, m, n, k)


def compute(kernel: tile.KernelOp, m: int, n: int, k: int) -> None:
    """The schedule gives what it should, in the latest and a random order of effects."""
    rng = np.random.default_rng(m)
    x, w = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    sx, sw = (2.0 ** rng.integers(-1, 2, shape).astype(np.float32) for shape in ((k // 128, m), (n // 128, k // 128)))
    want = (x * np.repeat(sx.T, 128, 1)) @ (w * np.repeat(np.repeat(sw, 128, 0), 128, 1)).T
    inputs = [*(a.astype(ml_dtypes.float8_e4m3fn) for a in (x, w)), sx.astype(np.float32), sw.astype(np.float32)]
    for mode, seed in WAYS:
        report = simulate(kernel, [*inputs, np.full((m, n), np.nan, ml_dtypes.bfloat16)], mode=mode, seed=seed)
        assert report.ok, report
        assert np.array_equal(report.outputs[0].reshape(m, n), want.astype(ml_dtypes.bfloat16)), "sums of few powers of two are exact"


def load_and_contraction(block: Block) -> tuple[tile.LoadOp, tile.ContractOp]:
    """The first of each in a block."""
    load = next(op for op in block.ops if isinstance(op, tile.LoadOp))
    return load, next(op for op in block.ops if isinstance(op, tile.ContractOp))


def test_loads_stay_ahead_of_instructions_that_read_them() -> None:
    kernel = scaled(130, 256, 128, until="allocate-shared")
    block = block_of(kernel)
    _, contract = load_and_contraction(block)
    zero = contract.operands[2]
    wide = next(op for op in block.ops if isinstance(op, tile.BroadcastOp) and op.results[0].type == zero.type)
    started = arith.MulfOp(wide.results[0], zero)
    block.insert_op_before(started, contract)
    contract.operands[2] = started.result
    before = list(block.ops)
    OrderIssuePass().run(kernel, SPEC)
    assert list(block.ops) == before


def test_loads_do_not_pass_stores() -> None:
    """A kernel may read what it writes."""
    kernel = scaled(130, 256, 384, until="allocate-shared")
    block = block_of(kernel)
    load, contract = load_and_contraction(block)
    block.insert_op_after(tile.StoreOp(contract.operands[2], load.view, list(load.offsets), tile.ints(load.dims)), load)
    OrderIssuePass().run(kernel, SPEC)
    assert load.is_before_in_block(contract)


def test_kernels_without_roles_keep_their_loads() -> None:
    kernel = scaled(130, 256, 384, CompileOptions(tile=(64, 128, 128), warps=(4, 1), roles=False), until="order-issue")
    assert not any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    load, contract = load_and_contraction(block_of(kernel))
    assert load.is_before_in_block(contract)


def test_what_the_step_before_has_loaded_stays_ahead_of_instructions_that_read_it() -> None:
    kernel = scaled(130, 256, 384, until="allocate-shared")
    block = block_of(kernel)
    load, contract = load_and_contraction(block)
    zero = contract.operands[2]
    wide = next(op for op in block.ops if isinstance(op, tile.BroadcastOp) and op.results[0].type == zero.type)
    started = arith.MulfOp(wide.results[0], zero)
    block.insert_op_before(started, contract)
    contract.operands[2] = started.result
    OrderIssuePass().run(kernel, SPEC)
    assert wide.is_before_in_block(contract) and contract.is_before_in_block(load), "the next step's alone moves"


@pytest.mark.parametrize(("groups", "cluster", "walked"), [(3, 1, 8), (2, 2, 2), (1, 2, 1), (1, 2, 3)])
def test_columns_of_several_blocks_in_groups_and_clusters(groups: int, cluster: int, walked: int) -> None:
    """Neighbours along n are of other blocks: no cluster shares rows of A, and no rows are walked in clusters that are not whole."""
    options = CompileOptions(tile=(64, 128, 128), warps=(4, 1), consumer_warpgroups=groups, num_stages=3, cluster=cluster, group_m=walked)
    kernel = scaled(200, 384, 256, options)
    assert kernel.cluster_size() == (2 if walked == 2 else 1)
    assert is_right(kernel)
    compute(kernel, 200, 384, 256)
