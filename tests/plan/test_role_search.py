"""Choices by models are quick: few tiles are modelled for them, whatever the shape."""

import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median, quantiles
from time import process_time

import pytest

from treadle.bench.calibration import workload_of
from treadle.bench.random_shapes import RandomChoice, random_names
from treadle.ir.context import default_context
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.pipelines import tensor_passes, tile_passes
from treadle.plan.role_clocks import RoleModel
from treadle.plan.role_forms import alike_forms, held_forms, tiles_of
from treadle.plan.role_search import RoleSearch
from treadle.plan.role_tiles import OperandRows, ResultShape, RoleProblem, RoleTile
from treadle.plan.small_m import SLACK
from treadle.plan.split_choices import SplitContraction
from treadle.plan.split_parts import split_contraction
from treadle.plan.tile_config import ContractionShape, contraction_types

SPEC = target_spec("sm_90a")
SHAPES, PRODUCTS = 100, 100
MOST_TILES, USUAL_TILES = 36, 5
"""Modelled for the choice of one split, of some 2500 that whole and parts have."""
MOST_SECONDS = 0.025
"""Of the processor for half of the choices at most: ten times what they take, since machines are slow and busy."""


DECISIONS = ("set-row-padding", "set-split-reduction", "set-kernel-form")
USUAL_CALLS, MOST_CALLS, CALLS_OF_ANY = 19_000, 40_000, 51_700
"""Of functions for all decisions about a product together, at the median, in 19 of 20 products, and in any of them: a sixth more than there
are. About 6,000 take a millisecond, which they do not on a busy machine.
"""


