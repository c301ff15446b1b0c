"""Random modules of softmax, gathers, pooling and branches: the compiled program on the simulator, and machine code for each target."""

import pytest
from generators.form_modules import FAMILIES, random_form
from numeric.differential import complaints

import treadle
from treadle.options import CompileOptions

COUNT = 80
TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@pytest.mark.parametrize("family", [name for name, _ in FAMILIES])
def test_simulated_program_agrees_with_reference(family: str) -> None:
    wrong = complaints([module for module in map(random_form, range(COUNT)) if module.family == family], "sim")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("number", range(len(TARGETS)), ids=TARGETS)
def test_every_one_compiles(number: int) -> None:
    for module in map(random_form, range(number, COUNT // 2, len(TARGETS))):
        assert treadle.compile(module.text, target=TARGETS[number], options=CompileOptions(tuned=False)).binaries, module.name
