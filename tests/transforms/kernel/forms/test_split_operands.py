"""The form split_operands: f32 operands that a kernel splits itself, their errors, layouts and merges, and the code that is made of it."""

from dataclasses import replace

import numpy as np
import pytest
from transforms.form_programs import lowered

import treadle
from treadle.analysis.buffers import buffer_view
from treadle.bench.texts import Function
from treadle.dialects import pipe, tile
from treadle.dialects.agents import roles_of
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.f32_split import SPLITS
from treadle.plan.split_tiles import SplitProblem, best_split_tile, part_slots, split_tiles
from treadle.plan.tile_config import ContractionShape
from treadle.sim.schedule import run_program_scheduled

F32_EPSILON = 2.0**-24


def text_of(m: int, n: int, k: int, left: str = "mk", right: str = "kn", asked: str = "") -> str:
    """A product of f32 whose kernel is to split its operands into three bf16 parts."""
    f = Function("product")
    a = f.argument("a", (m, k) if left == "mk" else (k, m), "f32")
    b = f.argument("b", (k, n) if right == "kn" else (n, k), "f32")
    marks = f'treadle.f32_split = "bf16x6", treadle.f32_split_in = "kernel", {asked}'
    return f.text(f.contract(f"{left},{right}->mn", a, b)).replace("linalg.generic {", f"linalg.generic {{{marks}", 1)


def scheduled(text: str, split: str = "off") -> builtin.ModuleOp:
    module, said = lowered(text, "sm_90a", CompileOptions(split_reduction=split, form="split_operands"))
    assert "3 bf16 parts of each operand, 6 products" in said
    return module


def fma_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of each element what sums of f32 by multiply-adds, one after the other, may be off by: as found, and at least a rounding."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for at in range(a.shape[1]):
        total = (a[:, at : at + 1].astype(np.float64) * b[at : at + 1] + total).astype(np.float32)
    want = a.astype(np.float64) @ b.astype(np.float64)
    return np.maximum(np.abs(total - want), F32_EPSILON * (np.abs(a).astype(np.float64) @ np.abs(b)))


def operands(m: int, n: int, k: int, scale: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
    if scale == "rows":  # each row, and each column, of another size
        a, b = a * np.exp2(np.linspace(-50, 50, m))[:, None], b * np.exp2(np.linspace(40, -40, n))
    if scale == "along_k":  # elements of one sum of very different sizes, which cancel in A and not in B
        sizes = np.exp2(random.uniform(-20, 20, k))
        a, b = a * sizes, b / sizes[:, None] * np.exp2(random.uniform(-6, 6, k))[:, None]
    if scale == "positive":
        a, b = np.abs(a), np.abs(b)
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.parametrize("scale", ["plain", "rows", "along_k", "positive"])
@pytest.mark.parametrize(("left", "right"), [("mk", "kn"), ("km", "nk")])
def test_errors_are_at_most_four_times_those_of_multiply_adds(scale: str, left: str, right: str) -> None:
    m, n, k = 70, 40, 333
    a, b = operands(m, n, k, scale, 3)
    given = a if left == "mk" else np.ascontiguousarray(a.T), b if right == "kn" else np.ascontiguousarray(b.T)
    report = run_program_scheduled(scheduled(text_of(m, n, k, left, right)), list(given), "late", 0)
    assert report.ok, str(report)
    error = np.abs(report.outputs[0] - a.astype(np.float64) @ b.astype(np.float64))
    assert (error <= 4 * fma_error(a, b)).all()


@pytest.mark.parametrize(
    ("merge", "left", "right", "n", "k"),
    [("kernel", "mk", "kn", 104, 403), ("last", "km", "kn", 33, 402), ("cluster", "mk", "nk", 17, 301), ("last", "km", "nk", 40, 420)],
)
def test_parts_of_any_layout_and_pitch(merge: str, left: str, right: str, n: int, k: int) -> None:
    m, parts = 131, 4
    asked = f'treadle.split_reduction = #dispatch.split<r0 = "{parts}" step 64, merge = {merge}>, '
    module = scheduled(text_of(m, n, k, left, right, asked), "auto")
    (kernel, *_) = [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]
    (roles,) = [op for op in kernel.walk() if isinstance(op, pipe.RolesOp)]
    assert len(roles.roles) == 3
    a, b = operands(m, n, k, "plain", 5)
    given = a if left == "mk" else np.ascontiguousarray(a.T), b if right == "kn" else np.ascontiguousarray(b.T)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, list(given), mode, 1)
        assert report.ok, str(report)
        assert (np.abs(report.outputs[0] - a.astype(np.float64) @ b) <= 4 * fma_error(a, b)).all()


