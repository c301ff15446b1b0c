"""Grouped contractions: one kernel for groups of different sizes, with roles where machines have them, and as many tiles as there are."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import pytest
from generators.grouped_contractions import diagonal_text, grouped_text, routed_text
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transforms.form_programs import kernel_of, lowered, problem_of

import treadle
from treadle.dialects import pipe, tile
from treadle.driver import trace
from treadle.ir.dialects import arith, builtin, scf
from treadle.machine import target_spec
from treadle.options import CompileOptions, Form, Persistence
from treadle.plan.tile_config import ContractionShape
from treadle.sim.check import check
from treadle.sim.element_types import storage_dtype
from treadle.sim.schedule import run_program_scheduled

EXPERTS = (611, 1024, 37, 2048, 300, 129, 1500, 77)


def operands(rows: Sequence[int], n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(len(rows) + n)
    x = random.standard_normal((sum(rows), k)).astype(np.float16)
    w = random.standard_normal((len(rows), k, n)).astype(np.float16)
    ends = [0, *np.cumsum(rows)]
    parts = [x[low:high].astype(np.float64) @ w[g].astype(np.float64) for g, (low, high) in enumerate(pairwise(ends))]
    return x, w, np.concatenate(parts)


@pytest.mark.parametrize(
    ("rows", "n", "k", "persistent"),
    [
        ((100, 37, 200, 5), 64, 96, "auto"),
        ((1, 129, 64), 72, 130, "auto"),
        ((70, 300, 3), 200, 72, "always"),
        ((64, 0, 65), 64, 64, "auto"),
        ((0, 0, 65, 0, 130, 0), 64, 64, "never"),
        ((3, 1, 65, 1), 72, 200, "always"),
        ((3, 1, 65, 1, 130, 2), 72, 200, "auto"),
        ((131,), 64, 64, "auto"),
    ],
)
def test_groups_of_any_size_are_one_kernel(rows: tuple[int, ...], n: int, k: int, persistent: Persistence) -> None:
    module, said = lowered(grouped_text(rows, n, k), "sm_90a", CompileOptions(persistent=persistent))
    assert "fed through" in said
    assert [op for op in kernel_of(module).walk() if isinstance(op, pipe.RolesOp)]
    x, w, want = operands(rows, n, k)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, [x, w], mode, 1)
        assert report.ok, str(report)
        assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 150), min_size=1, max_size=7).filter(any),
    st.tuples(st.integers(1, 80), st.integers(1, 80)),
    st.sampled_from([("sim", "f32"), ("sim", "f16"), ("sm_90a", "f16"), ("gfx942", "f16"), ("gfx1201", "bf16")]),
    st.sampled_from(["auto", "always", "never"]),
)
@example([33, 33], (1, 1), ("sim", "f32"), "auto").via("tiles that end with a group, which begins within the array")
@example([70, 70], (45, 40), ("sm_90a", "f32"), "auto").via("the same")
def test_any_list(rows: list[int], extents: tuple[int, int], how: tuple[str, str], persistent: Persistence) -> None:
    """Schedules are proven where they are made."""
    (n, k), (target, dtype) = extents, how
    random = np.random.default_rng(sum(rows))
    text = grouped_text(rows, n, k, dtype)
    program = treadle.compile(text, target="sim", options=CompileOptions(persistent=persistent))
    x, w = (random.standard_normal(shape).astype(dtype_of(dtype)) for shape in ((sum(rows), k), (len(rows), k, n)))
    if dtype == "bf16":
        x, w = x.astype(storage_dtype(builtin.bf16)), w.astype(storage_dtype(builtin.bf16))
    (want,) = program.reference(x, w)
    if target == "sim":
        found = np.asarray(program(x, w)[0])
    else:
        module, _ = lowered(text, target, CompileOptions(persistent=persistent))
        report = run_program_scheduled(module, [x, w], "random", 1)
        assert report.ok, str(report)
        found = report.outputs[0]
    assert (verdict := check(found, want)).ok, verdict


def rows_of_tiles(said: str) -> tuple[int, int]:
    """Rows and columns of a workgroup's tile, as the decision tells it."""
    ((m, n),) = re.findall(r"tile (\d+)x(\d+)x", said)
    groups = re.findall(r"(\d) consumer warpgroups", said)
    sets = 2 if "in ping-pong" in said else 1
    rows, columns = int(m) * int(groups[0] if groups else 1) // sets, int(n)
    return (columns, rows) if "operands exchanged" in said else (rows, columns)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("rows", [EXPERTS, (13, 0, 1, 700), (1000, 1, 1, 1, 1, 1, 1)])
