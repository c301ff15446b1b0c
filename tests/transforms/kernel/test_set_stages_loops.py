"""set-stages on loops that matchers of one product turn down: more loads, branches, masks, other units; results are right."""

import re
from typing import Any

import numpy as np
import pytest
from language.staged_kernels import kernel_of, lowered, operands

import treadle
import treadle.language as tl
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate


@treadle.kernel(target="sim")
def loop(a: Any, b: Any, c: Any, WHAT: tl.constexpr, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    """A product of a (M, K) and b (K, N) into c, whose loop has something more; b is square where a chain multiplies by it."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, a.shape[1], BK, stages="auto"):
        x, y = a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN]
        if WHAT == "three loads":
            y = y + b[k : k + BK, 0:BN]
        if WHAT == "a mask that moves":
            x = tl.where((k + tl.arange(0, BK))[None, :] < 2 * m + 70, x, 0.0)
        if WHAT == "two products":
            acc = tl.dot(x, y, acc)
            acc = tl.dot(x * 2.0, y, acc)
        elif WHAT == "single precision":
            acc = tl.dot(x.to(tl.float32), y.to(tl.float32), acc)
        elif WHAT == "a branch with another side":
            if k < 64:
                acc = tl.dot(x, y, acc)
            else:
                acc = tl.dot(x, y, acc) + 1.0
        else:
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def nothing_to_load(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    """Each step multiplies what was loaded ahead of the loop."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    x, y = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in tl.range(0, a.shape[1], BK, stages="auto"):
        acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


def expected(what: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, y = a.astype(np.float64), b.astype(np.float64)
    match what:
        case "three loads":
            return x @ (2 * y)
        case "a mask that moves":
            return x[:, :70] @ y[:70]
        case "two products":
            return 3 * (x @ y)
        case "a branch with another side":
            return x @ y + len(range(64, a.shape[1], 32))
        case _:
            return x @ y


def told_and_found(kernel: Any, target: str, k: int, **constants: Any) -> tuple[str, Any]:
    a, b, c = operands(128, 64, k)
    with collect_remarks() as log:
        found = kernel_of(lowered(kernel, target, 128, 64, k, **constants))
    (told,) = [remark.text for remark in log.remarks if remark.pass_name == "set-stages"]
    sizes = {"a_size0": 128, "a_size1": k, "b_size0": k, "b_size1": 64, "c_size0": 128, "c_size1": 64, "grid_x": 1, "grid_y": 1}
    report = simulate(found, [a, b, c], {**sizes, "a_stride0": k, "b_stride0": 64, "c_stride0": 64}, mode="random", seed=k)
    assert report.ok, str(report)
    return told, report.outputs[0]


CUT = r"cut into \d stages \(.*\) for 2 groups, 1 stage\(s\) apart: "
NOT_CUT = "not cut into stages: warp pipeline: an operand of a product "
TOLD = {
    "three loads": CUT,
    "a mask that moves": CUT,
    "two products": f"{NOT_CUT}|{CUT}",  # memory does not hold three slots of all, and the usual ones may do
    "single precision": f"{NOT_CUT}|cut into 5 stages",  # where loads stand first, their use may come behind the barrier
    "a branch with another side": "not cut into stages: its products stand in branches or loops of their own, which no border divides",
}


@pytest.mark.parametrize("k", [200, 96, 20])
@pytest.mark.parametrize("what", TOLD)
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_loops_with_more_in_them(target: str, what: str, k: int) -> None:
    told, found = told_and_found(loop, target, k, WHAT=what)
    a, b, _ = operands(128, 64, k)
    np.testing.assert_array_equal(found, expected(what, a, b))
    assert re.match(TOLD[what], told)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_nothing_to_load(target: str) -> None:
    told, found = told_and_found(nothing_to_load, target, 96)
    a, b, _ = operands(128, 64, 96)
    np.testing.assert_array_equal(found, 3 * (a[:, :32].astype(np.float64) @ b[:32]))
    assert told.startswith(NOT_CUT)
