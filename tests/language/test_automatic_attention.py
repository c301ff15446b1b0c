"""examples/attention.py with stages that the compiler chooses: cut on AMD GPUs, roles on sm_90a; proven, right, modelled no slower."""

import math
from typing import Any

import numpy as np
import pytest
from attention import attend, attention
from language.attention_problems import Problem, symbols_of
from staged_attention import attention as by_hand

from treadle.dialects import pipe, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.targets.registry import backend

AMD = ("gfx942", "gfx950")
ROWS = 128
SHAPES = [(32, 64, False), (64, 32, True), (64, 64, False), (128, 32, True)]
"""D, keys of a step, and whether it is causal."""


def kernel_of(problem: Problem, target: str, columns: int) -> tile.KernelOp:
    """Proven, with stages of the compiler's choice."""
    module = problem.lowered(target, ROWS, columns, 8, cut="auto")
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def test_as_it_is_written() -> None:
    problem = Problem(1, 1, 2, 77, 131, 64, causal=True, first=5)
    q, k, v = problem.arrays()
    problem.check(attend(q, k, v, causal=True, first=5, BM=64, BN=32, STAGES="auto", target="sim"), q, k, v)


@pytest.mark.parametrize(("width", "columns", "causal"), SHAPES)
@pytest.mark.parametrize("target", [*AMD, "sm_90a"])
def test_schedules(target: str, width: int, columns: int, causal: bool) -> None:
    """Groups of warps run the stages; on sm_90a the rings are a producer's, as without stages. Keys of no step, of one, and of several."""
    kernel = kernel_of(Problem(1, 1, 1, 151, 201, width, causal), target, columns)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk()) == (target == "sm_90a")
    assert any(WARP_PIPELINED in op.attributes for op in kernel.walk()) == (target != "sm_90a")
    for queries, keys in ((70, 201), (151, columns), (1, 1)):
        one = Problem(1, 1, 1, queries, keys, width, causal)
        q, k, v = one.arrays(seed=keys)
        report = simulate(kernel, [q, k, v, *one.outputs()], symbols_of(kernel, one, ROWS), mode="random", seed=keys)
        assert report.ok, report
        one.check((report.outputs[0].reshape(q.shape), report.outputs[1].reshape(q.shape[:3])), q, k, v)


@pytest.mark.parametrize(("width", "columns", "causal"), [*SHAPES, (256, 32, False)])
@pytest.mark.parametrize("target", AMD)
def test_machine_code(target: str, width: int, columns: int, causal: bool) -> None:
    """The rules hold (a product waits for no load that only the stores behind it use), and no register goes to memory."""
    code = backend(target)
    kernel = kernel_of(Problem(1, 1, 1, 512, 512, width, causal), target, columns if width < 256 or target == "gfx950" else 16)
    facts = code.assemble(code.emit(kernel)).facts
    assert not facts.spill_bytes


def clocks(kernel: Any, grid: tuple[int, ...], target: str, *arguments: Any, **constants: Any) -> float:
    found = kernel[grid].inspect(*arguments, num_warps=8, num_stages=2, target=target, **constants)
    return float(found.timeline(target).outcome.clocks)


@pytest.mark.parametrize(("width", "columns", "causal"), [*SHAPES, (128, 64, False), (256, 32, True)])
@pytest.mark.parametrize("target", [*AMD, "sm_90a"])
def test_no_slower_than_otherwise(target: str, width: int, columns: int, causal: bool) -> None:
    """Within 3 % of the loop as it is without stages, and of the four stages by hand where those have the memory."""
    q, k, v = (np.zeros((1, 2, 512, width), np.float16) for _ in range(3))
    o, lse = np.zeros_like(q), np.zeros((1, 2, 512), np.float32)
    given: tuple[Any, ...] = (q, k, v, o, lse, 0, 1 / math.sqrt(width), causal, width, ROWS, columns)
    cut, plain = (clocks(attention, (4, 2, 1), target, *given, STAGES=stages) for stages in ("auto", None))
    assert cut <= 1.03 * plain
    if not causal and width <= (64 if target == "gfx942" else 128) and (target, width, columns) != ("gfx942", 64, 64):
        staged = clocks(by_hand, (4, 2), target, q[0], k[0], v[0], o[0], 1 / math.sqrt(width), D=width, BM=ROWS, BN=columns)
        assert cut <= 1.03 * staged


def test_slots_that_memory_does_not_hold() -> None:
    """The loop overlaps as it does without stages, and it is said why it is not cut."""
    with collect_remarks() as log:
        kernel = kernel_of(Problem(1, 1, 1, 512, 512, 128), "gfx942", 64)
    assert not any(WARP_PIPELINED in op.attributes for op in kernel.walk())
    told = [remark.text for remark in log.remarks if remark.pass_name == "set-pipeline"]
    assert "as many slots as without groups of warps: the 3 that these share need 114688 bytes of 65536" in told
