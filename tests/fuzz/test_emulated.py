"""Random ragged contractions and random modules as AMD machine code in the emulator; contractions scheduled by default."""

import pytest
from fuzz.expect import without_defects
from targets.amd import emulator

PART = 6


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("first", range(0, 30, PART))
def test_emulated(first: int) -> None:
    outcomes = without_defects("emulated", first, PART)
    assert any(outcome.status == "right" for outcome in outcomes)


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("first", range(0, 24, PART))
def test_contractions_as_the_compiler_schedules_them(first: int) -> None:
    outcomes = without_defects("contractions", first, PART)
    assert any(outcome.status == "right" for outcome in outcomes)
