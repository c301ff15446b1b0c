"""The 200 generated modules on a real NVIDIA GPU, judged by the float64 reference."""

import pytest
from numeric.differential import NAMES, complaints, modules_of

from treadle.errors import TreadleError
from treadle.runtime.device import open_device


@pytest.fixture(scope="module")
def target() -> str:
    try:
        return open_device("cuda").target
    except TreadleError as absent:
        pytest.skip(f"no NVIDIA GPU: {absent.message}")


@pytest.mark.parametrize("family", NAMES)
def test_compiled_program_agrees_with_reference(target: str, family: str) -> None:
    wrong = complaints(modules_of(family), target)
    assert not wrong, "\n".join(wrong)
