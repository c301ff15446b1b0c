"""load-ahead: which loads of a consumer's steps go one step ahead, and which stay."""

import pytest
from transforms.role_kernels import SPEC

from treadle import pipelines
from treadle.analysis.divisibility import constant_value
from treadle.bench.families import block_scaled
from treadle.dialects import tile
from treadle.ir.core import BlockArgument
from treadle.ir.dialects import arith, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.transforms.kernel.load_ahead import LoadAheadPass

ROLES = CompileOptions(tile=(64, 128, 128), warps=(4, 1), consumer_warpgroups=2, num_stages=3)


def formed(k: int, options: CompileOptions = ROLES) -> tile.KernelOp:
    """A product with scales of blocks, ahead of the pass."""
    module = parse_module(block_scaled("blocks", "quantised", 130, 256, k, "f8E4M3FN").text, "test.mlir")
    passes = [*pipelines.tensor_passes(SPEC, options), *pipelines.tile_passes(SPEC, options), *pipelines.unproven_schedule_passes(options)]
    run_passes(module, passes[: [one.name for one in passes].index("load-ahead")])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def loop_of(kernel: tile.KernelOp) -> scf.ForOp:
    """The loop of the contraction."""
    loop = next(op for op in kernel.walk() if isinstance(op, tile.ContractOp)).parent_op()
    assert isinstance(loop, scf.ForOp)
    return loop


def loads(loop: scf.ForOp) -> list[tile.LoadOp]:
    return [op for op in loop.body.block.ops if isinstance(op, tile.LoadOp)]


def carried(kernel: tile.KernelOp) -> int:
    """How many values of a loop are loaded by the step before, after the pass."""
    LoadAheadPass().run(kernel, SPEC)
    block = loop_of(kernel).body.block
    assert isinstance(block.last_op, scf.YieldOp)
    return sum(isinstance(value.owner, tile.LoadOp) for value in block.last_op.operands)


@pytest.mark.parametrize("k", [256, 384, 1152])
def test_scales_are_loaded_a_step_ahead(k: int) -> None:
    kernel = formed(k)
    before = loads(loop_of(kernel))
    assert carried(kernel) == len(before) == 2
    loop = loop_of(kernel)
    (place,) = {index.owner for load in loads(loop) for index in load.offsets if isinstance(index.owner, arith.MinSIOp)}
    assert constant_value(place.operands[1]) == k // 128 - 1, "never beyond the last step's"
    assert all(isinstance(value.owner, tile.LoadOp) for value in loop.iter_args[-2:])


def test_memory_that_the_kernel_writes_is_loaded_where_it_was() -> None:
    kernel = formed(384)
    (first, _) = loads(loop_of(kernel))
    block = first.parent
    assert block is not None
    block.insert_op_after(tile.StoreOp(first.result, first.view, list(first.offsets), tile.ints(first.dims)), first)
    assert carried(kernel) == 1


def test_a_place_that_is_computed_in_the_step_stays() -> None:
    kernel = formed(384)
    loop = loop_of(kernel)
    (first, _) = loads(loop)
    moved = arith.AddiOp(loop.body.block.args[0], loop.step)
    loop.body.block.insert_op_before(moved, first)
    for number, value in enumerate(first.operands):
        if isinstance(value, BlockArgument) and value.owner is loop.body.block:
            first.operands[number] = moved.result
    assert carried(kernel) == 1


def test_kernels_without_roles_are_left_alone() -> None:
    kernel = formed(384, CompileOptions(tile=(64, 128, 128), warps=(4, 1), roles=False))
    assert carried(kernel) == 0
