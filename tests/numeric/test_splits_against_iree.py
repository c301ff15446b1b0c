"""Split reductions against IREE's CPU backend: the same reductions, unsplit there, of all combiners and types and ragged sizes."""

import os
import re

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numeric.iree_oracle import IreeFunctions
from numeric.test_split_reductions import DTYPES, Case, cases

import treadle
from treadle.sim.check import check

COUNT = int(os.environ.get("TREADLE_IREE_REDUCTIONS", "12"))
ROUNDING = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-23, "f64": 2**-52}


def drawn(count: int) -> list[Case]:
    found: list[Case] = []

    @seed(11)
    @settings(max_examples=count, phases=(Phase.generate,), database=None, suppress_health_check=tuple(HealthCheck.__members__.values()))
    @given(st.lists(cases(), min_size=8, max_size=8))
    def draw(some: list[Case]) -> None:
        found.extend(some)

    draw()
    return found[-count:]


def test_as_iree_computes_them() -> None:
    """IREE sums in its own order and in the type of the result, so its error counts too: as many roundings as there are terms."""
    chosen = drawn(COUNT)
    plain = [re.sub(r"treadle.split_reduction = #dispatch.split<.*?>,", "", case.text, flags=re.DOTALL) for case in chosen]
    oracle = IreeFunctions("\n".join(text.replace("@f(", f"@f{number}(") for number, text in enumerate(plain)))
    for number, case in enumerate(chosen):
        x = case.array().astype(DTYPES[case.kind])
        program = treadle.compile(case.text, target="sim")
        (found,), (wanted,) = program(x), program.reference(x)
        assert (verdict := check(np.asarray(found), wanted)).ok, verdict
        other = oracle(f"f{number}", [x]).astype(np.float64)
        terms = case.sizes[0] * case.sizes[2]
        size = np.abs(x.astype(np.float64)).sum(axis=(0, 2)) if case.combiner == "arith.addf" else np.abs(other)
        bound = terms * ROUNDING.get(case.kind, 0.0) * size
        assert (np.abs(np.asarray(found).astype(np.float64) - other) <= bound).all(), case
