"""Given results and bound calls on the simulator, which mean what they mean on a GPU."""

import numpy as np
import pytest
from driver.layout_programs import K, M, elementwise

import treadle
from treadle.errors import TreadleError


@pytest.fixture(scope="module")
def program() -> treadle.Program:
    return treadle.compile(elementwise("f32"), target="sim")


def test_given_results_and_bound_calls(program: treadle.Program) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, M, K), np.float32)
    out = np.full((M, K), np.nan, np.float32)
    (made,) = program(x, y, out=out)
    assert made is out
    np.testing.assert_array_equal(out, x + y)
    bound = program.bind(x, y, out=[out])
    x *= 2
    assert bound()[0] is out
    np.testing.assert_array_equal(out, x + y)
    own = program.bind(x, y)
    (first,) = own()
    y += 1
    assert own()[0] is first
    np.testing.assert_array_equal(first, x + y)


def test_a_read_only_result_is_refused(program: treadle.Program) -> None:
    x, out = np.ones((M, K), np.float32), np.zeros((M, K), np.float32)
    out.flags.writeable = False
    with pytest.raises(TreadleError, match="read-only") as caught:
        program(x, x, out=out)
    assert caught.value.code == "TR731"
    assert not out.any()


def test_refused_results(program: treadle.Program) -> None:
    x = np.zeros((M, K), np.float32)
    for out, code in [([], "TR730"), (np.zeros((M, K)), "TR731"), (np.zeros((K, M), np.float32), "TR731"), (x.T.copy().T, "TR731")]:
        with pytest.raises(TreadleError) as caught:
            program(x, x, out=out)
        assert caught.value.code == code
