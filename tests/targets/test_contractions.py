"""Contractions to audited machine code: shapes that once failed."""

import pytest
from generators.contractions import ContractionCase, Epilogue, random_contraction

from treadle.driver.lowering import Lowered, lower
from treadle.driver.sources import Source
from treadle.errors import TreadleError
from treadle.options import CompileOptions


def compiled(case: ContractionCase) -> Lowered:
    """The artifact of a case; raises what the compiler does."""
    return lower(Source(case.text, "case.mlir"), case.target, CompileOptions(tuned=False, **case.options), None)


def rejected(lowered: Lowered) -> list[str]:
    """What the tools had against candidates."""
    return [remark.text for remark in lowered.remarks if remark.pass_name == "candidates"]


NARROW = [
    ContractionCase(6912, 256, 256, "f16", "nn", "f16"),
    ContractionCase(15064, 128, 184, "bf16", "nt", "bf16"),
    ContractionCase(2464, 1880, 14, "bf16", "tn", "bf16"),
]


@pytest.mark.parametrize("case", NARROW, ids=lambda case: case.name)
def test_tiles_narrower_than_a_box_are_not_chosen(case: ContractionCase) -> None:
    compiled(case)


RESIDUALS: tuple[Epilogue, ...] = ("residual", "multiply", "silu_multiply")
RESIDUAL = [
    ContractionCase(m, n, k, "bf16", "nt", "bf16", epilogue)
    for m, n, k in ((2048, 4096, 4096), (8192, 8192, 8192))
    for epilogue in RESIDUALS
]


@pytest.mark.parametrize("case", RESIDUAL, ids=lambda case: case.name)
def test_a_matrix_beside_a_rounded_product_fits_the_best_tile(case: ContractionCase) -> None:
    """As frameworks write a residual connection, and `up * silu(gate)`."""
    assert not rejected(compiled(case))


WIDENED = [ContractionCase(1152, 2, 128, "f8E5M2FNUZ", "tn", "f16", "residual"), ContractionCase(77, 33, 99, "f8E4M3FNUZ", dynamic="mnk")]


@pytest.mark.parametrize("case", WIDENED, ids=lambda case: case.name)
def test_widened_operands_do_not_serialise_matrix_instructions(case: ContractionCase) -> None:
    assert not rejected(compiled(case))


TURNS: tuple[tuple[int, int, int, str, str, Epilogue, str], ...] = (
    (54, 1697, 1827, "f32", "f32", "residual", "n"),
    (454, 8, 1984, "bf16", "bf16", "none", ""),
    (100, 100, 5, "f16", "f32", "bias", "k"),
)
PERSISTENT = [
    ContractionCase(m, n, k, element, "nn", result, epilogue, dynamic=dynamic, target=target, options={"persistent": "always"})
    for target in ("gfx942", "gfx950", "gfx1201")
    for m, n, k, element, result, epilogue, dynamic in TURNS
]


@pytest.mark.parametrize("case", PERSISTENT, ids=lambda case: case.label)
def test_workgroups_that_take_tiles_in_turn_pass_the_audit(case: ContractionCase) -> None:
    assert not rejected(compiled(case))


AHEAD = [
    ContractionCase(m, n, k, element, "nt", target=target, options={"pipeline_stages": 2})
    for target, elements in (
        ("gfx942", ("f8E4M3FN", "f8E5M2")),
        ("gfx1100", ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ")),
        ("gfx950", ("f8E4M3FNUZ",)),
        ("gfx1201", ("f8E4M3FNUZ", "f8E5M2FNUZ")),
    )
    for element in elements
    for m, n, k in ((512, 512, 512), (333, 200, 100))
]


@pytest.mark.parametrize("case", AHEAD, ids=lambda case: case.label)
def test_small_floats_loaded_ahead_are_waited_for_where_they_are_widened(case: ContractionCase) -> None:
    assert not rejected(compiled(case))


EMPTY_SIZES: tuple[tuple[int, int, int, Epilogue], ...] = (
    (0, 64, 64, "residual"),
    (64, 0, 4096, "bias"),
    (300, 0, 0, "none"),
    (300, 64, 0, "relu"),
)
EMPTY = [
    ContractionCase(m, n, k, element, "nn", element, epilogue, target=target)
    for target in ("gfx942", "gfx1100")
    for element in ("f16", "f32")
    for m, n, k, epilogue in EMPTY_SIZES
]


@pytest.mark.parametrize("case", EMPTY, ids=lambda case: case.label)
def test_empty_contractions_compile(case: ContractionCase) -> None:
    compiled(case)


@pytest.mark.parametrize("seed", range(40))
def test_random_contractions_compile(seed: int) -> None:
    """Code for every shape; what is refused has a code and a line, and no kernel runs out of candidates."""
    case = random_contraction(seed)
    try:
        compiled(case)
    except TreadleError as error:
        assert error.code == "TR301" and error.location is not None, case.label
