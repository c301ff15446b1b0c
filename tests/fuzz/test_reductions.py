"""20 random reductions of all combiners: sim against float64 and IREE, and machine code for one target each."""

import pytest
from fuzz.expect import without_defects

PART = 10


@pytest.mark.parametrize("first", range(0, 20, PART))
def test_reductions(first: int) -> None:
    outcomes = without_defects("reductions", first, PART)
    assert all(outcome.status == "right" for outcome in outcomes), [outcome.detail for outcome in outcomes]
