"""Groups whose rows a tensor tells at run time: one program for all tables, with roles where machines have them."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from generators.grouped_contractions import routed_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transforms.form_programs import kernel_of, lowered

import treadle
from treadle.dialects import pipe, tile
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions, Persistence
from treadle.sim.check import check
from treadle.sim.element_types import storage_dtype
from treadle.sim.schedule import run_program_scheduled

EXAMPLE = Path(__file__).parents[4] / "examples" / "experts.mlir"
SIZES = (0, 1, 63, 64, 65, 130, 3)
ROWS, N, K = sum(SIZES) + 9, 72, 80
SPLITS = (SIZES, (326, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1, 325))
ELEMENTS = {"f16": builtin.f16, "bf16": builtin.bf16, "f32": builtin.f32}


def offsets(sizes: Sequence[int], first: int = 0, kind: type = np.int32) -> np.ndarray:
    return (first + np.cumsum([0, *sizes])).astype(kind)


def operands(dtype: str, n: int = N, k: int = K, groups: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(k)
    shapes = ((ROWS, k), (groups, k, n), (ROWS, n), (groups, n))
    x, w, y, bias = (random.standard_normal(shape).astype(storage_dtype(ELEMENTS[dtype])) for shape in shapes)
    return x, w, y, bias


def wanted(x: np.ndarray, w: np.ndarray, y: np.ndarray, ends: Sequence[int]) -> np.ndarray:
    found = y.astype(np.float64)
    for group, (low, high) in enumerate(pairwise(ends)):
        found[low:high] = x[low:high].astype(np.float64) @ w[group].astype(np.float64)
    return found


def kernels(module: builtin.ModuleOp) -> list[tile.KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]


@pytest.mark.parametrize(("target", "persistent"), [("sm_90a", "auto"), ("sm_90a", "always"), ("gfx942", "auto"), ("gfx942", "always")])
def test_schedules_give_the_groups_of_every_table(target: str, persistent: Persistence) -> None:
    module, _ = lowered(routed_text(ROWS, 7, N, K), target, CompileOptions(persistent=persistent))
    roles = [op for kernel in kernels(module) for op in kernel.walk() if isinstance(op, pipe.RolesOp)]
    assert bool(roles) == (target == "sm_90a")
    x, w, y, _ = operands("f16")
    for sizes in SPLITS:
        ends = offsets(sizes, first=4)
        want = wanted(x, w, y, list(ends))
        for mode in ("late", "random"):
            report = run_program_scheduled(module, [x, w, ends, y], mode, 1)
            assert report.ok, str(report)
            assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize(("form", "persistent"), [("offsets", "auto"), ("counts", "always"), ("offsets", "always")])
def test_more_tiles_than_compute_units(form: str, persistent: Persistence) -> None:
    """Each tile's numbers are its own. Tiles in turn are for who asks for them, where few tiles belong to no group."""
    n, k = 2056, 40
    module, _ = lowered(routed_text(ROWS, 7, n, k, form=form), "sm_90a", CompileOptions(persistent=persistent, form="roles"))
    (kernel,) = (each for each in kernels(module) if any(isinstance(op, pipe.RolesOp) for op in each.walk()))
    takes_turns = int(kernel.grid_text()[0]) == target_spec("sm_90a").compute_units
    assert takes_turns == (form == "offsets" and persistent == "always")
    x, w, y, _ = operands("f16", n, k)
    ends = offsets(SIZES, first=3)
    table = ends if form == "offsets" else np.stack([ends[:-1], np.diff(ends)])
    want = wanted(x, w, y, list(ends))
    report = run_program_scheduled(module, [x, w, table, y], "late", 1)
    assert report.ok, str(report)
    assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


def test_groups_have_as_many_tiles_as_their_rows_ask_for() -> None:
    """And one more each, at most; groups that may lie anywhere have as many as the whole array, 16 times."""
    grids: dict[str, int] = {}
    for form in ("offsets", "counts"):
        module, _ = lowered(routed_text(4096, 16, 64, 64, form=form), "gfx942", CompileOptions())
        kernel = next(each for each in kernels(module) if any(isinstance(op, tile.ContractOp) for op in each.walk()))
        grids[form] = int(kernel.grid_text()[0])
    assert grids["counts"] % 16 == 0 and 3 * grids["offsets"] <= grids["counts"]


