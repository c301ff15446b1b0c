"""Sizes that only the runtime knows: calls whose rows are multiples of 16 bytes run a variant that relies on it."""

import re

import numpy as np
import pytest
from driver.layout_programs import matmul

import treadle
from treadle.driver import lowering
from treadle.driver.sources import read_source
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.plan.argument_layout import AlignedRows, Layouts
from treadle.runtime.arguments import layouts_of, views_of
from treadle.runtime.invocation import InvocationPlan
from treadle.sim.check import check

RNG = np.random.default_rng(11)
OPEN = matmul("f16", "?", "?", "?")


def declared(text: str, divisor: int, other: int) -> str:
    """Both arguments with a divisor of their last extent."""
    found = re.sub(r"(%x: tensor<[^>]*>)", rf"\1 {{treadle.size_divisor = {divisor} : i64}}", text, count=1)
    return re.sub(r"(%y: tensor<[^>]*>)", rf"\1 {{treadle.size_divisor = {other} : i64}}", found, count=1)


def transposed(text: str) -> str:
    """The same contraction with B of shape (n, k)."""
    swapped = text.replace("linalg.matmul ins", "linalg.matmul_transpose_b ins")
    return swapped.replace("%d1 = tensor.dim %y, %i1", "%d1 = tensor.dim %y, %i0")


@pytest.mark.parametrize("divisors", [(8, 8), (8, 1), (1, 8), (4, 8), (16, 2)])
@pytest.mark.parametrize("nt", [False, True])
def test_declared_divisors(divisors: tuple[int, int], nt: bool) -> None:
    text = declared(transposed(OPEN) if nt else OPEN, *divisors)
    program = treadle.compile(text, target="sim")
    k_step = max(divisors) if nt else divisors[0]
    for _ in range(3):
        m, n, k = int(RNG.integers(1, 150)), divisors[1] * int(RNG.integers(1, 20)), k_step * int(RNG.integers(1, 20))
        x, y = RNG.standard_normal((m, k)).astype(np.float16), RNG.standard_normal((n, k) if nt else (k, n)).astype(np.float16)
        (got,), (want,) = program(x, y), program.reference(x, y)
        verdict = check(got, want)
        assert verdict.ok, verdict
    if divisors[0] > 1:
        with pytest.raises(TreadleError) as caught:
            program(np.zeros((3, k_step + 1), np.float16), np.zeros((8, k_step + 1) if nt else (k_step + 1, 8), np.float16))
        assert caught.value.code == "TR723"


def remarks(layouts: Layouts, target: str) -> dict[str, list[str]]:
    lowered = lowering.lower(read_source(OPEN), target, CompileOptions(), None, layouts=layouts, until="schedule")
    found: dict[str, list[str]] = {}
    for remark in lowered.remarks:
        found.setdefault(remark.pass_name, []).append(remark.text)
    return found


def test_descriptor_copies_for_runtime_sizes() -> None:
    rows = AlignedRows(8)
    said = remarks((rows, rows), "sm_90a")
    kernels = 2  # one for all of k, and one for its parts
    assert said["set-operand-staging"] == ["staged by descriptor copy"] * 2 * kernels
    assert said["store-in-bulk"] == ["stored by descriptor copies"] * kernels
    said = remarks((None, rows), "sm_90a")
    for text in said["set-operand-staging"][::2]:
        assert "descriptor copy refused: pitch of dimension 0 is dynamic" in text and "by the producer's threads" in text
    assert said["set-operand-staging"][1::2] == ["staged by descriptor copy"] * kernels


def test_wide_loads_for_runtime_sizes() -> None:
    rows = AlignedRows(8)
    assert all(text.startswith("load: 8 element(s)") for text in remarks((rows, rows), "gfx942")["set-access-widths"][:2])


@pytest.mark.parametrize(
    ("m", "k", "n", "found"), [(5, 64, 128, (8, 8)), (5, 63, 128, (0, 8)), (8, 64, 9, (8, 0)), (8, 7, 9, None), (3, 0, 8, (0, 0))]
)
def test_classes_of_calls(m: int, k: int, n: int, found: tuple[int, int] | None) -> None:
    program = treadle.compile(OPEN, target="sim")
    plan = InvocationPlan(program.manifest)
    views = views_of(program.manifest, [np.zeros((m, k), np.float16), np.zeros((k, n), np.float16)])
    layouts = layouts_of(plan, views, ("cuda", 0))
    wanted = None if not found or not any(found) else tuple(AlignedRows(d) if d else None for d in found)
    assert layouts == wanted
    assert layouts_of(plan, views, ("cpu", 0)) is None


def test_sizes_of_a_variant_ask_for_no_other() -> None:
    program = treadle.compile(declared(OPEN, 8, 8), target="sim")
    plan = InvocationPlan(program.manifest)
    views = views_of(program.manifest, [np.zeros((5, 64), np.float16), np.zeros((64, 8), np.float16)])
    assert layouts_of(plan, views, ("cuda", 0)) is None
