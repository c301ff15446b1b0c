"""Scalar arguments in machine code: functions on scalars in the emulator, for every AMD target."""

from typing import Any

import numpy as np
import pytest
from generators.scalar_programs import ALONE, scaled
from targets.amd import emulator, programs

from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.options import CompileOptions

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


def run(text: str, target: str, *arrays: Any) -> list[Any]:
    module = scheduled(read_source(text), target, CompileOptions(), None)
    compiled = emulator.compile_kernels(module, target)
    return emulator.EmulatedProgram(module, target, "forward", compiled)(*arrays)


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("i32", np.int32), ("i64", np.int64)])
def test_a_number_in_a_kernel(kind: str, dtype: Any, target: str) -> None:
    x = np.arange(300).astype(dtype)
    got, squared = run(scaled(kind), target, np.array(3, dtype), x)
    np.testing.assert_array_equal(got, 3 * x)
    assert squared == 9


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_a_function_without_tensors(target: str) -> None:
    found = run(ALONE, target, np.array(1.5, np.float32), np.array(-7, np.int64), np.array(True))
    assert [float(value) for value in found] == [-10.5, -14, -10.5]
