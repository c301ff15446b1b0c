"""Vector widths from what is known about a view."""

import pytest

from treadle.plan.access import AccessFacts, DimFacts, contiguous_dim, vector_limit

FREE = 1 << 30


def facts(*, element_bytes: int = 2, align: int = 16, pitch: int = 64, size: int = 64, offset: int = 8, extent: int = 32) -> AccessFacts:
    def divisor(value: int) -> int:
        return value & -value if value else FREE

    rows = DimFacts(pitch, 123, divisor(pitch), 1, 1, 16)
    columns = DimFacts(1, size, 1, divisor(size), divisor(offset), extent)
    return AccessFacts((rows, columns), element_bytes, align)


@pytest.mark.parametrize(
    ("change", "width"),
    [
        ({}, 8),
        ({"element_bytes": 4}, 4),
        ({"pitch": 51234}, 2),
        ({"pitch": 51233}, 1),
        ({"size": 51}, 1),
        ({"size": 52}, 4),
        ({"offset": 2}, 2),
        ({"offset": 0}, 8),
        ({"align": 4}, 2),
        ({"align": 1}, 1),
        ({"extent": 6}, 2),
        ({"pitch": 0}, 8),
    ],
)
def test_every_rule_limits_the_width(change: dict[str, int], width: int) -> None:
    found, rule = vector_limit(facts(**change), 1, 16)
    assert found == width, rule


def test_a_dimension_of_size_one_needs_no_pitch() -> None:
    row = DimFacts(7, 1, 1, 1, FREE)
    column = DimFacts(1, 64, 1, 64, 64, 32)
    assert vector_limit(AccessFacts((row, column), 4, 16), 1, 16)[0] == 4
    dynamic = DimFacts(None, None, 1, 1, FREE)
    assert vector_limit(AccessFacts((dynamic, column), 4, 16), 1, 16) == (1, "stride dynamic of dimension 0")


def test_strided_tiles_have_width_one() -> None:
    assert vector_limit(facts(), None, 16)[0] == 1


def test_contiguous_dim_is_the_widest_of_unit_stride() -> None:
    assert contiguous_dim((64, 1), (0, 1), (16, 32)) == 1
    assert contiguous_dim((64, 1), (1, 0), (16, 32)) == 0
    assert contiguous_dim((64, 1), (0, 1), (16, 1)) is None
    assert contiguous_dim((1, 1), (0, 1), (16, 32)) == 1
    assert contiguous_dim((None, 2), (0, 1), (16, 32)) is None
