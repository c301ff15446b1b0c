"""Kernels of rows in AMD machine code, run in the emulator: softmax and normalisations, rows in registers and part by part."""

import numpy as np
import pytest
from targets.amd import emulator, programs
from transforms.kernel.forms.test_rows import PARTS, arrays, assert_right, lowered
from transforms.row_texts import rows_text

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("candidate", [0, PARTS])
@pytest.mark.parametrize(("kind", "sizes"), [("softmax", (5, 1025)), ("layer_norm", (65, 77)), ("column_softmax", (77, 33))])
def test_they_give_the_right_numbers(kind: str, sizes: tuple[int, int], candidate: int, target: str) -> None:
    text = rows_text(kind, sizes)
    module = lowered(text, target, "schedule", candidate)
    compiled = emulator.compile_kernels(module, target)
    given = arrays(text, sizes, "f32")
    try:
        results = emulator.EmulatedProgram(module, target, "shuffled", compiled)(*given)
    except NotImplementedError as error:
        pytest.skip(str(error))
    assert_right([np.asarray(result) for result in results], text, given)
