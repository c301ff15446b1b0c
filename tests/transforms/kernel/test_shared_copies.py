"""What each workgroup of a cluster brings of an operand that all of them read."""

from math import prod

import pytest

from treadle.dialects.pipe import part_layout
from treadle.layout.shared_layout import SharedLayout, swizzled
from treadle.plan.role_clusters import SWIZZLED_ROWS, fetched_share
from treadle.transforms.kernel.roles.shared_copies import OwnPart, own_parts

STEP = 64


def size(layout: SharedLayout, part: OwnPart) -> int:
    """Elements of a part."""
    if part.spans > 1:
        spans = part_layout(layout, 1 - part.axis, part.spans)
        assert spans is not None
        layout = spans
    found = part_layout(layout, part.axis, part.parts)
    assert found is not None
    return prod(found.shape)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("extent", [*range(8, 257, 8)])
def test_rows_along_k_are_shared_by_periods(extent: int, count: int, rows: bool) -> None:
    layout = swizzled((extent, STEP) if rows else (STEP, extent), (1, 0) if rows else (0, 1), 2, 128)
    parts = own_parts(layout, count, rows=rows)
    assert bool(parts) == (extent >= SWIZZLED_ROWS * count)
    if parts:
        fetched = sum(size(layout, part) for part in parts)
        assert fetched == pytest.approx(fetched_share(extent, True, count) * extent * STEP)
        shared = sum(size(layout, part) for part in parts if part.is_shared)
        assert fetched - shared + count * shared == extent * STEP


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("extent", "span"), [*((n, 64) for n in range(64, 257, 64)), *((n, 32) for n in range(32, 257, 32))])
def test_columns_along_n_are_shared_by_rows_along_k(extent: int, span: int, count: int, rows: bool) -> None:
    layout = swizzled((extent, STEP) if rows else (STEP, extent), (0, 1) if rows else (1, 0), 2, 2 * span)
    parts = own_parts(layout, count, rows=rows)
    assert count * sum(size(layout, part) for part in parts) == extent * STEP
    assert all(part.is_shared for part in parts)


def test_fewer_periods_than_workgroups_have_no_parts() -> None:
    assert own_parts(swizzled((24, STEP), (1, 0), 2, 128), 4, rows=True) == ()
    assert fetched_share(104, True, 4) == 4 / 13
    assert fetched_share(96, False, 4) == 1 / 4
