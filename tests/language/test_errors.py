"""What the language refuses: the Python line with a mark below the place, and what to write instead."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.errors import TreadleError


def refusal(function: Callable[..., Any], *arguments: Any, **named: Any) -> TreadleError:
    with pytest.raises(TreadleError) as caught:
        treadle.kernel(target="sim")(function)[1](*arguments, **named)
    return caught.value


X = np.zeros((8, 8), np.float32)
Y = np.zeros(8, np.float32)


def marked(error: TreadleError) -> str:
    """The part of the line that the error marks."""
    assert error.code == "TR109"
    _, line, mark = error.message.splitlines()
    assert error.location is not None
    assert error.location.file == __file__
    return line[mark.index("^") : mark.rindex("^") + 1]


def unknown_name(x: Any) -> None:
    x[0, 0:8] = y  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


def other_shape(x: Any) -> None:
    x[0:8, 0:8] = x[0:4, 0:8] + x[0:8, 0:8]


def unknown_length(x: Any, n: int) -> None:
    x[0, 0:n] = 0.0


def changed_kind(x: Any) -> None:
    total = tl.zeros((8,), tl.float32)
    for _ in range(8):
        total = total + x[0:8, 0:8]
    x[0, 0:8] = total


def while_loop(x: Any) -> None:
    while True:
        x[0, 0:8] = 0.0


def branch_on_tile(x: Any) -> None:
    if x[0, 0:8] > 0.0:
        x[0, 0:8] = 0.0


def wrong_product(x: Any) -> None:
    x[0:8, 0:8] = tl.dot(x[0:8, 0:4], x[0:8, 0:8])


def axes(x: Any) -> None:
    x[0:8] = 0.0


def foreign(x: Any) -> None:
    x[0, 0:8] = np.tanh(x[0, 0:8])


def half_defined(x: Any, n: int) -> None:
    if n > 3:
        value = x[0, 0:8]
    x[1, 0:8] = value  # pyright: ignore[reportPossiblyUnboundVariable]


def asserted(x: Any, SIDE: tl.constexpr) -> None:
    assert SIDE % 4 == 0, f"SIDE is {SIDE}"
    x[0, 0:8] = 0.0


def lower_bits(x: Any) -> None:
    x[0, 0:8] = x[0, 0:8] << 2


@pytest.mark.parametrize(
    ("function", "arguments", "at", "says"),
    [
        (unknown_name, (X,), "y", "'y' is not defined here"),
        (other_shape, (X,), "x[0:4, 0:8] + x[0:8, 0:8]", "a tile of float32[4, 8] and a tile of float32[8, 8] have no common shape"),
        (unknown_length, (X, 5), "x[0, 0:n]", "the length of this range is not known"),
        (changed_kind, (X,), "for _ in range(8):", "'total' is a tile of float32[8] before and a tile of float32[8, 8] after"),
        (while_loop, (X,), "while True:", "a 'while' loop, whose steps nobody knows before"),
        (branch_on_tile, (X,), "x[0, 0:8] > 0.0", "a branch on a tile of int1[8]"),
        (wrong_product, (X,), "tl.dot(x[0:8, 0:4], x[0:8, 0:8])", "a product of a tile of float32[8, 4] and a tile of float32[8, 8]"),
        (axes, (X,), "x[0:8]", "'x' has 2 axes, 1 are given"),
        (foreign, (X,), "np.tanh(x[0, 0:8])", "'np.tanh' knows nothing of tiles"),
        (half_defined, (X, 4), "value", "'value' is not defined here"),
        (asserted, (X, 6), "SIDE % 4 == 0", "the assertion does not hold: SIDE is 6"),
        (lower_bits, (X,), "x[0, 0:8] << 2", "tiles of float32 have no operator <<"),
    ],
)
def test_refusals_name_the_line(function: Callable[..., Any], arguments: tuple[Any, ...], at: str, says: str) -> None:
    error = refusal(function, *arguments)
    assert says in error.message
    assert marked(error) == at
    assert error.fix


def test_calls_that_do_not_fit() -> None:
    kernel = treadle.kernel(axes)
    with pytest.raises(TreadleError, match=r"TR738: kernel 'axes': it is called without a grid"):
        kernel(X)
    with pytest.raises(TreadleError, match=r"TR738: kernel 'axes': missing a required argument: 'x'"):
        kernel[1]()
    with pytest.raises(TreadleError, match=r"TR738: kernel 'axes': its grid is \(1, 2, 3, 4\), not one to three numbers"):
        kernel[1, 2, 3, 4](X)
    with pytest.raises(TypeError, match=r"tl.load is for kernels"):
        tl.load(X)
