"""Small contractions of any size, layout and depth of the ring: odd pitches, fewer steps than stages, accumulators that are read first."""

import random
import re
from dataclasses import replace

import pytest
from generators.contractions import LAYOUTS, ContractionCase, Layout

from treadle.driver import trace
from treadle.options import CompileOptions


def small(rng: random.Random) -> ContractionCase:
    """A case of few tiles and steps."""
    sizes = rng.randint(1, 140), rng.randint(1, 140), rng.randint(1, 200)
    element, layout = rng.choice(["f16", "bf16", "f32"]), rng.choice(LAYOUTS)
    precision = {"f32_precision": "tf32"} if element == "f32" else {}
    options = {"num_stages": rng.randint(1, 8), **precision}
    return ContractionCase(*sizes, element, layout, epilogue=rng.choice(["none", "residual"]), early=False, options=options)


def schedule(case: ContractionCase, *, roles: bool = False) -> str:
    """The program at schedule level, proven. `roles`: in that form."""
    options = CompileOptions(**case.options)
    return trace(case.text, case.target, replace(options, form="roles") if roles else options, until="schedule").stages["schedule"]


@pytest.mark.parametrize("seed", range(4))
def test_all_are_proven(seed: int) -> None:
    rng = random.Random(seed)
    found = [schedule(small(rng)) for _ in range(12)]
    copied = [text for text in found if "pipe.roles" in text and "cp_async" in text]
    assert len(copied) >= 4, "rows of odd pitches, which warps of a role copy"
    assert any(re.search(r'sync.wait "cp_async" pending [1-9]', text) for text in copied), "slots that are handed over late"


@pytest.mark.parametrize(("m", "n", "k", "layout"), [(13, 32, 5, "nn"), (77, 128, 32, "tn")])
def test_warps_that_copy_wait_for_each_other_where_one_fills(m: int, n: int, k: int, layout: Layout) -> None:
    """The epilogue's operand is copied by one thread, and its slot handed back, while other warps of the role may lag behind."""
    case = ContractionCase(m, n, k, "f16", layout, epilogue="residual", early=False)
    producer = schedule(case, roles=True).partition("pipe.end_role")[0]
    assert "cp_async" in producer
    assert "sync.named_barrier" in producer