def random_problem(draw: random.Random) -> SplitContraction:
    """A contraction as random workloads have them: rows at multiples of 2 to 256 bytes, any of both majors."""
    step = draw.choice((1, 8, 64, 128))
    m, n, k = (-(-round(2 ** draw.uniform(*powers)) // step) * step for powers in ((4, 12), (6, 12), (9, 17)))
    types = contraction_types(SPEC, "bf16", "bf16", "f32", ("arith.extf", "arith.extf"), False)
    along_k = draw.choice((True, False)), draw.choice((True, False))
    a, b = (2 * (k if along else side) for along, side in zip(along_k, (m, n), strict=True))
    rows = a & -a, b & -b
    return SplitContraction(ContractionShape(1, m, n, k), types, 2, 2, 4, rows, along_k, lying_rows=rows)


def test_few_tiles_are_modelled_for_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    modelled, cost = [0], RoleModel._cost

    def counted(self: RoleModel, tile: RoleTile) -> float:
        modelled[-1] += 1
        return cost(self, tile)

    monkeypatch.setattr(RoleModel, "_cost", counted)
    draw, times, split = random.Random("choices"), list[float](), 0
    for _ in range(SHAPES):
        began = process_time()
        split += split_contraction(random_problem(draw), SPEC) is not None
        times.append(process_time() - began)
        modelled.append(0)
    assert SHAPES / 4 <= split <= 3 * SHAPES / 4, "there are choices of both kinds"
    assert max(modelled) <= MOST_TILES
    assert sum(modelled) <= USUAL_TILES * SHAPES
    assert median(times) <= MOST_SECONDS


@contextmanager
def counted_calls(counts: list[int]) -> Generator[None]:
    """Add to the last of the counts what is called meanwhile."""
    before = sys.getprofile()

    def count(frame: object, event: str, argument: object) -> None:
        counts[-1] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def test_decisions_about_a_product_are_few_calls() -> None:
    """Of padding rows, of a split and of the form together, which a compilation makes one after another."""
    counts = list[int]()
    for name in (*random_names("contractions", 5, 3, RandomChoice()), *random_names("contractions", PRODUCTS, 1, RandomChoice())):
        counts.append(0)
        workload, context = workload_of(name), default_context()
        module = parse_module(workload.text, name)
        for each in (*tensor_passes(SPEC, workload.options), *tile_passes(SPEC, workload.options)):
            if each.name not in DECISIONS:
                each.apply(context, module)
                continue
            with counted_calls(counts):
                each.apply(context, module)
            if each.name == DECISIONS[-1]:
                break
    # What is worked out once for a machine is no part of it.
    counts = counts[5:]
    assert median(counts) <= USUAL_CALLS
    assert quantiles(counts, n=20)[-1] <= MOST_CALLS
    assert max(counts) <= CALLS_OF_ANY


@pytest.mark.parametrize("seed", range(12))
def test_the_best_tile_is_that_of_least_clocks(seed: int) -> None:
    """Of all tiles that are admitted: in rounds, in parts whoever merges them, with rows cut by lines, where threads copy."""
    draw = random.Random(seed)
    size = draw.choice((1, 8, 64))
    m, n, k = (size * draw.randint(1, 6000 // size) for _ in range(3))
    rows = [OperandRows(draw.choice((True, False)), draw.choice((16, 32, 64, 128))) for _ in "ab"]
    parts = draw.choice((1, 2, 8))
    asked = RoleProblem(
        SPEC.instruction("wgmma_m64k16_f32_bf16_bf16"),
        ContractionShape(draw.choice((1, 3)) * parts, m, n, k),
        2,
        (ResultShape(draw.choice((2, 4)), True),),
        draw.choice((8, 64)),
        is_plain=draw.choice((True, False)),
        may_be_deferred=draw.choice((True, False)),
        piece_bytes=draw.choice(((0, 0), (4, 0))),
        operands=(rows[0], rows[1]),
        takes_turns=parts == 1,
        parts=parts,
        in_cluster=parts > 1 and draw.choice((True, False)),
        overlaps=(draw.choice((True, False)), draw.choice((True, False))),
    )
    model = RoleSearch(asked, SPEC)
    best, least = model.best(), min(model.costs().values())
    assert best is not None and model.cost(best) == least
    assert model.modelled >= len(model.costs())
    fresh = RoleSearch(asked, SPEC)
    fresh.best()
    assert fresh.modelled <= 3 + len(model.costs()) / 2
    enough = RoleSearch(asked, SPEC).best(enough=least * (1 + SLACK))
    assert enough is not None and model.cost(enough) == least
    narrow = fresh.best(lambda form: form.n <= 64)
    assert narrow is None or narrow.n <= 64
    other = RoleSearch(replace(asked, shape=replace(asked.shape, k=2 * k)), SPEC)
    assert fresh.of(other.problem).best() == other.best(), "what problems share is the same"


def test_forms_have_the_deepest_ring_until_they_are_tiles() -> None:
    """Forms are kept for all problems alike, what does not fit them is left out behind."""
    asked = RoleProblem(SPEC.instruction("wgmma_m64k16_f32_bf16_bf16"), ContractionShape(1, 4096, 4096, 4096), 2, (ResultShape(2, True),))
    again = replace(asked, shape=ContractionShape(3, 8000, 64, 100))
    assert alike_forms(asked, SPEC) is alike_forms(again, SPEC)
    assert alike_forms(asked, SPEC) is not alike_forms(replace(asked, parts=2), SPEC)
    assert all(tile.num_stages <= form.num_stages for form in held_forms(asked, SPEC) for tile in tiles_of(form, asked, SPEC))


@pytest.mark.parametrize("pitch", [16, 128])
def test_what_forms_take_at_least_is_kept_for_each_number_of_parts_apart(pitch: int) -> None:
    """Problems that share models ask for the same forms with other batches, sums, merges and turns, one after the other."""
    rows = (OperandRows(True, pitch), OperandRows(False, pitch))
    row, shape = SPEC.instruction("wgmma_m64k16_f32_bf16_bf16"), ContractionShape(1, 1000, 3000, 8192)
    asked = RoleProblem(row, shape, 2, (ResultShape(4, True),), 64, is_plain=False, operands=rows)
    whole = RoleSearch(asked, SPEC)
    parts_of = RoleSearch(replace(asked, shape=replace(shape, batch=3)), SPEC)
    form = held_forms(asked, SPEC)[0]
    first = whole.at_least(form)
    for batch, k, parts, in_cluster, turns in (
        (1, 2048, 1, False, True),
        (4, 2048, 1, False, True),
        (4, 2048, 4, False, True),
        (4, 2048, 4, True, True),
        (4, 2048, 4, False, False),
    ):
        other = replace(asked, shape=replace(shape, batch=batch, k=k), parts=parts, in_cluster=in_cluster, takes_turns=turns)
        assert (whole if batch == 1 else parts_of).of(other).at_least(form) == RoleSearch(other, SPEC).at_least(form)
    assert whole.at_least(form) == first
