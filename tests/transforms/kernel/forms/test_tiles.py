"""The form tiles: any contraction, tiles of whole instructions, ever lighter ones behind the best."""

import math
from dataclasses import replace

import pytest
from generators.contractions import TARGETS, ContractionCase, random_contraction
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transforms.form_programs import assert_right, kernel_of, lowered, problem_of, workload

from treadle.analysis.kernel_problem import KernelProblem
from treadle.machine import target_spec
from treadle.options import CompileOptions, ContractionOverrides
from treadle.transforms.kernel.forms import tiles
from treadle.transforms.kernel.set_kernel_form import answers, candidates


def best(problem: KernelProblem) -> tiles.Config:
    config = tiles.decide(problem)[0].config
    assert isinstance(config, tiles.Config)
    return config


@given(st.integers(0, 10_000))
@example(560)
@settings(max_examples=25, deadline=None)
def test_every_contraction_has_tiles(seed: int) -> None:
    """Nothing is refused; times are times; the last needs no matrix instruction and few registers."""
    case = random_contraction(seed, targets=TARGETS)
    problem = problem_of(case.text, case.target)
    assert tiles.refusal(problem) is None
    found = tiles.decide(problem)
    configs = [choice.config for choice in found if isinstance(choice.config, tiles.Config)]
    assert all(0 < choice.seconds < math.inf for choice in found) and len(configs) == len(found)
    assert configs[-1].instruction == "fma" and configs[-1].tile[0] * configs[-1].tile[1] <= 128 * 128
    assert all(config.num_warps * problem.spec.subgroup_size <= problem.spec.max_threads_per_workgroup for config in configs)


def test_a_tile_that_spreads_its_copies_is_tried_without() -> None:
    """Next, where registers do not suffice."""
    problem = problem_of(ContractionCase(83, 96, 4096, "f32", "nt", "f32").text)
    found = list(tiles.decide(problem))
    configs = [choice.config for choice in found if isinstance(choice.config, tiles.Config)]
    spread = [number for number, config in enumerate(configs) if config.spreads_copies]
    assert spread
    for number in spread:
        assert configs[number + 1] == replace(configs[number], spreads_copies=False) and found[number + 1].is_light


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
def test_the_last_tile_of_multiply_adds_has_the_fewest_accumulators(dtype: str) -> None:
    """Few enough that candidates come to it."""
    problem = problem_of(ContractionCase(848, 77, 33, dtype, "tn", dtype).text)
    assert problem.multiplies_pieces
    *others, last = [choice.accumulators for choice in tiles.decide(problem)]
    assert last <= min(others) / 2
    assert candidates(problem, answers(problem))[-1].accumulators == last


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8"])
@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_tiles_are_made_of_instructions(target: str, dtype: str) -> None:
    config = best(problem_of(workload(1000, 520, 264, dtype, kn=True).text, target))
    row = target_spec(target).instruction(config.instruction)
    assert row.a_type == row.b_type == dtype
    m, _, k = config.tile
    assert k % row.k == 0 and m % (row.m * config.warps[0] // row.warps) == 0


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_more_arithmetic_takes_no_less_time(dtype: str, target: str) -> None:
    # Rows of whole 16 bytes: what begins inside sectors takes longer to store.
    sizes = [(m, n, k) for m in (100, 999, 4096) for n in (136, 2040) for k in (64, 1000, 8192)]
    times = {size: tiles.decide(problem_of(workload(*size, dtype).text, target))[0].seconds for size in sizes}
    for size, seconds in times.items():
        assert all(seconds <= later for other, later in times.items() if all(a <= b for a, b in zip(size, other, strict=True)))


def test_a_named_tile_is_taken_as_it_is() -> None:
    asked = ContractionOverrides(tile=(64, 96, 32), warps=(4, 1), group_m=3)
    problem = problem_of(workload(300, 200, 128).text, overrides=asked)
    (choice,) = tiles.decide(problem)
    config = best(problem)
    assert choice.config == config and (config.tile, config.warps, config.group_m) == ((64, 96, 32), (4, 1), 3)
    part = best(problem_of(workload(300, 200, 128).text, overrides=ContractionOverrides(tile=(64,))))
    assert part.tile[0] == 64 and all(extent > 0 for extent in (*part.tile, *part.warps))


def test_persistence() -> None:
    text, units = workload(2048, 2048, 128).text, target_spec("sm_90a").compute_units
    assert best(problem_of(text)).workgroups == best(problem_of(text, overrides=ContractionOverrides(persistent="never"))).workgroups == 0
    many = best(problem_of(text, overrides=ContractionOverrides(persistent="always"))).workgroups
    assert many > 0 and many % units == 0


def test_promoted_accumulators_are_those_of_matrix_units_that_cut() -> None:
    text = workload(256, 256, 512, "f8E4M3FN").text
    promoted = problem_of(text, fp8_accumulation="promoted")
    assert best(promoted).is_promoted and not best(problem_of(text)).is_promoted
    assert not tiles.decide(promoted)[-1].config.is_promoted  # type: ignore[attr-defined]
    assert not best(problem_of(text, "gfx942", fp8_accumulation="promoted")).is_promoted


def test_relieved_configurations_do_not_overlap_iterations() -> None:
    problem = problem_of(workload(300, 200, 128).text)
    config = best(problem)
    assert config.relieved(problem) == replace(config, is_drained=True)
    assert config.relieved(replace(problem, is_pipelined=True)) == replace(config, is_drained=True, is_sequential=True)
    amd = problem_of(workload(300, 200, 128).text, "gfx942")
    assert best(amd).relieved(amd) == best(amd)


@pytest.mark.parametrize(
    ("m", "n", "k", "options"), [(77, 45, 72, {}), (70, 130, 200, {"persistent": "always"}), (33, 65, 40, {"group_m": 2})]
)
@pytest.mark.parametrize("target", ["sm_90a", "gfx1100"])
def test_what_is_built_computes_the_right_values(m: int, n: int, k: int, options: dict[str, str | int], target: str) -> None:
    work = workload(m, n, k)
    module, said = lowered(work.text, target, CompileOptions(form="tiles", **options))  # type: ignore[arg-type]
    assert "tile " in said and kernel_of(module).groups is None
    assert_right(work, module, 1)
