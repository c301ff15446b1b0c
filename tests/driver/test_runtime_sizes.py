"""Reductions whose length only the runtime knows: what is compiled once runs right at every length, and nothing is compiled again."""

from pathlib import Path

import numpy as np
import pytest
from driver.compilations import counter
from generators.runtime_sizes import PROGRAMS, SIZES

import treadle
from treadle.options import CompileOptions


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_binary_runs_every_length(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations = counter(monkeypatch, tmp_path)
    sized = PROGRAMS[name]
    program = treadle.compile(sized.text, target="sim", options=CompileOptions(tuned=False))
    for k in SIZES:
        given = sized.arguments(k, np.random.default_rng(k))
        sized.check(given, program(*given))
        assert program.variant_for(*given) is program
    assert compilations() == 1
