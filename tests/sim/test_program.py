"""Host programs of the dispatch level with tile kernels, on NumPy arrays."""

from typing import Any

import numpy as np
import pytest
from generators.tile_builder import matmul_kernel

from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.core import Block, Operation, Region
from treadle.ir.dialects import builtin
from treadle.sim.program import SimProgram, run_program

F32 = dispatch.BufferType(builtin.f32)


def chained_matmul() -> builtin.ModuleOp:
    """(x @ w) @ w, the first product written into rows 1.. of a larger buffer; w must be square."""
    block = Block()

    def add(op: Operation) -> Any:
        block.add_op(op)
        return op.results[0] if op.results else None

    x = add(dispatch.InputOp(0, "x", F32, ["s0", "s1"], ["s1", "1"], 16))
    w = add(dispatch.InputOp(1, "w", F32, ["s1", "s2"], ["s2", "1"], 16))
    add(dispatch.CheckOp("s1", "==", "s2", "w must be square"))
    room = add(dispatch.AllocOp(["s0 + 1", "s1"], F32))
    first = add(dispatch.ViewOp(room, "s1", ["s0", "s1"], ["s1", "1"]))
    add(dispatch.LaunchOp("matmul", [x, w], [first], {"m": "s0", "n": "s2", "k": "s1"}))
    out = add(dispatch.AllocOp(["s0", "s2"], F32))
    add(dispatch.LaunchOp("matmul", [first, w], [out], {"m": "s0", "n": "s2", "k": "s1"}))
    add(dispatch.ReturnOp([out, room]))
    program = dispatch.ProgramOp("main", {"s0": (0, 0), "s1": (0, 1), "s2": (1, 1)}, Region(block))
    module = builtin.ModuleOp([matmul_kernel(builtin.f32, builtin.f32, (16, 16, 16), align=4), program])
    module.verify()
    return module


@pytest.mark.parametrize(("m", "n"), [(5, 19), (33, 1), (1, 16), (0, 4)])
def test_launches_and_views(m: int, n: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, n), dtype="f"), rng.standard_normal((n, n), dtype="f")
    before = x.copy()
    out, room = run_program(chained_matmul(), [x, w])
    assert np.allclose(out, x.astype("d") @ w @ w, rtol=1e-4, atol=1e-4)
    assert np.isnan(room[0]).all(), "what no kernel writes is poison"
    assert np.allclose(room[1:], x.astype("d") @ w, rtol=1e-4, atol=1e-4)
    assert np.array_equal(x, before)


def test_strided_arguments_are_copied() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((9, 5), dtype="f").T, rng.standard_normal((18, 18), dtype="f")[::2, ::2]
    out, _ = SimProgram(chained_matmul())(x, w)
    assert np.allclose(out, x.astype("d") @ w @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shapes", "code"),
    [([(3, 4)], "TR721"), ([(3, 4), (4, 5)], "TR724"), ([(3, 4), (5, 5)], "TR723"), ([(3,), (4, 4)], "TR723")],
)
def test_wrong_arguments(shapes: list[tuple[int, ...]], code: str) -> None:
    with pytest.raises(TreadleError) as caught:
        run_program(chained_matmul(), [np.zeros(s, "f") for s in shapes])
    assert caught.value.code == code
