"""300 random modules: sim against float64 and IREE, and machine code for one target each, the targets in turn."""

import pytest
from fuzz.expect import without_defects
from fuzz.outcomes import IN_TURN, Settings

PART = 20


@pytest.mark.parametrize("first", range(0, 300, PART))
def test_modules(first: int) -> None:
    outcomes = without_defects("modules", first, PART, Settings(IN_TURN))
    refused = [outcome.detail for outcome in outcomes if outcome.status in ("refused", "rejected")]
    assert len(refused) <= PART // 10, "\n".join(refused)
