"""Reductions of runtime length on a real NVIDIA GPU, where rows of whole 16 bytes are a class, compiled at its first call."""

from pathlib import Path

import numpy as np
import pytest
from driver.compilations import counter
from generators.runtime_sizes import PROGRAMS, SIZES

import treadle
from treadle.options import CompileOptions


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_classes_run_every_length(name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations = counter(monkeypatch, tmp_path)
    sized = PROGRAMS[name]
    program = treadle.compile(sized.text, target=target, options=CompileOptions(tuned=False))
    for k in SIZES:
        given = sized.arguments(k, np.random.default_rng(k))
        sized.check(given, program(*given))
    assert compilations() <= 2
