"""Random ragged contractions and random modules as AMD machine code in the emulator."""

import pytest
from fuzz.expect import without_defects
from targets.amd import emulator

PART = 6


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("first", range(0, 60, PART))
def test_emulated(first: int) -> None:
    outcomes = without_defects("emulated", first, PART)
    assert any(outcome.status == "right" for outcome in outcomes)
