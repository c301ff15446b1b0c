"""The sample of random attention problems: what it draws, and that its tiles fit every width; nothing is measured."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language.attention_problems import Problem

import treadle
from treadle.dialects import tile
from treadle.targets.registry import backend

FILE = Path(__file__).parents[2] / "benchmarks" / "attention_sample.py"


@pytest.fixture(name="sample", scope="module")
def fixture_sample() -> Any:
    spec = importlib.util.spec_from_file_location("attention_sample", FILE)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_drawn(sample: Any) -> None:
    found = sample.problems(200, 11)
    assert found[:20] == sample.problems(20, 11) != sample.problems(20, 12)
    for one in found:
        assert 1 <= one.batch <= 64 and one.shared * one.group <= 64 and max(one.queries, one.keys) <= 32768
        assert one.batch * one.shared * one.group * max(one.queries, one.keys) * one.width <= sample.MOST_ELEMENTS
    assert {one.width for one in found} == set(sample.WIDTHS)
    for kinds in ({one.causal for one in found}, {one.queries % 2 for one in found}, {one.queries == one.keys for one in found}):
        assert kinds == {False, True} or kinds == {0, 1}


def test_operations_are_those_of_the_scores_that_are_seen(sample: Any) -> None:
    for queries, keys in ((7, 7), (9, 4), (4, 9), (1, 1)):
        for causal in (False, True):
            seen = np.tri(queries, keys).sum() if causal else queries * keys
            assert sample.Sizes(2, 3, 2, queries, keys, 64, causal, "bf16").flop == 4 * 12 * seen * 64


def test_sizes_are_listed_without_a_gpu(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample.main(["--random", "5", "--seed", "11", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [one.name for one in sample.problems(5, 11)]


@pytest.mark.parametrize("width", [32, 96, 192, 256])
def test_tiles_fit(sample: Any, width: int) -> None:
    sizes = sample.Sizes(1, 1, 1, 128, 128, width, True, "f16").tile
    module = Problem(1, 1, 1, 128, 128, width, causal=True).lowered("sm_90a", **sizes)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    target = backend("sm_90a")
    assert target.assemble(target.emit(kernel)).facts.spill_bytes == 0


@pytest.mark.parametrize("causal", [False, True])
def test_text_of_a_problem_is_one_kernel(sample: Any, causal: bool) -> None:
    text = sample.import_module("attention_text").attention_text(sample.Sizes(2, 2, 3, 130, 130, 64, causal, "bf16"))
    program = treadle.compile(text, target="sm_90a", options=treadle.CompileOptions(attention="always"))
    assert [kernel.name for kernel in program.manifest.kernels] == ["attention_k0"]
