"""Strategies: the built-in one, others before it, and what users say instead."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle import pipelines, strategies
from treadle.bench import suite
from treadle.dialects.split_attribute import SPLIT_REDUCTION, SplitAttr, SplitLoop, SplitPlan
from treadle.frontends.mlir import load
from treadle.ir.core import Attribute
from treadle.ir.passes import run_passes
from treadle.machine import TargetSpec, target_spec
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.runtime.invocation import InvocationPlan
from treadle.sim.check import check
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


@pytest.mark.parametrize("name", ["conv-bf16-4x49x10x1690-14-k7", "conv-bf16-1x13x75x736-32-k3", "conv-f16-1x9x11x517-33-k5-s2"])
def test_convolutions_with_long_sums_are_split_along_window_and_channels(name: str) -> None:
    (text,) = decided(suite.choose([name])[0].text)
    assert text.startswith('#dispatch.split<r = "')


@pytest.mark.parametrize("name", ["conv-f16-2x64x64x640-640-k3", "conv-f16-8x492x34x8-8-k5", "conv-bf16-2x9x11x3-8-k3"])
def test_convolutions_that_fill_the_machine_or_are_short_stay_whole(name: str) -> None:
    assert decided(suite.choose([name])[0].text) == []


def test_users_come_first() -> None:
    assert decided(matmul(64, 256, 65536, "bf16", '{treadle.split_reduction = "off"}')) == []
    assert decided(matmul(64, 256, 65536, "bf16"), split_reduction="3")[0].startswith('#dispatch.split<r0 = "3"')
    # Whole slots of a ring, as long as there are as many.
    assert decided(matmul(64, 256, 65536, "bf16"), split_reduction="33")[0].startswith('#dispatch.split<r0 = "33" step 64,')
    assert decided(matmul(64, 256, 1000, "bf16"), split_reduction="33")[0].startswith('#dispatch.split<r0 = "33",')
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


RUNTIME = """func.func @f(%a: tensor<{m}x?xf32>, %b: tensor<?x{n}xf32>, %c: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %0 = linalg.matmul ins(%a, %b : tensor<{m}x?xf32>, tensor<?x{n}xf32>) outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}"""


@pytest.mark.parametrize(("m", "n"), [(3, 5), ("?", 70), (3, "?"), ("?", "?")])
def test_every_length_has_its_parts(m: int | str, n: int | str) -> None:
    """Whatever the runtime gives: no size is ruled out, parts cover the length, and only long sums of few results have several."""
    program = treadle.compile(RUNTIME.format(m=m, n=n), target="sim")
    assert any(remark.pass_name == "set-split-reduction" for remark in program.remarks)
    plan, rng = InvocationPlan(program.manifest), random.Random(7)
    split: set[bool] = set()
    for _ in range(400):
        k, rows, columns = int(2 ** rng.uniform(0, 21)), m, n
        rows, columns = (int(2 ** rng.uniform(0, 11)) if size == "?" else int(size) for size in (m, n))
        shapes = ((rows, k), (k, columns), (rows, columns))
        launches = plan.resolve(shapes, [(shape[1], 1) for shape in shapes]).launches
        several = sum(min(launch.grid) > 0 for launch in launches) > 1
        split.add(several)
        assert not several or (k >= 512 and rows * columns <= 132 * 128 * 128)
    assert split == {True, False}
    rng_np = np.random.default_rng(1)
    for k in (1, 63, 1999, 5000):
        rows, columns = (4 if size == "?" else int(size) for size in (m, n))
        arrays = [rng_np.standard_normal(shape).astype(np.float32) for shape in ((rows, k), (k, columns), (rows, columns))]
        (got,), (want,) = program(*arrays), program.reference(*arrays)
        assert (verdict := check(np.asarray(got), want)).ok, verdict


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
