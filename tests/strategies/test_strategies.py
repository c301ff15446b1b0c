"""Strategies: the built-in one, others before it, and what users say instead."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import pipelines, strategies
from treadle.dialects.split_attribute import SPLIT_REDUCTION, SplitAttr, SplitLoop, SplitPlan
from treadle.frontends.mlir import load
from treadle.ir.core import Attribute
from treadle.ir.passes import run_passes
from treadle.machine import TargetSpec, target_spec
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.strategies.facts import OperationFacts


def matmul(m: int, n: int, k: int, kind: str = "f32", attribute: str = "") -> str:
    a, b, c = f"tensor<{m}x{k}x{kind}>", f"tensor<{k}x{n}x{kind}>", f"tensor<{m}x{n}xf32>"
    return f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %0 = linalg.matmul {attribute} ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
      return %0 : {c}
    }}"""


def decided(text: str, **options: object) -> list[str]:
    """What set-split-reduction says."""
    module, chosen = load(text), CompileOptions(**options)  # type: ignore[arg-type]
    with collect_remarks() as log:
        run_passes(module, pipelines.tensor_passes(target_spec("sm_90a"), chosen))
    return [remark.text for remark in log.remarks if remark.pass_name == "set-split-reduction"]


@pytest.mark.parametrize("shape", [(123, 456, 51234, "f32"), (64, 256, 65536, "bf16"), (20, 384, 16000, "bf16"), (3, 5, 1_000_003, "f32")])
def test_long_sums_of_few_results_are_split(shape: tuple[int, int, int, str]) -> None:
    (text,) = decided(matmul(*shape))
    assert text.startswith('#dispatch.split<r0 = "') and "(split-sizes)" in text
    assert decided(matmul(*shape), split_reduction="off") == []


@pytest.mark.parametrize("shape", [(4096, 4096, 4096, "bf16"), (16, 4096, 4096, "bf16"), (2048, 2048, 64, "f16"), (64, 64, 256, "f32")])
def test_what_fills_the_machine_or_is_short_stays_whole(shape: tuple[int, int, int, str]) -> None:
    assert decided(matmul(*shape)) == []


def test_users_come_first() -> None:
    assert decided(matmul(64, 256, 65536, "bf16", '{treadle.split_reduction = "off"}')) == []
    assert decided(matmul(64, 256, 65536, "bf16"), split_reduction="3")[0].startswith('#dispatch.split<r0 = "3"')
    (text,) = decided(matmul(64, 256, 65536, "bf16"), reassociate=False)
    assert "not split as" in text


def test_an_unknown_choice_is_an_error() -> None:
    with pytest.raises(ValueError, match="split_reduction is 'many'"):
        CompileOptions(split_reduction="many")


class Halves:
    """Splits everything in two."""

    name = "halves"
    attribute = SPLIT_REDUCTION

    def decide(self, facts: OperationFacts, spec: TargetSpec) -> Attribute | None:
        return SplitAttr(SplitPlan((SplitLoop(facts.splittable[0], "2"),))) if facts.splittable else None


@pytest.fixture
def halves() -> Iterator[None]:
    strategies.register_strategy(Halves())
    yield
    strategies.unregister_strategy("halves")


@pytest.mark.usefixtures("halves")
def test_a_registered_strategy_is_asked_first() -> None:
    assert decided(matmul(4096, 4096, 4096, "bf16")) == ['#dispatch.split<r0 = "2", merge = kernel> (halves)']


MODULE = """
class Whole:
    name, attribute = "whole", "treadle.split_reduction"

    def decide(self, facts, spec):
        return None
"""


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_strategies_of_installed_packages_are_found(kind: str, tmp_path: Path) -> None:
    facts = tmp_path / f"wholes-1.0.{kind}"
    facts.mkdir()
    (tmp_path / "wholes.py").write_text(MODULE)
    (facts / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text("Metadata-Version: 2.1\nName: wholes\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[treadle.strategies]\nwhole = wholes:Whole\n")
    script = "from treadle import strategies; print([s.name for s in strategies.strategies_for('treadle.split_reduction')])"
    paths = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {paths!r}; {script}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['whole', 'split-sizes']"
