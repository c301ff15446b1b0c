"""Branches that only compute register tiles: what either side reads must be there, unless following each side shows that it need not be."""

from typing import Any

import numpy as np

import treadle
import treadle.language as tl
from treadle.dialects import sync, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import scf
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.verify.check import is_right
from treadle.verify.program import Program


@treadle.kernel(target="sim")
def chosen(a: Any, b: Any, c: Any, flag: int, scales: tl.constexpr, B: tl.constexpr = 64) -> None:
    """A product that is scaled, or left out, by a number that only the running kernel knows."""
    m = tl.program_id(0) * B
    acc = tl.dot(a[m : m + B, 0:B], b[0:B, 0:B])
    if flag > 3:
        acc = acc * 2.0 if scales else tl.zeros((B, B))
    c[m : m + B, 0:B] = acc


def lowered(scales: bool) -> tile.KernelOp:
    arrays = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float32)
    form, _, _ = chosen[1]._resolved((*arrays, 5, scales), {}, 4, 1)
    module = build(chosen.function, form).module
    module = scheduled(read_source(module, "tile"), "sm_90a", CompileOptions(), None)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    return kernel


def wait_of(kernel: tile.KernelOp) -> sync.WaitOp:
    return next(op for op in kernel.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "wgmma")


def branch_of(kernel: tile.KernelOp) -> scf.IfOp:
    return next(op for op in kernel.walk() if isinstance(op, scf.IfOp) and op.results)


def test_what_both_sides_read_is_waited_for_ahead() -> None:
    kernel = lowered(scales=True)
    branch, wait = branch_of(kernel), wait_of(kernel)
    assert Program(kernel).quiet == {branch} and wait.is_before_in_block(branch)
    block = branch.parent
    assert block is not None and is_right(kernel)
    wait.detach()
    block.insert_op_after(wait, branch)
    assert not is_right(kernel)


def test_what_one_side_hands_on_may_be_waited_for_behind() -> None:
    """Not proven with what either side reads, but side by side."""
    kernel = lowered(scales=False)
    branch, wait = branch_of(kernel), wait_of(kernel)
    block = branch.parent
    assert block is not None and is_right(kernel)
    wait.detach()
    block.insert_op_after(wait, branch)
    assert Program(kernel).quiet == {branch}
    assert is_right(kernel)
    wait.detach()
    wait.erase()
    assert not is_right(kernel)