@pytest.mark.parametrize(
    ("dtype", "index", "form", "epilogue"),
    [
        ("bf16", "i64", "offsets", True),
        ("f32", "i32", "offsets", True),
        ("f16", "i64", "counts", False),
        ("bf16", "i32", "counts", True),
    ],
)
def test_one_program_takes_any_table(dtype: str, index: str, form: str, epilogue: bool) -> None:
    program = treadle.compile(routed_text(ROWS, 7, N, K, dtype, index=index, form=form, epilogue=epilogue), target="sim")
    x, w, y, bias = operands(dtype)
    for sizes in SPLITS:
        ends = offsets(sizes, first=2, kind=np.int32 if index == "i32" else np.int64)
        table = ends if form == "offsets" else np.stack([ends[:-1], np.diff(ends)])
        given = [x, w, table, y, *([bias] if epilogue else [])]
        (want,) = program.reference(*given)
        assert (verdict := check(np.asarray(program(*given)[0]), want)).ok, verdict


@pytest.mark.parametrize("index", ["i32", "i64"])
def test_no_number_of_a_table_leads_out_of_the_arrays(index: str) -> None:
    """What is computed is nobody's business, but nothing outside is read or written, which the simulator would refuse."""
    kind = np.int32 if index == "i32" else np.int64
    program = treadle.compile(routed_text(ROWS, 7, N, K, index=index), target="sim")
    x, w, y, _ = operands("f16")
    limits = np.iinfo(kind)
    anything = [5, -3, 900, 20, 10, limits.max, limits.min, ROWS]
    for table in (anything, [limits.min] * 8, [limits.max] * 8, [ROWS, 300, 200, 100, 50, 9, 1, 0]):
        (found,) = program(x, w, np.array(table, kind), y)
        assert np.isfinite(np.asarray(found, np.float64)).all()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=6),
    st.tuples(st.integers(0, 9), st.integers(0, 70)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([("f16", "i32", "offsets"), ("bf16", "i64", "counts"), ("f32", "i32", "offsets"), ("f16", "i64", "offsets")]),
    st.booleans(),
)
def test_any_groups(sizes: list[int], around: tuple[int, int], extents: tuple[int, int], how: tuple[str, str, str], epilogue: bool) -> None:
    (first, behind), (n, k), (dtype, index, form) = around, extents, how
    ends = offsets(sizes, first, np.int32 if index == "i32" else np.int64)
    rows, groups = int(ends[-1]) + behind + 1, len(sizes)
    text = routed_text(rows, groups, n, k, dtype, index=index, form=form, epilogue=epilogue)
    program = treadle.compile(text, target="sim")
    random = np.random.default_rng(rows)
    shapes = ((rows, k), (groups, k, n), (rows, n), (groups, n))
    x, w, y, bias = (random.standard_normal(shape).astype(storage_dtype(ELEMENTS[dtype])) for shape in shapes)
    given_ = [x, w, ends if form == "offsets" else np.stack([ends[:-1], np.diff(ends)]), y, *([bias] if epilogue else [])]
    (want,) = program.reference(*given_)
    assert (verdict := check(np.asarray(program(*given_)[0]), want)).ok, verdict


def test_sums_go_on_from_the_rows_that_are_there() -> None:
    text = routed_text(ROWS, 7, N, K)
    fill = next(line for line in text.splitlines() if "%f = linalg.fill" in line)
    part = f"tensor<{ROWS}x{N}xf16> to tensor<?x{N}xf16>"
    text = text.replace(fill, f"    %f = tensor.extract_slice %o[%start, 0] [%count, {N}] [1, 1] : {part}")
    program = treadle.compile(text, target="sim")
    x, w, y, _ = operands("f16")
    ends = offsets(SIZES, first=4)
    (want,) = program.reference(x, w, ends, y)
    assert (verdict := check(np.asarray(program(x, w, ends, y)[0]), want)).ok, verdict