@pytest.mark.parametrize(
    ("m", "n", "k", "left", "right", "split"),
    [(123, 456, 51234, "mk", "kn", "auto"), (300, 250, 9001, "km", "nk", "auto"), (512, 512, 512, "mk", "nk", "off")],
)
def test_the_first_choice_compiles_without_spills(m: int, n: int, k: int, left: str, right: str, split: str) -> None:
    program = treadle.compile(
        text_of(m, n, k, left, right), target="sm_90a", options=CompileOptions(split_reduction=split, form="split_operands")
    )
    assert not [r.text for r in program.remarks if "is rejected" in r.text]
    assert any("a role that splits the other" in r.text for r in program.remarks)


def test_the_others_take_what_it_refuses() -> None:
    """Operands that are computed in the kernel, and programs without roles, are multiplied as they are."""
    module, said = lowered(text_of(70, 40, 99), "sm_90a", CompileOptions(roles=False, split_reduction="off"))
    assert "instruction fma" in said
    assert not [op for op in module.walk() if isinstance(op, pipe.RolesOp)]


@pytest.mark.parametrize("along_k", [(True, False), (False, True)])
def test_tiles_fit_shared_memory(along_k: tuple[bool, bool]) -> None:
    spec = target_spec("sm_90a")
    (row, *_) = spec.instructions_for("bf16", "bf16", "f32")
    problem = SplitProblem(SPLITS["bf16x6"], row, ContractionShape(26, 123, 456, 1984), along_k, (8, 0))
    for found in split_tiles(problem, spec):
        ring = found.num_stages * (found.rows + found.n) * found.k * 4 + part_slots(3) * 3 * 2 * found.n * found.k
        assert ring < spec.shared_bytes_per_workgroup and found.num_stages >= 2
    best = best_split_tile(problem, spec)
    assert best is not None and problem.shape.tiles(best.rows, best.n) <= spec.compute_units


@pytest.mark.parametrize(("precision", "parts", "slots"), [("bf16x6", 3, 3), ("bf16x3", 2, 3), ("tf32", 1, 2)])
def test_several_parts_have_a_slot_more(precision: str, parts: int, slots: int) -> None:
    text, options = text_of(70, 40, 99), CompileOptions(split_reduction="off", form="split_operands")
    if precision == "tf32":
        marks = 'treadle.f32_split = "bf16x6", treadle.f32_split_in = "kernel", '
        text, options = text.replace(marks, ""), replace(options, f32_precision="tf32")
    module, _ = lowered(text.replace('"bf16x6"', f'"{precision}"'), "sm_90a", options)
    (op,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    stores = [op for op in roles_of(op)[1].operations() if isinstance(op, tile.LocalStoreOp)]
    assert len(stores) == parts
    for store in stores:
        view = buffer_view(store.destination)
        assert view is not None and view.slot_extents == (slots,)


def rounded(values: np.ndarray) -> np.ndarray:
    """To 10 bits of mantissa, to nearest, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint64(0x1FFF)).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("merge", "left", "right", "m", "n", "k"),
    [
        ("kernel", "mk", "kn", 131, 104, 403),
        ("last", "km", "kn", 70, 33, 402),
        ("cluster", "mk", "nk", 131, 17, 301),
        ("last", "km", "nk", 33, 140, 420),
    ],
)
def test_operands_are_rounded_to_tf32_in_any_layout_and_pitch(merge: str, left: str, right: str, m: int, n: int, k: int) -> None:
    asked = f'treadle.split_reduction = #dispatch.split<r0 = "4" step 64, merge = {merge}>'
    text = text_of(m, n, k, left, right).replace('treadle.f32_split = "bf16x6", treadle.f32_split_in = "kernel"', asked)
    module, said = lowered(text, "sm_90a", CompileOptions(f32_precision="tf32", form="split_operands", split_reduction="auto"))
    assert "both rounded to tf32" in said
    (kernel, *_) = [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]
    (roles,) = [op for op in kernel.walk() if isinstance(op, pipe.RolesOp)]
    assert len(roles.roles) == 3
    a, b = operands(m, n, k, "plain", 5)
    given = a if left == "mk" else np.ascontiguousarray(a.T), b if right == "kn" else np.ascontiguousarray(b.T)
    want = rounded(a).astype(np.float64) @ rounded(b)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, list(given), mode, 1)
        assert report.ok, str(report)
        assert (np.abs(report.outputs[0] - want) <= 2.0**-20 * (np.abs(a).astype(np.float64) @ np.abs(b))).all()