def test_there_are_as_many_workgroups_as_tiles(rows: tuple[int, ...], target: str) -> None:
    module, said = lowered(grouped_text(rows, 520, 64), target, CompileOptions(persistent="never"))
    m, n = rows_of_tiles(said)
    assert int(kernel_of(module).grid_text()[0]) == sum(-(-size // m) for size in rows) * -(-520 // n)


def test_workgroups_walk_all_tiles() -> None:
    """With roles and without them, more tiles than workgroups: no number is without a tile, so no condition stands around the steps."""
    rows, n, k = (70, 0, 300, 3), 2056, 40
    x, w, want = operands(rows, n, k)
    for target in ("sm_90a", "gfx942"):
        module, _ = lowered(grouped_text(rows, n, k), target, CompileOptions(persistent="always"))
        kernel = kernel_of(module)
        assert int(kernel.grid_text()[0]) <= 8 * target_spec(target).compute_units
        assert not [op for op in kernel.walk() if isinstance(op, scf.IfOp | tile.OpaqueOp)]
        report = run_program_scheduled(module, [x, w], "late", 1)
        assert report.ok, str(report)
        assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize(
    ("target", "dtype", "options"),
    [
        ("sm_90a", "f16", CompileOptions(form="tiles")),
        ("sm_90a", "f16", CompileOptions(form="exchanged")),
        ("sm_90a", "f32", CompileOptions(f32_precision="tf32")),
        ("sm_90a", "f32", CompileOptions(f32_precision="3xtf32")),
        ("gfx942", "f32", CompileOptions()),
        ("sm_90a", "f16", CompileOptions(form="roles", tile=(64, 64, 64), num_stages=3, cluster=2, group_m=1)),
        ("sm_90a", "f16", CompileOptions(form="roles", tile=(64, 64, 64), num_stages=3, cluster=2, group_m=8)),
    ],
)
def test_forms_take_groups(target: str, dtype: str, options: CompileOptions) -> None:
    rows, n, k = (70, 0, 300, 3, 131, 64), 136, 72
    module, said = lowered(grouped_text(rows, n, k, dtype), target, options)
    assert options.form != "exchanged" or "operands exchanged" in said
    assert options.cluster == 1 or "clusters of 2" in said
    x, w, want = operands(rows, n, k)
    report = run_program_scheduled(module, [x.astype(dtype_of(dtype)), w.astype(dtype_of(dtype))], "random", 1)
    assert report.ok, str(report)
    assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


def dtype_of(name: str) -> type[np.floating]:
    return np.float32 if name == "f32" else np.float16


@pytest.mark.parametrize("rows", [(96, 96, 96), (1, 40, 64)])
def test_groups_of_as_many_tiles_are_walked_group_by_group(rows: tuple[int, ...]) -> None:
    """Nothing is compared to know the group."""
    module, _ = lowered(grouped_text(rows, 64, 64), "sm_90a", CompileOptions(persistent="never", form="roles"))
    compared = [op for op in kernel_of(module).walk() if isinstance(op, arith.CmpiOp) and str(op.predicate.value.data) == "3"]
    assert not compared and int(kernel_of(module).grid_text()[0]) % len(rows) == 0


@pytest.mark.parametrize(
    ("rows", "columns", "outer"),
    [((100, 3, 200), (64, 64, 64), 3), ((64, 64, 64), (130, 1, 70), 2), ((100, 0, 200), (130, 1, 70), 1)],
)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_groups_of_columns_and_of_several_loops(rows: tuple[int, ...], columns: tuple[int, ...], outer: int, target: str) -> None:
    random, k = np.random.default_rng(outer), 96
    shapes = ((outer, sum(rows), k), (outer, k, sum(columns)), (outer, sum(rows), sum(columns)))
    x, w, y = (random.standard_normal(shape).astype(np.float16) for shape in shapes)
    want = y.astype(np.float64)
    for (low, high), (left, right) in zip(*(pairwise([0, *accumulate(sizes)]) for sizes in (rows, columns)), strict=True):
        want[:, low:high, left:right] = x[:, low:high].astype(np.float64) @ w[:, :, left:right].astype(np.float64)
    for persistent in ("auto", "always"):
        module, _ = lowered(diagonal_text(rows, columns, k, outer), target, CompileOptions(persistent=persistent))
        report = run_program_scheduled(module, [x, w, y], "random", 1)
        assert report.ok, str(report)
        assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize("persistent", ["auto", "always"])
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_a_table_may_tell_the_matrices_of_a_list(target: str, persistent: Persistence) -> None:
    """What the numbers of a table decide is no number of steps."""
    rows, n, k = (70, 0, 131, 3), 72, 136
    number = "%i = tensor.extract %ids[%g] : tensor<4xi32>\n    %e2 = arith.index_cast %i : i32 to index\n    %b = "
    text = grouped_text(rows, n, k).replace("%w: tensor<", "%ids: tensor<4xi32>, %w: tensor<", 1)
    text = text.replace("%b = ", number, 1).replace("%w[%g, 0, 0]", "%w[%e2, 0, 0]")
    module, _ = lowered(text, target, CompileOptions(persistent=persistent))
    x, w, _ = operands(rows, n, k)
    ids = np.array([3, 3, 0, 1], np.int32)
    want = np.concatenate(
        [x[low:high] @ w[e].astype(np.float64) for e, (low, high) in zip(ids, pairwise([0, *np.cumsum(rows)]), strict=True)]
    )
    report = run_program_scheduled(module, [x, ids, w], "random", 1)
    assert report.ok, str(report)
    assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


def test_models_count_the_tiles_that_there_are() -> None:
    shape = problem_of(grouped_text(EXPERTS, 4096, 7168, "bf16")).shape
    assert shape == ContractionShape(1, 2048, 4096, 7168, groups_m=EXPERTS)
    assert shape.tiles(128, 256) == 48 * 16
    assert shape.exchanged.tiles(256, 128) == 48 * 16 and shape.exchanged.exchanged == shape
    of_both = problem_of(diagonal_text((100, 3), (130, 1), 96, outer=5)).shape
    assert (of_both.batch, of_both.groups_m, of_both.groups_n) == (5, (100, 3), ())
    of_columns = problem_of(diagonal_text((64, 64), (130, 1), 96, outer=5)).shape
    assert (of_columns.batch, of_columns.groups_m, of_columns.groups_n) == (5, (), (130, 1))


def test_models_count_the_bytes_of_all_groups() -> None:
    m, n, k, groups = sum(EXPERTS), 4096, 7168, len(EXPERTS)
    assert problem_of(grouped_text(EXPERTS, n, k, "bf16")).memory_bytes == 2 * (m * k + groups * k * n + m * n)
    assert problem_of(routed_text(m, groups, n, k, "bf16")).memory_bytes == 2 * (m * k + groups * k * n + m * n)


def test_small_groups_cost_little() -> None:
    """What a group has no rows for is no tile."""
    steps: list[int] = []
    for rows in ((256, 255), (256, 1)):
        module, _ = lowered(grouped_text(rows, 64, 256), "sm_90a", CompileOptions())
        x, w, _ = operands(rows, 64, 256)
        steps.append(run_program_scheduled(module, [x, w], "late", 1).steps)
    assert steps[1] < 0.7 * steps[0]


def test_eight_ragged_experts_compile_with_descriptor_copies() -> None:
    text = grouped_text(EXPERTS, 4096, 7168, "bf16")
    program = treadle.compile(text, target="sm_90a")
    assert len(program.manifest.kernels) == 1
    said = next(r.text for r in program.remarks if (r.pass_name, r.kind) == ("set-kernel-form", "decision"))
    assert "2 consumer warpgroups" in said
    assert not [r.text for r in program.remarks if "is rejected" in r.text]


def test_machines_without_roles_take_tiles() -> None:
    module, said = lowered(grouped_text((13, 40), 32, 64), "gfx942", CompileOptions())
    assert "mfma" in said and "fed through" not in said
    assert kernel_of(module).grid_text()[0] != "1"


MANY = (70, 0, 3, 131, 64, 1, 1, 0, 0, 33, 65, 2, 7, 129, 0, 5, 90, 64, 3, 1, 40, 17, 0, 66, 1)


@pytest.mark.parametrize(
    ("target", "dtype", "options"),
    [
        ("sm_90a", "f16", CompileOptions(form="roles")),
        ("sm_90a", "f16", CompileOptions(form="exchanged", persistent="always")),
        ("sm_90a", "f16", CompileOptions(form="tiles", persistent="always")),
        ("sm_90a", "f16", CompileOptions(form="roles", tile=(64, 64, 64), num_stages=3, cluster=2, group_m=8)),
        ("gfx942", "f16", CompileOptions()),
        ("gfx942", "f32", CompileOptions(persistent="always")),
        ("gfx1201", "f16", CompileOptions()),
    ],
)
def test_groups_of_a_long_list_are_looked_up(target: str, dtype: str, options: CompileOptions) -> None:
    n, k = 72, 40
    module, said = lowered(grouped_text(MANY, n, k, dtype), target, options)
    assert ".. 25 numbers)[p0]" in said
    lookups = [op for op in kernel_of(module).walk() if isinstance(op, tile.LookupOp)]
    assert lookups and all(len(op.table) in (20, 25, 32) for op in lookups)
    x, w, want = operands(MANY, n, k)
    report = run_program_scheduled(module, [x.astype(dtype_of(dtype)), w.astype(dtype_of(dtype))], "random", 1)
    assert report.ok, str(report)
    assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


def test_columns_of_a_long_list_are_looked_up_too() -> None:
    rows, columns = (64,) * 25, MANY
    random, k = np.random.default_rng(5), 24
    shapes = ((2, sum(rows), k), (2, k, sum(columns)), (2, sum(rows), sum(columns)))
    x, w, y = (random.standard_normal(shape).astype(np.float16) for shape in shapes)
    want = y.astype(np.float64)
    for (low, high), (left, right) in zip(*(pairwise([0, *accumulate(sizes)]) for sizes in (rows, columns)), strict=True):
        want[:, low:high, left:right] = x[:, low:high].astype(np.float64) @ w[:, :, left:right].astype(np.float64)
    module, _ = lowered(diagonal_text(rows, columns, k, 2), "sm_90a", CompileOptions())
    report = run_program_scheduled(module, [x, w, y], "random", 1)
    assert report.ok, str(report)
    assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_long_lists_compile(target: str) -> None:
    """Every lookup in the same numbers has one array."""
    text = trace(grouped_text(tuple(37 * at % 101 for at in range(130)), 520, 64), target=target, until="llvm").stages["llvm"]
    arrays = re.findall(r"@table\d+ = internal unnamed_addr addrspace\(4\) constant (.*)", text)
    assert 3 <= len(arrays) == len(set(arrays)) <= 5
    program = treadle.compile(grouped_text(tuple(37 * at % 101 for at in range(130)), 520, 64), target=target)
    assert not [remark for remark in program.remarks if "is rejected" in remark.text]


@pytest.mark.parametrize(("rows", "form"), [((65, 1) * 9, "exchanged"), ((70, 0, 300) * 9, "auto")])
def test_groups_of_rows_and_columns_of_long_lists_are_proven(rows: tuple[int, ...], form: Form) -> None:
    """Whether a tile has columns is looked up where its group is: in proofs for any number of a workgroup, which none of the grid has."""
    columns = tuple(37 * at % 90 for at in range(len(rows)))
    random, k = np.random.default_rng(6), 72
    x, w = (random.standard_normal(shape).astype(np.float16) for shape in ((1, sum(rows), k), (1, k, sum(columns))))
    y = random.standard_normal((1, sum(rows), sum(columns))).astype(np.float16)
    want = y.astype(np.float64)
    for (low, high), (left, right) in zip(*(pairwise([0, *accumulate(sizes)]) for sizes in (rows, columns)), strict=True):
        want[:, low:high, left:right] = x[:, low:high].astype(np.float64) @ w[:, :, left:right].astype(np.float64)
    module, _ = lowered(diagonal_text(rows, columns, k), "sm_90a", CompileOptions(persistent="never", form=form))
    assert any(len(op.table) < 32 for op in module.walk() if isinstance(op, tile.LookupOp))
    report = run_program_scheduled(module, [x, w, y], "random", 1)
    assert report.ok, str(report)
    assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()
