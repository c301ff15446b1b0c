"""Tiles of multiply-adds whose operands copies bring: what is chosen where, and that it fits."""

import random
from dataclasses import replace

import pytest

from treadle.machine import target_spec
from treadle.plan.multiply_add_tiles import (
    MultiplyAdds,
    clocks,
    multiplies_pieces,
    multiply_add_seconds,
    multiply_add_tiles,
    registers,
    resident,
)
from treadle.plan.tile_config import ContractionShape, ContractionTypes

SPEC = target_spec("sm_90a")


def sums(element: str) -> ContractionTypes:
    return ContractionTypes(element, element, element, "fma")


@pytest.mark.parametrize("seed", range(20))
def test_all_fit_the_machine(seed: int) -> None:
    rng = random.Random(seed)
    m, n, k = (rng.choice((None, rng.randint(1, 5000))) for _ in range(3))
    element = rng.choice(("f32", "f64", "i64"))
    problem = MultiplyAdds(sums(element), ContractionShape(1, m, n, k, rng.choice((1, 2))), SPEC, beside=rng.random() < 0.5)
    found = multiply_add_tiles(problem)
    assert found
    for tile in found:
        together = resident(tile, problem)
        assert registers(tile, problem) <= SPEC.fma_registers
        assert together == 1 or together * tile.num_threads(SPEC) * registers(tile, problem) <= SPEC.registers_per_unit
    times = [multiply_add_seconds(tile, problem, 0) for tile in found]
    assert min(times) > 0
    # What is kept of tiles for other lengths of k is right for this one.
    assert [clocks(tile, problem) for tile in found] == sorted(clocks(tile, problem) for tile in found)
    whole = replace(problem, shape=ContractionShape(3, 256, 256, 4096))
    ragged = replace(whole, shape=replace(whole.shape, k=4097))
    assert registers(found[0], ragged) > registers(found[0], whole)
    assert all(registers(tile, ragged) <= SPEC.fma_registers for tile in multiply_add_tiles(ragged))
    assert len(multiply_add_tiles(whole)) >= len(multiply_add_tiles(ragged))


def test_few_tiles_are_small_and_many_are_large() -> None:
    chosen = [multiply_add_tiles(MultiplyAdds(sums("f32"), ContractionShape(1, side, side, 4096), SPEC))[0] for side in (200, 1000, 8192)]
    sides = [tile.m * tile.n for tile in chosen]
    assert sides == sorted(sides) and sides[0] < sides[-1]
    assert chosen[-1].m >= 128


def test_what_is_multiplied_as_it_is() -> None:
    assert multiplies_pieces(sums("f32"), ("f32", "f32"), SPEC)
    assert not multiplies_pieces(sums("f32"), ("f16", "f32"), SPEC), "a cast on the way"
    assert not multiplies_pieces(ContractionTypes("tf32", "tf32", "f32", "wgmma"), ("f32", "f32"), SPEC)
    assert not multiplies_pieces(sums("f32"), ("f32", "f32"), target_spec("gfx1100")), "no copies of pieces"