def test_wide_indices() -> None:
    module, _ = lowered(routed_text(ROWS, 7, N, K, index="i64"), "sm_90a", CompileOptions(index_bits=64))
    x, w, y, _ = operands("f16")
    ends = offsets(SIZES, first=4, kind=np.int64)
    want = wanted(x, w, y, list(ends))
    report = run_program_scheduled(module, [x, w, ends, y], "late", 1)
    assert report.ok and np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


def test_rows_of_experts_in_another_order() -> None:
    """Which matrix a group has may be a number of a table, too."""
    text = routed_text(ROWS, 7, N, K).replace("%y: tensor<", "%ids: tensor<7xi32>, %y: tensor<", 1)
    number = "%i = tensor.extract %ids[%g] : tensor<7xi32>\n    %e = arith.index_cast %i : i32 to index\n    %b = "
    text = text.replace("%b = ", number, 1).replace("%w[%g, 0, 0]", "%w[%e, 0, 0]")
    program = treadle.compile(text, target="sim")
    x, w, y, _ = operands("f16")
    ids, ends = np.array([6, 6, 0, 3, 2, 5, 1], np.int32), offsets(SIZES)
    (found,) = program(x, w, ends, ids, y)
    want = wanted(x, w[ids], y, list(ends))
    assert np.abs(np.asarray(found, np.float64) - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize("columns", [72, 9000])
def test_softmax_of_the_rows_of_groups(columns: int) -> None:
    """Of rows that a workgroup holds, and of longer ones; the same where sizes are those of a fixed list."""
    text = routed_text(40, 3, columns, 2, "f32")
    product = next(line for line in text.splitlines() if "linalg.matmul" in line)
    whole, part = f"tensor<40x{columns}xf32>", f"tensor<?x{columns}xf32>"
    rows = f"    %d = tensor.extract_slice %y[%start, 0] [%count, {columns}] [1, 1] : {whole} to {part}"
    text = text.replace(product, f"{rows}\n    %c = linalg.softmax dimension(1) ins(%d : {part}) outs(%own : {part}) -> {part}")
    fixed = text.replace("arith.index_cast %s : i32 to index", "affine.apply affine_map<(d0) -> (d0 * 13)>(%g)")
    fixed = fixed.replace("arith.index_cast %t : i32 to index", "affine.apply affine_map<(d0) -> (d0 * 13 + 13)>(%g)")
    y = np.random.default_rng(1).standard_normal((40, columns)).astype(np.float32)
    given_ = [np.zeros((40, 2), np.float32), np.zeros((3, 2, columns), np.float32), np.array([3, 3, 20, 39], np.int32), y]
    for each in (text, fixed):
        program = treadle.compile(each, target="sim")
        (want,) = program.reference(*given_)
        assert (verdict := check(np.asarray(program(*given_)[0]), want)).ok, verdict


def test_sums_over_the_rows_of_a_group() -> None:
    """What is reduced may be as long as a table says: the gradient of each expert's matrix."""
    text = routed_text(ROWS, 7, N, K)
    x, y, z, part = f"tensor<{ROWS}x{K}xf16>", f"tensor<{ROWS}x{N}xf16>", f"tensor<7x{K}x{N}xf16>", f"tensor<{K}x{N}xf16>"
    lines = [
        line
        for line in text.splitlines()
        if not any(name in line for name in ("%b =", "%own =", "%f =", "%c =", "%z =", "insert_slice %c", "return", "func.func"))
    ]
    at = next(number for number, line in enumerate(lines) if "%next =" in line)
    end = next(number for number, line in enumerate(lines) if "in_parallel" in line)
    body = [
        f"    %d = tensor.extract_slice %y[%start, 0] [%count, {N}] [1, 1] : {y} to tensor<?x{N}xf16>",
        f"    %n = tensor.empty() : {part}",
        f"    %f = linalg.fill ins(%none : f16) outs(%n : {part}) -> {part}",
        "    %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>,",
        '      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}',
        f"      ins(%a, %d : tensor<?x{K}xf16>, tensor<?x{N}xf16>) outs(%f : {part}) {{",
        "    ^bb0(%p: f16, %q: f16, %u: f16):",
        "      %v = arith.mulf %p, %q : f16",
        "      %h = arith.addf %u, %v : f16",
        "      linalg.yield %h : f16",
        f"    }} -> {part}",
    ]
    loop = f"  %z = scf.forall (%g) in (7) shared_outs(%o = %e) -> ({z}) {{"
    insert = f"      tensor.parallel_insert_slice %c into %o[%g, 0, 0] [1, {K}, {N}] [1, 1, 1] : {part} into {z}"
    head = [f"func.func @f(%x: {x}, %y: {y}, %table: tensor<8xi32>) -> {z} {{", f"  %e = tensor.empty() : {z}"]
    made = [*head, *lines[:at], loop, *lines[at:end], *body, lines[end], insert, *lines[end + 1 : -1], f"  return %z : {z}", "}"]
    program = treadle.compile("\n".join(made), target="sim")
    random = np.random.default_rng(2)
    given_ = [random.standard_normal(shape).astype(np.float16) for shape in ((ROWS, K), (ROWS, N))]
    for sizes in SPLITS:
        ends = offsets(sizes, first=2)
        (want,) = program.reference(*given_, ends)
        assert (verdict := check(np.asarray(program(*given_, ends)[0]), want)).ok, verdict


def test_two_products_of_the_same_rows() -> None:
    text = routed_text(ROWS, 7, N, K).replace("%y: tensor<", f"%v: tensor<7x{K}x{N}xf16>, %y: tensor<", 1)
    product = next(line for line in text.splitlines() if "linalg.matmul" in line)
    other = product.replace("%c =", "%d =").replace("%b", "%b2")
    part, result = f"tensor<7x{K}x{N}xf16> to tensor<{K}x{N}xf16>", f"tensor<?x{N}xf16>"
    more = [
        product,
        f"    %b2 = tensor.extract_slice %v[%g, 0, 0] [1, {K}, {N}] [1, 1, 1] : {part}",
        other,
        f"    %r = linalg.mul ins(%c, %d : {result}, {result}) outs(%own : {result}) -> {result}",
    ]
    program = treadle.compile(text.replace(product, "\n".join(more)).replace("slice %c into", "slice %r into"), target="sim")
    assert len(program.manifest.kernels) == 2  # the copy of y, and this one
    x, w, y, _ = operands("f16")
    ends = offsets(SIZES)
    (want,) = program.reference(x, w, ends, w[::-1], y)
    assert (verdict := check(np.asarray(program(x, w, ends, w[::-1].copy(), y)[0]), want)).ok, verdict


@pytest.mark.parametrize(("index", "persistent"), [("i32", "auto"), ("i64", "auto"), ("i32", "always")])
def test_experts_of_a_mixture_compile_for_hopper(index: str, persistent: Persistence) -> None:
    """As large as they are: descriptor copies feed two groups of consumers, whose machine code passes its audit."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("xi32>", f"x{index}>").replace(": i32 to", f": {index} to")
    program = treadle.compile(text, target="sm_90a", options=CompileOptions(persistent=persistent))
    assert len(program.manifest.kernels) == 1
    said = [r.text for r in program.remarks if (r.pass_name, r.kind) == ("set-kernel-form", "decision")]
    assert any("2 consumer warpgroups" in each for each in said)
    assert not [r.text for r in program.remarks if "is rejected" in r.text]


def test_machines_without_roles_take_tiles() -> None:
    text = routed_text(ROWS, 7, N, K).replace("shared_outs(%o = %y)", "shared_outs(%o = %fresh)")
    text = text.replace("  %z = scf", f"  %fresh = tensor.empty() : tensor<{ROWS}x{N}xf16>\n  %z = scf")
    module, said = lowered(text, "gfx942", CompileOptions())
    assert "mfma" in said and "fed through" not in said
    assert kernel_of(module).grid_text()[0] != "1"
