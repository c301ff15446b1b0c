"""The 200 generated modules on a real NVIDIA GPU, judged by the float64 reference."""

import pytest
from numeric.differential import NAMES, complaints, modules_of


@pytest.mark.parametrize("family", NAMES)
def test_compiled_program_agrees_with_reference(target: str, family: str) -> None:
    wrong = complaints(modules_of(family), target)
    assert not wrong, "\n".join(wrong)
