"""Texts to mutate: the programs and schedules that stand in this repository, and generated ones at every level."""

import ast
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from generators.contractions import random_contraction
from generators.modules import random_module
from hazards.programs import PROGRAMS

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport] - makes them known to the parser
from treadle.driver import trace
from treadle.errors import TreadleError
from treadle.ir.text import parse_module
from treadle.options import CompileOptions

ROOT = Path(__file__).parents[2]
MODULES, CONTRACTIONS, SCHEDULES = 250, 120, 60


def random_text(rng: random.Random) -> str:
    """One of more than 500 texts; one in six is a schedule."""
    chosen = rng.randrange(-len(written()), MODULES + CONTRACTIONS + SCHEDULES)
    if chosen < 0:
        return written()[chosen]
    if chosen < MODULES:
        return random_module(chosen).text
    if chosen < MODULES + CONTRACTIONS:
        return random_contraction(chosen - MODULES, longest=500).text
    return _schedule(chosen - MODULES - CONTRACTIONS)


@cache
def written() -> tuple[str, ...]:
    """The texts that stand in the repository, each once, in an order that depends on nothing else."""
    found = dict.fromkeys([*_files(), *_literals(), *(schedule.text for schedule in PROGRAMS.values())])
    return tuple(text for text in found if _parses(text))


def _parses(text: str) -> bool:
    try:
        parse_module(text, "corpus.mlir")
    except TreadleError:
        return False
    return True


@cache
def _schedule(seed: int) -> str:
    """A generated module's kernels as they are scheduled for one of the targets."""
    target = ("sm_90a", "gfx942", "gfx1100")[seed % 3]
    return trace(random_module(seed).text, target, CompileOptions(tuned=False), until="schedule").stages["schedule"]


def _files() -> Iterator[str]:
    for folder in ("examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.mlir")):
            yield path.read_text(encoding="utf-8")


def _literals() -> Iterator[str]:
    """String constants of the tests that are programs."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and ("func.func" in node.value or "tile.kernel" in node.value)
            ):
                if node.value.count("\n") > 2:
                    yield node.value.replace("{{", "{").replace("}}", "}")
