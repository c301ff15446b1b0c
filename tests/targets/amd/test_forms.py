"""The forms of the tensor level that are no plain generics, as AMD machine code in the emulator, each for one of the targets in turn."""

import numpy as np
import pytest
from generators.form import Form
from generators.forms import EVERY
from generators.named_forms import NAMED_FORMS
from numeric.test_forms import reference_of
from targets.amd import emulator, programs

from treadle import pipelines
from treadle.errors import KernelRejected
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.targets.interface import CompiledKernel

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
PAIRS = [(form, programs.TARGETS[number % len(programs.TARGETS)]) for number, form in enumerate((*EVERY, *NAMED_FORMS))]


def _row_exchange(kernel: CompiledKernel) -> str:
    """The emulator does not follow the lane numbers of v_permlanex16: right only where all lanes of a row hold one value."""
    return "lanes exchanged between rows" if "v_permlanex16" in kernel.assembly else ""


@needs_emulator
@pytest.mark.parametrize(("form", "target"), PAIRS, ids=[f"{form.name}-{target}" for form, target in PAIRS])
def test_machine_code_agrees_with_reference(form: Form, target: str) -> None:
    module = mlir.load(form.text() + "\n", f"{form.name}.mlir", form.name)
    pipelines.lower(module, target_spec(target), CompileOptions(), until="schedule")
    try:
        compiled = emulator.compile_kernels(module, target)
    except KernelRejected as rejected:
        pytest.skip(f"a compilation goes on with another candidate: {rejected.message}")
    reasons = [emulator.refusal(kernel) or _row_exchange(kernel) for kernel in compiled.values()]
    if any(reasons):
        pytest.skip("; ".join(reason for reason in reasons if reason))
    arrays = [np.asarray(array) for array in form.typed_arrays()]
    (found,) = emulator.EmulatedProgram(module, target, "forward", compiled)(*arrays)
    verdict = check(found, reference_of(form, form.arrays()))
    assert verdict.ok, verdict
