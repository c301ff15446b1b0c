"""The form exchanged: what it refuses, and that what it builds computes the right values, whole and in parts, in every layout."""

from dataclasses import replace
from typing import Any

import pytest
from transforms.form_programs import assert_right, lowered, problem_of, workload

from treadle.bench.families import beside, epilogue
from treadle.bench.suite import find
from treadle.bench.workload import Workload
from treadle.dialects import tile
from treadle.options import CompileOptions, ContractionOverrides, Form
from treadle.transforms.kernel.forms import exchanged, roles
from treadle.transforms.kernel.set_kernel_form import answers


def _in_layout(name: str) -> Workload:
    found = find(name)
    assert found is not None
    return found


def _in_parts(work: Workload, count: int, merge: str) -> Workload:
    at = "{indexing_maps = [affine_map<(m, n, k)"
    assert at in work.text
    asked = f'{{treadle.split_reduction = #dispatch.split<r0 = "{count}" step 64, merge = {merge}>, {at[1:]}'

    def write(rows: int, columns: int) -> str:
        return work.write(rows, columns).replace(at, asked, 1)

    return replace(work, write=write)


@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", ["72x136x200", "80x264x72", "16x72x136"])
def test_layouts(layouts: str, size: str) -> None:
    work = _in_layout(f"gemm-f16-{layouts}-{size}")
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="exchanged"))
    assert "operands exchanged" in said
    m, n, k = size.split("x")
    assert f"contraction {n}x{m}x{k}" in said
    assert any(op.name == "pipe.roles" for op in module.walk())
    assert_right(work, module)


@pytest.mark.parametrize("columns", [40, 88, 120, 168])
@pytest.mark.parametrize("layouts", ["nt", "nn"])
def test_widths_that_are_odd_multiples_of_8(layouts: str, columns: int) -> None:
    work = _in_layout(f"gemm-f16-{layouts}-{2 * columns - 16}x136x200")
    asked = CompileOptions(form="exchanged", tile=(64, columns, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=2)
    module, said = lowered(work.text, "sm_90a", asked)
    assert "operands exchanged" in said and f"tile 64x{columns}x64" in said
    assert_right(work, module)


@pytest.mark.parametrize("merge", ["last", "cluster", "kernel"])
@pytest.mark.parametrize(("layouts", "groups"), [("nt", 1), ("nn", 2)])
def test_parts(merge: str, layouts: str, groups: int) -> None:
    work = _in_parts(_in_layout(f"gemm-bf16-{layouts}-72x136x264"), 4, merge)
    asked = CompileOptions(form="exchanged", tile=(64, 80, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=groups)
    module, said = lowered(work.text, "sm_90a", asked)
    assert "operands exchanged" in said
    assert ("merge" in said) == (merge != "kernel")
    assert_right(work, module)


@pytest.mark.parametrize("merge", ["cluster", "turnstile"])
@pytest.mark.parametrize("form", ["roles", "exchanged"])
def test_parts_that_are_merged_otherwise_are_in_no_clusters_that_share_operands(form: Form, merge: str) -> None:
    """A cluster has the parts of a tile, or workgroups wait for their turn. Tiles that would make whole clusters are not there either."""
    work = _in_parts(_in_layout("gemm-bf16-nt-56x328x520"), 4, merge)
    asked = CompileOptions(form=form, tile=(64, 64, 64), warps=(4, 1), num_stages=3, cluster=2, group_m=1)
    module, said = lowered(work.text, "sm_90a", asked)
    assert "no clusters that share operands, as parts are merged" in said
    assert_right(work, module)


@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("merge", "count", "rows"), [("last", 2, True), ("last", 4, False), ("kernel", 2, False), ("kernel", 4, True)])
def test_clusters_of_parts_share_operands(layouts: str, merge: str, count: int, rows: bool) -> None:
    """Parts of unequal length, tiles beyond the result: neighbours of one part fetch their rows or columns once."""
    form: Form = "exchanged" if layouts in ("tt", "nn") else "roles"
    work = _in_parts(_in_layout(f"gemm-f16-{layouts}-136x136x328"), 3, merge)
    asked = CompileOptions(form=form, tile=(64, 64, 64), warps=(4, 1), num_stages=3, cluster=count, group_m=1 if rows else count)
    module, said = lowered(work.text, "sm_90a", asked)
    assert f"clusters of {count} share {'rows of A' if rows else 'columns of B'}" in said
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert kernel.cluster_size() == count
    assert_right(work, module)


@pytest.mark.parametrize(("layouts", "form"), [("tn", "exchanged"), ("nn", "roles")])
@pytest.mark.parametrize(("columns", "count"), [(96, 2), (96, 4), (128, 4), (160, 2)])
def test_clusters_share_rows_along_k_of_each_span(layouts: str, form: Form, columns: int, count: int) -> None:
    """Where an operand lies along the result's columns, each brings some rows of each span of a swizzle."""
    m, n = 392, columns + 8
    work = _in_layout(f"gemm-f16-{layouts}-{n}x{m}x200" if form == "exchanged" else f"gemm-f16-{layouts}-{m}x{n}x200")
    asked = CompileOptions(form=form, tile=(64, columns, 64), warps=(4, 1), num_stages=2, cluster=count, group_m=count)
    module, said = lowered(work.text, "sm_90a", asked)
    assert f"clusters of {count} share columns of B" in said
    copies = [op for op in module.walk() if isinstance(op, tile.CopyOp) and op.multicast_ranks()]
    span = 64 if columns % 64 == 0 else 32
    assert [tile.memref_type(op.destination).get_shape() for op in copies] == [(64 // count, span)] * (columns // span)
    assert_right(work, module)


@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("merge", "count", "along_n"), [("", 4, 2), ("", 8, 4), ("last", 4, 2), ("kernel", 8, 2)])
def test_clusters_that_share_both_operands(layouts: str, merge: str, count: int, along_n: int) -> None:
    """Ragged tiles, parts of unequal length, tiles beyond the result on both sides."""
    form: Form = "exchanged" if layouts in ("tt", "nn") else "roles"
    work = _in_layout(f"gemm-f16-{layouts}-136x328x200")
    work = _in_parts(work, 3, merge) if merge else work
    walked = count // along_n
    asked = CompileOptions(form=form, tile=(64, 64, 64), warps=(4, 1), num_stages=3, cluster=count, cluster_n=along_n, group_m=walked)
    module, said = lowered(work.text, "sm_90a", asked)
    assert f"clusters of {walked} x {along_n} share columns of B and rows of A" in said
    assert_right(work, module)


def test_tiles_in_turn() -> None:
    work = workload(80, 136 * 64 + 8, 72)
    asked = CompileOptions(form="exchanged", tile=(64, 80, 64), warps=(4, 1), num_stages=3)
    module, said = lowered(work.text, "sm_90a", asked)
    assert "operands exchanged" in said
    assert_right(work, module, 1)


def test_epilogues() -> None:
    work = epilogue("test", "test", "linear_bias_gelu", 80, 136, 72, "f16")
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="exchanged"))
    assert "operands exchanged" in said
    assert_right(work, module, 1)


