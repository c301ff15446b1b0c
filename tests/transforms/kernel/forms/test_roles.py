"""The form roles: why a contraction has none, what is chosen where it has, and what overrides change."""

from typing import Any

import pytest
from generators.contractions import random_contraction
from hypothesis import given, settings
from hypothesis import strategies as st
from transforms.form_programs import assert_right, lowered, problem_of, workload

from treadle.analysis.kernel_problem import KernelProblem
from treadle.bench import families
from treadle.dialects import sync
from treadle.machine import target_spec
from treadle.options import CompileOptions, ContractionOverrides
from treadle.remarks import collect_remarks
from treadle.transforms.kernel.forms import roles

SCALED = """
func.func @f(%a: tensor<256x128xf16>, %s: tensor<256x128xf16>, %b: tensor<128x256xf16>) -> tensor<256x256xf32> {
  %ea = tensor.empty() : tensor<256x128xf16>
  %x = linalg.mul ins(%a, %s : tensor<256x128xf16>, tensor<256x128xf16>) outs(%ea : tensor<256x128xf16>) -> tensor<256x128xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = linalg.matmul ins(%x, %b : tensor<256x128xf16>, tensor<128x256xf16>) outs(%z : tensor<256x256xf32>) -> tensor<256x256xf32>
  return %c : tensor<256x256xf32>
}
"""


def product(m: int, n: int, k: int, dtype: str = "bf16") -> str:
    return workload(m, n, k, dtype, kn=True).text


def best(problem: KernelProblem) -> roles.Config:
    config = roles.decide(problem)[0].config
    assert isinstance(config, roles.Config)
    return config


@pytest.mark.parametrize(
    ("text", "target", "asked", "why"),
    [
        (product(257, 264, 136), "sm_90a", {}, None),
        (product(256, 256, 129), "sm_90a", {}, None),
        (product(256, 257, 128), "sm_90a", {}, None),
        (product(256, 256, 128), "gfx942", {}, "the machine has no bulk copies"),
        (product(256, 256, 128, "f32"), "sm_90a", {}, "the machine has no bulk copies into buffers that its matrix instructions read"),
        (SCALED, "sm_90a", {}, "operand m is computed inside the kernel"),
        (product(256, 256, 128), "sm_90a", {"roles": False}, "roles are turned off"),
        (product(256, 256, 128), "sm_90a", {"tile": (64, 64, 64)}, "without the stages of a ring"),
        (product(256, 256, 128), "sm_90a", {"tile": (64, 64, 64), "num_stages": 3}, None),
    ],
)
def test_refusals(text: str, target: str, asked: dict[str, Any], why: str | None) -> None:
    said = roles.refusal(problem_of(text, target, ContractionOverrides(**asked)))
    assert said is None if why is None else said is not None and why in said


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_choices_fit_the_machine_and_get_lighter(seed: int) -> None:
    case = random_contraction(seed, targets=("sm_90a",))
    problem = problem_of(case.text)
    if roles.refusal(problem) is not None:
        return
    found = roles.decide(problem)
    assert len(found) <= 3 and all(choice.seconds > 0 for choice in found)
    for choice in found:
        config = choice.config
        assert isinstance(config, roles.Config)
        slot = problem.shape.operand_rows(config.tile[0] * config.groups, config.tile[1]) * config.tile[2] * problem.types.operand_bytes
        assert config.num_stages >= 2 and config.num_stages * slot < problem.spec.shared_bytes_per_workgroup
    assert [choice.accumulators for choice in found] == sorted((choice.accumulators for choice in found), reverse=True)


def test_more_arithmetic_takes_no_less_time() -> None:
    sizes = [(m, n, k) for m in (200, 1000, 4096) for n in (136, 2040) for k in (64, 1000, 8192)]
    times = {size: roles.decide(problem_of(product(*size)))[0].seconds for size in sizes}
    for size, seconds in times.items():
        assert all(seconds <= later for other, later in times.items() if all(a <= b for a, b in zip(size, other, strict=True)))


def test_a_named_tile_is_taken_as_it_is() -> None:
    asked = ContractionOverrides(tile=(64, 96, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=2, ping_pong=2, steps_in_flight=1)
    config = best(problem_of(product(300, 200, 128), overrides=asked))
    assert (config.tile, config.warps, config.num_stages, config.groups) == ((64, 96, 64), (4, 1), 3, 2)
    assert (config.ping_pong, config.steps_in_flight, config.deferred_store, config.cluster) == (2, 1, False, 1)


def test_overrides_change_the_compilers_own_tile() -> None:
    text = product(4096, 4096, 1024)
    usual, cluster = best(problem_of(text)), best(problem_of(text, overrides=ContractionOverrides(cluster=2, group_m=4, num_stages=2)))
    assert (usual.cluster, cluster.cluster, cluster.group_m, cluster.num_stages) == (1, 2, 4, 2)
    assert cluster.tile == usual.tile
    asked = ContractionOverrides(tile=(64, 64, 64), num_stages=2, cluster=2)
    (odd,) = roles.decide(problem_of(product(64 * 3, 4096, 1024), overrides=asked))
    assert isinstance(odd.config, roles.Config)
    assert odd.config.cluster == 1, "three rows of tiles are no whole clusters"
    assert odd.text.endswith("; no clusters: tiles make no whole ones")


@pytest.mark.parametrize(("persistent", "count"), [("auto", 132), ("always", 132), ("never", 0)])
def test_persistence(persistent: Any, count: int) -> None:
    assert target_spec("sm_90a").compute_units == 132
    assert best(problem_of(product(2048, 2048, 128), overrides=ContractionOverrides(persistent=persistent))).workgroups == count


@pytest.mark.parametrize(
    ("n", "changed", "why"),
    [
        (2552, {}, ""),
        (2816, {}, "do not fill the last round"),
        (2552, {"deferred_store": False}, "stores are not deferred"),
        (2552, {"persistent": "never"}, "do not take tiles in turn"),
    ],
)
def test_tiles_of_a_second_width_or_why_there_are_none(n: int, changed: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"num_stages": 3, "consumer_warpgroups": 2, "deferred_store": True, "tail_tile_n": 112}
    asked = ContractionOverrides(tile=(64, 128, 64), warps=(4, 1), **{**usual, **changed})
    (choice,) = roles.decide(problem_of(product(1530, n, 136), overrides=asked))
    config = choice.config
    assert isinstance(config, roles.Config) and (config.mixed_widths is not None) == (not why)
    assert why in choice.text and ("no tiles of 112 columns" in choice.text) == bool(why)


@pytest.mark.parametrize(("m", "n", "k"), [(70, 136, 72), (200, 72, 200)])
def test_what_is_built_computes_the_right_values(m: int, n: int, k: int) -> None:
    work = workload(m, n, k, "bf16")
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="roles"))
    assert "fed through" in said and any(op.name == "pipe.roles" for op in module.walk())
    assert_right(work, module)


