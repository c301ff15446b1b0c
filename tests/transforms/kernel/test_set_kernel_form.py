"""set-kernel-form: the fastest form is taken, the others are told of, overrides are honoured, and candidates get lighter."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from generators.contractions import TARGETS, random_contraction
from hypothesis import given, settings
from hypothesis import strategies as st
from transforms.form_programs import problem_of, workload

from treadle.dialects import dispatch
from treadle.dialects.kernel_form import KernelFormAttr
from treadle.errors import TreadleError
from treadle.ir.passes import format_pass, parse_passes, run_passes
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions, ContractionOverrides
from treadle.pipelines import lower, tensor_passes
from treadle.remarks import Remark, collect_remarks
from treadle.tools.pass_runner import all_passes
from treadle.transforms.kernel.forms.form import FormConfig
from treadle.transforms.kernel.forms.registry import BY_NAME, FORMS, decided
from treadle.transforms.kernel.set_kernel_form import NAME, SetKernelFormPass, answers, candidates


def chosen(text: str, target: str = "sm_90a", **asked: Any) -> tuple[FormConfig, list[Remark]]:
    """The configuration of the last kernel, and what the pass said."""
    module = parse_module(text, "test.mlir")
    run_passes(module, tensor_passes())
    with collect_remarks() as log:
        run_passes(module, [SetKernelFormPass(target, overrides=ContractionOverrides(**asked))])
    kernel = [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)][-1]
    return decided(kernel), log.remarks


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_fastest_form_is_taken(seed: int) -> None:
    case = random_contraction(seed, targets=TARGETS)
    problem = problem_of(case.text, case.target)
    found = answers(problem)
    possible = [answer for answer in found if answer.choices]
    assert {answer.form.NAME for answer in found} == {form.NAME for form in FORMS if form.KIND == "contraction"}
    assert all(bool(answer.refusal) != bool(answer.choices) for answer in found)
    assert possible[0].choices[0].seconds == min(answer.choices[0].seconds for answer in possible)
    config, (*others, decision) = chosen(case.text, case.target)
    assert config == possible[0].choices[0].config and decision.kind == "decision" and "us modelled" in decision.text
    lost = [other.text for other in others if other.subject == decision.subject]
    assert all(f"{answer.form.NAME}: " in lost[-1] for answer in found if config.form != answer.form.NAME)


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=40, deadline=None)
def test_candidates_get_lighter_and_end(seed: int, is_pipelined: bool) -> None:
    case = random_contraction(seed, targets=TARGETS)
    problem = replace(problem_of(case.text, case.target), is_pipelined=is_pipelined)
    found = candidates(problem, answers(problem))
    configs = [choice.config for choice in found]
    assert 1 <= len(found) <= 10 and len(set(configs)) == len(configs)
    tiled = [choice for choice in found if choice.accumulators]
    for before, after in pairwise(tiled):
        assert after.is_light or 2 * after.accumulators <= before.accumulators or after.config == before.config.relieved(problem)
    # A form that is modelled slower may stand behind the tiles without matrix instructions.
    assert any(choice.config.attribute().data.values.get("instruction", "fma") == "fma" for choice in found)


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_configurations_are_attributes_that_print_and_parse(seed: int) -> None:
    case = random_contraction(seed, targets=TARGETS)
    module = parse_module(case.text, "test.mlir")
    run_passes(module, [*tensor_passes(), SetKernelFormPass(case.target)])
    printed = print_module(module)
    again = parse_module(printed, "again.mlir")
    assert print_module(again) == printed
    for before, after in zip(module.body.block.ops, again.body.block.ops, strict=True):
        if isinstance(before, dispatch.KernelOp) and isinstance(after, dispatch.KernelOp):
            assert decided(before) == decided(after)
            assert isinstance(after.attributes["config"], KernelFormAttr)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_form_has_defaults_that_stay_out_of_the_text(name: str) -> None:
    config = BY_NAME[name].Config()
    assert str(config.attribute()) == f"#tile.form<{name}>" and config == type(config).of(config.attribute().data)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#tile.form<nothing>", "there is no kernel form 'nothing'"),
        ("#tile.form<tiles, width = 3>", "has no 'width' of this kind"),
        ("#tile.form<tiles, tile = 3>", "has no 'tile' of this kind"),
        ("#tile.form<tiles, group_m = 1, group_m = 2>", "'group_m' is there twice"),
    ],
)
def test_what_no_form_knows_is_an_error(text: str, why: str) -> None:
    module = parse_module(workload(300, 200, 128).text, "test.mlir")
    run_passes(module, [*tensor_passes(), SetKernelFormPass("sm_90a", overrides=ContractionOverrides(form="tiles"))])
    printed = print_module(module)
    begin = printed.index("#tile.form<")
    with pytest.raises(TreadleError, match=why):
        changed = parse_module(printed[:begin] + text + printed[printed.index(">", begin) + 1 :], "again.mlir")
        decided(next(op for op in changed.walk() if isinstance(op, dispatch.KernelOp)))


@pytest.mark.parametrize(
    ("m", "n", "k", "form", "kind"),
    [
        (1, 6144, 4096, "streaming", "streamed"),
        (
            16,
            6144,
            4096,
            "swapped",
            "swapped operands: the large one on the instruction's side of 64, 48 rows a tile, 128 tiles for 132 units",
        ),
        (16, 4096, 14336, "swapped", "64 rows a tile, 64 tiles for 132 units; tile 64x16x128, a ring of 8 stages"),
        (8, 28672, 4096, "swapped", "56 rows a tile, 512 tiles for 132 units"),
        (65, 4096, 4096, "exchanged", "contraction 4096x65x4096"),
        (128, 4096, 4096, "roles", "consumer warpgroups"),
        (1, 1000, 4099, "streaming", "streamed"),
        (333, 222, 111, "roles", "consumer warpgroups"),
        (2, 30, 40, "streaming", "streamed"),
        (9, 30, 40, "swapped", "64 rows a tile, 1 tiles"),
    ],
)
def test_the_form_follows_the_sizes(m: int, n: int, k: int, form: str, kind: str) -> None:
    config, remarks = chosen(workload(m, n, k).text)
    assert config.form == form and kind in remarks[-1].text


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        ({}, "swapped"),
        ({"form": "tiles"}, "tiles"),
        ({"form": "roles"}, "roles"),
        ({"form": "streaming"}, "streaming"),
        ({"roles": False}, "tiles"),
        ({"tile": (64, 64, 64)}, "tiles"),
        ({"tile": (64, 64, 64), "num_stages": 3}, "roles"),
        ({"tile": (64, 64, 64), "num_stages": 3, "roles": False}, "tiles"),
    ],
)
def test_overrides_name_or_imply_a_form(asked: dict[str, Any], form: str) -> None:
    config, remarks = chosen(workload(16, 6144, 4096).text, **asked)
    assert config.form == form
    if "form" in asked:
        assert [remark.kind for remark in remarks] == ["decision"], "no other form was asked"


def test_a_form_that_refuses_gives_way_and_says_why() -> None:
    config, (lost, decision) = chosen(workload(300, 200, 129).text, form="swapped")
    assert config.form == "roles" and "tile " in decision.text
    assert "swapped: neither side is known to have at most 64" in lost.text and lost.kind == "refusal"


def test_a_configuration_that_is_there_is_left_alone() -> None:
    module = parse_module(workload(300, 200, 128).text, "test.mlir")
    run_passes(module, [*tensor_passes(), SetKernelFormPass("sm_90a", overrides=ContractionOverrides(tile=(64, 64, 32)))])
    before = print_module(module)
    with collect_remarks() as log:
        run_passes(module, [SetKernelFormPass("sm_90a")])
    assert print_module(module) == before and not log.remarks


def test_overrides_are_options_of_the_pass() -> None:
    text = "set-kernel-form{target=sm_90a,form=roles,tile=64:128:64,num-stages=3,deferred-store=true,is-pipelined=true}"
    (item,) = parse_passes(text, all_passes())
    asked = ContractionOverrides(form="roles", tile=(64, 128, 64), num_stages=3, deferred_store=True)
    assert item == SetKernelFormPass("sm_90a", overrides=asked, is_pipelined=True)
    assert format_pass(item) == text
    with pytest.raises(TreadleError, match="no such option"):
        parse_passes("set-kernel-form{target=sm_90a,overrides=1}", all_passes())
    with pytest.raises(TreadleError, match="expected one of"):
        parse_passes("set-kernel-form{target=sm_90a,form=nothing}", all_passes())


def test_compile_options_are_the_overrides_and_more() -> None:
    options = CompileOptions(tile=(64, 64, 64), num_stages=4, f32_precision="tf32")
    assert options.overrides == ContractionOverrides(tile=(64, 64, 64), num_stages=4)
    assert isinstance(options, ContractionOverrides) and options != options.overrides
    assert "num_stages=4" in options.key() and "f32_precision='tf32'" in options.key()


def test_the_whole_way_names_the_form_once() -> None:
    module = parse_module(workload(300, 200, 128).text, "test.mlir")
    with collect_remarks() as log:
        lower(module, target_spec("sm_90a"), CompileOptions(), until="tile")
    assert [remark.kind for remark in log.remarks if remark.pass_name == NAME] == ["refusal", "decision"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", ["1x1x1", "1x1x40", "3x1x1"])
def test_products_without_an_axis_of_their_own(shape: str, target: str) -> None:
    """Of one row, of one element, or of none that is more than one: no operand lies along what is not there."""
    batch, _, k = shape.split("x")
    a, b, c = f"tensor<{batch}x1x{k}xf32>", f"tensor<{batch}x{k}x1xf32>", f"tensor<{batch}x1x1xf32>"
    text = f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %0 = linalg.batch_matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %0 : {c}
}}"""
    module = parse_module(text, "test.mlir")
    lower(module, target_spec(target), CompileOptions())
