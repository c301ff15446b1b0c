"""Convolutions whose sums are split along windows and channels together: right at odd sizes, proven, whoever merges the parts."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from generators.convolutions import Convolution, random_convolution
from numeric.test_convolutions import NHWC, ROLES, TILES, agrees

import treadle
from treadle import pipelines
from treadle.analysis.shares import Share
from treadle.dialects.tile import KernelOp
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.expr import constant
from treadle.sim.dispatch_level import evaluate_dispatches
from treadle.sim.schedule.program import run_program_scheduled


def split(convolution: Convolution, parts: int, merge: str = "kernel", step: int = 16) -> str:
    """Its text with so many parts asked for."""
    asked = f'treadle.split_reduction = #dispatch.split<r = "{parts}" step {step}, merge = {merge}>, dilations'
    return convolution.text().replace("{dilations", "{" + asked)


def judge(convolution: Convolution, text: str, target: str, **options: Any) -> list[KernelOp]:
    """Compile, prove, execute and compare; the kernels."""
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions(**options))
    arrays = convolution.arrays()
    report = run_program_scheduled(module, arrays, "late")
    assert report.ok, str(report)
    assert agrees(report.outputs[0], convolution, arrays), convolution
    return kernels(module)


def kernels(module: builtin.ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


@pytest.mark.parametrize("name", ["odd sides", "every second pixel", "channels in part", "few channels, filters first", "groups", "bias"])
@pytest.mark.parametrize("parts", [2, 5])
def test_shares_keep_the_form_with_roles(name: str, parts: int) -> None:
    first, *_ = judge(ROLES[name], split(ROLES[name], parts), "sm_90a")
    assert str(first.config).startswith("#tile.form<roles")


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_shares_that_threads_gather(name: str, target: str) -> None:
    """Kernels of a share read the filter as it stands: nothing of it is compared or selected."""
    first, *_ = judge(TILES[name], split(TILES[name], 3), target)
    assert str(first.config).startswith("#tile.form<tiles")


@pytest.mark.parametrize("merge", ["last", "cluster", "turnstile"])
@pytest.mark.parametrize("name", ["odd sides", "few channels, filters first", "bias"])
def test_parts_are_merged_in_the_launch(name: str, merge: str) -> None:
    assert len(judge(ROLES[name], split(ROLES[name], 4, merge), "sm_90a")) == 1


def test_a_window_of_one_pixel() -> None:
    """What is a matrix product in the end is split, too, and in no form that does not know of shares."""
    one = Convolution(NHWC, 1, (3, 5), 300, 3, (1, 1))
    judge(one, split(one, 3), "sm_90a")


def test_a_batch_of_the_runtime() -> None:
    judge(ROLES["batch at run time"], split(ROLES["batch at run time"], 3), "sm_90a")


def test_nothing_is_masked_within_a_share() -> None:
    module = parse_module(split(TILES["three channels"], 3), "test.mlir")
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions())
    first = kernels(module)[0]
    assert not [op for op in first.walk() if op.name == "arith.select" and "xf16>" in str(op.results[0].type)]


@pytest.mark.parametrize("parts", ['r = "2", r0 = "3"', 'r = "r0"'])
def test_what_cannot_be_asked_for(parts: str) -> None:
    text = ROLES["odd sides"].text().replace("{dilations", "{treadle.split_reduction = #dispatch.split<" + parts + ">, dilations")
    with pytest.raises(TreadleError, match="TR308"):
        pipelines.lower(parse_module(text, "test.mlir"), target_spec("sm_90a"), CompileOptions())


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("seed", range(12))
def test_random_splits(seed: int, target: str) -> None:
    random = Random(seed)
    convolution = replace(random_convolution(7000 + 100 * (target == "gfx942") + seed), tail="")
    merge = random.choice(["kernel", "last", "cluster", "turnstile"])
    text = split(convolution, random.randint(2, 9), merge, random.choice([1, 8, 64]))
    judge(convolution, text, target)


@pytest.mark.parametrize("seed", range(20))
def test_shares_of_an_axis_are_all_of_it(seed: int) -> None:
    random = Random(seed)
    count, step, size = random.randint(1, 9), random.choice([1, 16, 64]), random.randint(1, 3000)
    found = [tuple(e.evaluate({"p0": at}) for e in Share("p0", count).steps(constant(size), step)) for at in range(count)]
    assert [first for first, _ in found] == [sum(length for _, length in found[:at]) for at in range(count)]
    assert sum(length for _, length in found) == -(-size // step) * step
    assert max(length for _, length in found) - min(length for _, length in found) <= step


def test_every_level_computes_the_same() -> None:
    """The text says which terms a share has, so that the dispatch level is right without any kernel."""
    case = Convolution(NHWC, 1, (5, 6), 7, 3, (3, 2), low=(1, 0))
    program, arrays = treadle.compile(split(case, 4, step=8), target="sim"), case.arrays()
    assert agrees(np.asarray(program(*arrays)[0]), case, arrays)
    module = parse_module(split(case, 4, step=8), "test.mlir")
    run_passes(module, pipelines.tensor_passes(target_spec("sm_90a"), CompileOptions()))
    (found,) = evaluate_dispatches(module, arrays)
    assert agrees(np.asarray(found), case, arrays)
