"""Prints and breakpoints on the simulator, assertions on constants, and what is refused with its reason."""

import sys
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.errors import TreadleError

X = np.arange(8, dtype=np.float32)


@treadle.kernel(target="sim")
def printing(x: Any, y: Any, SIDE: tl.constexpr) -> None:
    tl.static_assert(SIDE % 2 == 0, "sides are even")
    tl.static_print("side", SIDE, x[0:SIDE])
    start = tl.program_id(0) * SIDE
    values = x[start : start + SIDE]
    tl.device_print("part", start, values, doubled=values * 2)
    print("again")
    y[start : start + SIDE] = values


def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    printing[2](X, np.zeros_like(X), SIDE=4)
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first == second == "side 4 a block [4] of 'x'"  # the body is gone through twice: which arrays it writes decides their order
    assert rest == [
        "(0, 0, 0) part",
        "  [0] = 0",
        "  [1] = [0. 1. 2. 3.]",
        "  doubled = [0. 2. 4. 6.]",
        "(0, 0, 0) again",
        "(1, 0, 0) part",
        "  [0] = 4",
        "  [1] = [4. 5. 6. 7.]",
        "  doubled = [ 8. 10. 12. 14.]",
        "(1, 0, 0) again",
    ]


def test_prints_are_for_the_simulator() -> None:
    with pytest.raises(TreadleError, match="TR301: printing on sm_90a cannot be compiled yet") as caught:
        printing[2].trace(X, np.zeros_like(X), SIDE=4, target="sm_90a")
    assert caught.value.location is not None and caught.value.location.file == __file__


@treadle.kernel(target="sim")
def stopping(x: Any, y: Any, SIDE: tl.constexpr) -> None:
    start = tl.program_id(0) * SIDE
    values = x[start : start + SIDE] + 1.0
    breakpoint()
    y[start : start + SIDE] = values


def test_breakpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(dict(sys._getframe(1).f_locals)))
    stopping[2](X, np.zeros_like(X), SIDE=4)
    assert [found["workgroup"] for found in seen] == [(0, 0, 0), (1, 0, 0)]
    assert [found["values"]["start"] for found in seen] == [0, 4]
    np.testing.assert_array_equal(seen[1]["values"]["values"], X[4:] + 1)


def asserts(x: Any, SIDE: tl.constexpr) -> None:
    tl.static_assert(SIDE == 2, "two")


def barrier(x: Any, SIDE: tl.constexpr) -> None:
    tl.debug_barrier()


def swaps(x: Any, SIDE: tl.constexpr) -> None:
    tl.atomic_cas(x[0:SIDE], 0.0, 1.0)


def loops(x: Any, SIDE: tl.constexpr) -> None:
    while x.shape[0] > SIDE:
        x[0:SIDE] = 0.0


def masked(x: Any, SIDE: tl.constexpr) -> None:
    tl.store(x[0:SIDE], 0.0, mask=tl.arange(SIDE) < 2)


@tl.constexpr_function
def side_of(value: Any) -> int:
    return 4 if value is None else 2


def constant(x: Any, SIDE: tl.constexpr) -> None:
    tl.static_assert(side_of(None) == SIDE)
    side_of(x[0:SIDE])


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (asserts, "the assertion does not hold: two"),
        (barrier, "a barrier by hand"),
        (swaps, "what a compare and swap leaves depends on which workgroup comes first"),
        (loops, "a 'while' loop, whose steps nobody knows before"),
        (masked, "a store with a mask"),
        (constant, "'side_of' is computed while the kernel is compiled, and is given a block [4] of 'x'"),
    ],
)
def test_refusals(function: Any, says: str) -> None:
    with pytest.raises(TreadleError) as caught:
        treadle.kernel(target="sim")(function)[1](X, SIDE=4)
    assert caught.value.code == "TR109" and says in caught.value.message and caught.value.fix
