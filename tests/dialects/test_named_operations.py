"""Every named operation against MLIR's own definition: what iree-opt makes of it as a `linalg.generic`, read back and run on numbers."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from generators.named_operations import NamedCase, random_case

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport]
from treadle.dialects.mlir_ext.named_table import NAMED
from treadle.ir.core import Operation
from treadle.ir.dialects import linalg
from treadle.ir.text import parse_module
from treadle.sim.reference import evaluate_module

SEEDS = 12
STRUCTURED = linalg.abstract_ops.LinalgStructuredOperation


def iree_opt(text: str, *flags: str) -> str:
    """The module that iree-opt prints; skips the test where it is not installed."""
    tool = shutil.which("iree-opt", path=str(Path(sys.executable).parent)) or shutil.which("iree-opt")
    if tool is None:
        pytest.skip("iree-opt is not installed")
    result = subprocess.run([tool, *flags, "-"], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:2000]
    return result.stdout


def generalized(text: str) -> str:
    """`text` with its named operations as `linalg.generic`, in operations that this compiler has."""
    found = iree_opt(text, "--linalg-generalize-named-ops")
    # A conversion between 16-bit floats is one operation in newer MLIR, two here.
    pattern = r"%(\S+) = arith\.convertf (%\S+) : (\w+) to (\w+)"
    return re.sub(pattern, r"%wide_\1 = arith.extf \2 : \3 to f32\n%\1 = arith.truncf %wide_\1 : f32 to \4", found)


def structured_in(module: Operation, symbol: str) -> Operation:
    function = next(op for op in module.walk() if op.name == "func.func" and symbol in str(op.properties["sym_name"]))
    return next(op for op in function.walk() if isinstance(op, STRUCTURED))


def differences(cases: Sequence[NamedCase]) -> list[str]:
    """The cases whose maps, iterators or numbers differ from those of iree-opt's generic operation."""
    text = "".join(case.function(f"case_{number}_") for number, case in enumerate(cases))
    ours, theirs = parse_module(text, "named.mlir"), parse_module(generalized(text), "generic.mlir")
    wrong: list[str] = []
    for number, case in enumerate(cases):
        symbol = f"case_{number}_"
        mine, other = structured_in(ours, symbol), structured_in(theirs, symbol)
        assert isinstance(mine, STRUCTURED)
        assert isinstance(other, STRUCTURED)
        if mine.get_indexing_maps() != other.get_indexing_maps() or mine.get_iterator_types() != other.get_iterator_types():
            wrong.append(f"{case}: maps or iterators {mine.get_indexing_maps()}, expected {other.get_indexing_maps()}")
            continue
        arrays = case.arrays(number)
        (got,), (want,) = (evaluate_module(module, arrays, symbol) for module in (ours, theirs))
        if not np.array_equal(got.value, want.value, equal_nan=True):
            wrong.append(f"{case}: {int((got.value != want.value).sum())} of {got.value.size} elements differ")
    return wrong


@pytest.mark.parametrize("seed", range(SEEDS))
def test_bodies_and_maps_are_those_of_mlir(seed: int) -> None:
    assert differences([random_case(name, seed) for name in NAMED]) == []
