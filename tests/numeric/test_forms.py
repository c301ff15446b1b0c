"""Every form of the tensor level that is no plain generic: the reference against IREE, and the compiled program against the reference."""

import numpy as np
import pytest
from generators.form import Form
from generators.forms import EVERY, FORMS
from generators.named_forms import NAMED_FORMS
from numeric.iree_oracle import IreeFunctions

import treadle
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.sim.reference import ReferenceResult, evaluate_module

WITH_ORACLE = (*FORMS, *NAMED_FORMS)
ALL = (*EVERY, *NAMED_FORMS)
AMD = ("gfx942", "gfx950", "gfx1100", "gfx1201")
PAIRS = [pair for number, form in enumerate(ALL) for pair in ((form, "sm_90a"), (form, AMD[number % len(AMD)]))]


def reference_of(form: Form, arrays: list[np.ndarray | float]) -> ReferenceResult:
    (result,) = evaluate_module(parse_module(form.text(), f"{form.name}.mlir"), [np.asarray(a) for a in arrays])
    return result


@pytest.fixture(scope="module")
def iree() -> IreeFunctions:
    return IreeFunctions("\n".join(form.text() for form in WITH_ORACLE))


@pytest.mark.parametrize("form", WITH_ORACLE, ids=lambda form: form.name)
def test_reference_agrees_with_iree(form: Form, iree: IreeFunctions) -> None:
    for seed in range(3):
        arrays = form.arrays(seed)
        verdict = check(iree(form.name, [int(a) if isinstance(a, bool) else a for a in arrays]), reference_of(form, arrays))
        assert verdict.ok, verdict


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_simulated_program_agrees_with_reference(form: Form) -> None:
    program = treadle.compile(form.text(), target="sim")
    for seed in range(3):
        arrays = form.arrays(seed)
        (got,) = program(*arrays)
        verdict = check(np.asarray(got), reference_of(form, arrays))
        assert verdict.ok, verdict


@pytest.mark.parametrize(("form", "target"), PAIRS, ids=[f"{form.name}-{target}" for form, target in PAIRS])
def test_compiles_to_machine_code(form: Form, target: str) -> None:
    program = treadle.compile(form.text(), target=target, options=CompileOptions(tuned=False))
    assert program.stages["llvm"]
