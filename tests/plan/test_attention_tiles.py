"""Tiles of attention kernels: they fit shared memory, alone or two to a unit, and are no longer than the keys."""

import random

import pytest

from treadle.machine import target_spec
from treadle.plan.attention_tiles import AttentionSizes, candidate_tiles

SPEC = target_spec("sm_90a")


def sizes_of(number: int) -> AttentionSizes:
    draw = random.Random(f"attention tiles {number}")
    rows, keys = (draw.choice((None, draw.randint(1, 64), draw.randint(65, 4000))) for _ in range(2))
    return AttentionSizes(draw.randint(1, 99), rows, keys, draw.randint(1, 256), draw.randint(1, 256))


@pytest.mark.parametrize("number", range(40))
def test_workgroups_that_share_a_unit_fit_it(number: int) -> None:
    for tiles in candidate_tiles(sizes_of(number), "f16", SPEC):
        rings = tiles.num_stages * tiles.keys * (tiles.width + tiles.columns)
        held = 2 * (tiles.rows * (tiles.width + tiles.columns) + rings)
        assert tiles.resident == 1 or (tiles.rows == 64 and tiles.resident * (held + 1024) <= SPEC.shared_bytes_per_unit)
        assert tiles.instruction == "fma" or tiles.num_stages >= 1


def test_small_problems_share_a_unit() -> None:
    """One stage where there is one step; fewer keys where that lets two workgroups in, but where a ring would be one stage of several."""

    def best(rows: int, keys: int, width: int) -> tuple[int, int, int, int]:
        tiles = next(candidate_tiles(AttentionSizes(99, rows, keys, width, width), "f16", SPEC))
        return tiles.rows, tiles.keys, tiles.num_stages, tiles.resident

    assert best(64, 64, 128) == (64, 64, 1, 2)
    assert best(64, 300, 64) == (64, 128, 3, 2)
    assert best(64, 300, 128) == (64, 64, 2, 2)
    assert best(64, 300, 192)[3] == 1
    assert best(128, 128, 64) == (128, 128, 1, 1)
    assert best(4096, 4096, 64) == (128, 128, 3, 1)
    assert best(4096, 4096, 128) == (128, 128, 2, 1)