@pytest.mark.parametrize(
    ("m", "n", "k", "target", "asked", "why"),
    [
        (80, 4096, 4096, "sm_90a", {}, None),
        (80, 4096, 4097, "sm_90a", {}, "a pitch of 4097 elements"),
        (8192, 8192, 4096, "sm_90a", {}, "the result is large"),
        (8192, 8192, 4096, "sm_90a", {"form": "exchanged"}, None),
        (80, 4096, 4096, "gfx942", {}, "the machine has no bulk copies"),
        (80, 4096, 4096, "sm_90a", {"roles": False}, "roles are turned off"),
        (80, 4096, 4096, "sm_90a", {"tile": (64, 64, 64)}, "a tile is asked for"),
    ],
)
def test_refusals(m: int, n: int, k: int, target: str, asked: dict[str, Any], why: str | None) -> None:
    said = exchanged.refusal(problem_of(workload(m, n, k).text, target, overrides=ContractionOverrides(**asked)))
    assert said is None if why is None else said is not None and why in said


@pytest.mark.parametrize(
    ("name", "form"), [("nn-1408x2176x7360", "roles"), ("nt-272x7000x4120", "exchanged"), ("nt-72x3176x904", "exchanged")]
)
def test_it_is_taken_where_it_is_clearly_faster(name: str, form: str) -> None:
    assert form == answers(problem_of(_in_layout(f"gemm-bf16-{name}").text))[0].form.NAME


def test_what_lies_as_the_result_is_not_exchanged() -> None:
    work = beside("test", "test", "linear_residual", 80, 136, 72, "f16")
    said = exchanged.refusal(problem_of(work.text))
    assert said is not None
    assert "a matrix is read besides the operands" in said


@pytest.mark.parametrize(
    ("name", "form"), [("1x238x168x1536-64-k5", "exchanged"), ("15x69x237x592-24-k5-s2", "roles"), ("4x121x61x64-128-k4-p2", "roles")]
)
def test_convolutions_take_it_where_it_is_faster(name: str, form: str) -> None:
    assert form == answers(problem_of(_in_layout(f"conv-f16-{name}").text))[0].form.NAME


def test_shares_of_a_window_are_not_exchanged() -> None:
    asked = CompileOptions(form="exchanged", split_reduction="3")
    module, said = lowered(_in_layout("conv-f16-2x9x7x192-24-k3").text, "sm_90a", asked)
    assert "operands exchanged" not in said
    assert any(op.name == "pipe.roles" for op in module.walk())


def test_times_are_those_of_the_rates_whatever_was_asked_before() -> None:
    """Searches and facts of a kernel are kept: of another product's rates, or of the exchanged operands, there are others."""
    problem = problem_of(workload(360, 1000, 4096).text)
    spec = problem.spec
    dear = replace(spec.rates, roles=replace(spec.rates.roles, epilogue_clocks=2 * spec.rates.roles.epilogue_clocks))
    assert problem.exchanged.spec is spec
    slow = problem.on_product(replace(spec, product=replace(spec.product, fitted=dear)))
    times = [form.decide(each)[0].seconds for each in (problem, slow, problem) for form in (roles, exchanged)]
    assert times[:2] == times[4:]
    assert times[2] > times[0]
    assert times[3] > times[1]
    again = replace(problem, nest=problem.exchanged.nest)
    assert again.memory_bytes == problem.exchanged.memory_bytes == problem.memory_bytes
    assert replace(problem.exchanged).role_problem == problem.exchanged.role_problem != problem.role_problem