def beside(read: str, map_: str, *, initial: bool = False) -> str:
    """A product and a matrix that is read beside it, or that its sums start from."""
    start = "%r" if initial else "%z"
    more = (
        ""
        if initial
        else f""", %r : tensor<256x256xf32>, tensor<{read}>) outs(%e : tensor<256x256xf32>) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  }} -> tensor<256x256xf32>"""
    )
    maps = f"[affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> {map_}>, affine_map<(m, n) -> (m, n)>]"
    tail = "" if initial else f'  %d = linalg.generic {{indexing_maps = {maps}, iterator_types = ["parallel", "parallel"]}} ins(%c{more}\n'
    return f"""
func.func @f(%a: tensor<256x128xf16>, %b: tensor<128x256xf16>, %r: tensor<{read}>) -> tensor<256x256xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = linalg.matmul ins(%a, %b : tensor<256x128xf16>, tensor<128x256xf16>) outs({start} : tensor<256x256xf32>) -> tensor<256x256xf32>
{tail}  return {"%c" if initial else "%d"} : tensor<256x256xf32>
}}
"""


@pytest.mark.parametrize(
    ("text", "in_bulk"),
    [
        (beside("256x256xf32", "(m, n)"), [True]),
        (beside("256x256xf32", "(n, m)"), [True]),
        (families.beside("w", "t", "linear_residual", 256, 260, 128, "bf16").text, [False]),
        (beside("256xf32", "(n)"), []),
        (beside("256x256xf32", "", initial=True), [False]),
    ],
    ids=["rows", "columns", "pitch", "vector", "initial"],
)
def test_what_the_epilogue_reads(text: str, in_bulk: list[bool]) -> None:
    results = problem_of(text, "sm_90a").role_problem.results
    assert [result.in_bulk for result in results if result.is_read] == in_bulk


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (8192, 640, 640), (2048, 2080, 512), (4000, 4104, 520), (1000, 72, 2048)])
def test_rings_that_the_model_plans_beside_what_is_read_fit(size: tuple[int, int, int]) -> None:
    for kind in ("linear_residual", "linear_gate"):
        with collect_remarks() as log:
            lowered(families.beside("w", "t", kind, *size, "bf16").text, "sm_90a", CompileOptions(tuned=False))
        assert not [remark.text for remark in log.remarks if "stages instead of" in remark.text]


@pytest.mark.parametrize(("k", "parts", "groups"), [(1000, 3, 1), (704, 2, 1), (704, 2, 2)])
def test_steps_of_parts_run_under_one_another_where_one_group_computes(k: int, parts: int, groups: int) -> None:
    """One group of consumers issues the next step's instructions before it waits for the last one's; two wait in turn."""
    work = workload(60, 72, k, kn=True)
    asked = f'linalg.generic {{treadle.split_reduction = #dispatch.split<r0 = "{parts}" step 64>, '
    pair: dict[str, Any] = {"tile": (64, 64, 64), "warps": (4, 1), "num_stages": 4, "consumer_warpgroups": 2} if groups == 2 else {}
    module, said = lowered(work.text.replace("linalg.generic {", asked, 1), "sm_90a", CompileOptions(form="roles", **pair))
    assert f"{groups} consumer warpgroups" in said
    waits = [op.pending.value.data for op in module.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "wgmma"]
    assert (1 in waits) == (groups == 1)
    assert_right(work, module)


def test_small_slots_are_many() -> None:
    """As many bytes in flight as larger ones have; no more slots than a long tile has steps."""
    deep, short = best(problem_of(product(60, 72, 16384))), best(problem_of(product(60, 72, 512)))
    assert deep.num_stages > 8 >= short.num_stages and deep.steps_in_flight == 1


@pytest.mark.parametrize(("form", "n"), [("roles", 160), ("roles", 192), ("exchanged", 144)])
def test_tall_tiles_of_more_accumulators(form: Any, n: int) -> None:
    """Groups of 128 rows with up to 192 accumulators a thread: boxes leave through one buffer, so that three slots fit beside it."""
    work = workload(264, 200, 136) if form == "roles" else workload(200, 264, 136)
    asked = CompileOptions(form=form, tile=(128, n, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=2)
    with collect_remarks() as log:
        module, said = lowered(work.text, "sm_90a", asked)
    assert f"tile 128x{n}x64" in said
    assert not [remark.text for remark in log.remarks if "stages instead of" in remark.text]
    assert_right(work, module)
