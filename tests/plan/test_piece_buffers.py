"""Buffers that threads fill piece by piece: pieces stay together, and neither reads nor turned copies wait for a bank."""

import random

import pytest

from treadle.layout.access import bank_conflicts, possible_addresses
from treadle.layout.tile_layout import blocked
from treadle.layout.turned_copy import turned_pieces
from treadle.machine import target_spec
from treadle.plan.contract_layouts import multiply_add_layouts
from treadle.plan.piece_buffers import piece_buffer, turned_buffer

SPEC = target_spec("sm_90a")


def drawn(seed: int) -> tuple[int, int, int, tuple[int, int]]:
    """M and n of a tile, its step along k, and its warps."""
    rng = random.Random(seed)
    return rng.choice((64, 128, 256)), rng.choice((64, 128)), rng.choice((16, 32)), rng.choice(((2, 1), (2, 2), (4, 1), (4, 2)))


@pytest.mark.parametrize("seed", range(12))
def test_turned_operands_are_free_of_conflicts(seed: int) -> None:
    m, n, k, warps = drawn(seed)
    layouts = multiply_add_layouts(m, n, *warps, 32, 4)
    for shape, inner, fragment in (((m, k), 1, layouts.a), ((k, n), 0, layouts.b)):
        assert fragment is not None
        buffer = turned_buffer(shape, inner, 4, fragment, k // 4, warps[0] * warps[1], SPEC.banks)
        copies = turned_pieces(shape, inner, 4, 32, warps[0] * warps[1])
        assert buffer is not None and copies is not None and not buffer.offset[0][inner]
        assert bank_conflicts(fragment, buffer, 4) == 0
        assert bank_conflicts(copies, buffer, 4, 1) == 0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("piece", [4, 8, 16])
def test_pieces_stay_together(seed: int, piece: int) -> None:
    m, n, k, warps = drawn(seed)
    layouts = multiply_add_layouts(m, n, *warps, 32, 4)
    for shape, inner, fragment in (((m, k), 1, layouts.a), ((k, n), 0, layouts.b), ((k, n), 1, layouts.b)):
        assert fragment is not None
        buffer = piece_buffer(shape, inner, 4, fragment, piece, warps[0] * warps[1], SPEC.banks)
        assert buffer is not None and bank_conflicts(fragment, buffer, 4) == 0
        plan = possible_addresses(blocked(shape, (inner, 1 - inner), piece // 4, 32, 4), buffer, 4, piece)
        assert not isinstance(plan, str) and plan.vector == piece // 4


def test_what_is_too_short_has_no_buffer() -> None:
    layouts = multiply_add_layouts(64, 64, 2, 2, 32, 4)
    assert layouts.a is not None
    assert turned_buffer((64, 4), 1, 4, layouts.a, 1, 4, SPEC.banks) is None, "no sector"
    assert piece_buffer((64, 2), 1, 4, layouts.a, 16, 4, SPEC.banks) is None, "no piece"
