"""300 random contractions: proven and audited machine code for one target each."""

import pytest
from fuzz.expect import without_defects

PART = 20


@pytest.mark.parametrize("first", range(0, 300, PART))
def test_shapes(first: int) -> None:
    outcomes = without_defects("shapes", first, PART)
    refused = [outcome.detail for outcome in outcomes if outcome.status in ("refused", "rejected")]
    assert len(refused) <= PART // 4, "\n".join(refused)
