"""The form rows: softmax, normalisations and moments in one kernel, right for ragged sizes, whether rows stay in registers or not."""

from random import Random

import numpy as np
import pytest
from transforms.row_texts import KINDS, rows_text

from treadle import pipelines
from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.row_tiles import most_held, row_tiles
from treadle.sim.check import check
from treadle.sim.element_types import Array, storage_dtype
from treadle.sim.program import run_program
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled

ELEMENTS = {"f32": builtin.f32, "f16": builtin.f16, "bf16": builtin.bf16}
PARTS = 9
"""Of the candidates: rows are walked part by part."""


def lowered(text: str, target: str, until: str, candidate: int = 0) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions(), until=until, candidates={"f_k0": candidate})
    return module


def kernels(module: builtin.ModuleOp) -> list[tile.KernelOp]:
    return [op for op in module.walk() if isinstance(op, tile.KernelOp)]


def arrays(text: str, sizes: tuple[int, ...], element: str, seed: int = 0) -> list[Array]:
    generator = np.random.default_rng(seed)
    shapes = [sizes, *([sizes[-1:]] * (text.count("%g:") + text.count("%b:")))]
    return [generator.standard_normal(shape).astype(storage_dtype(ELEMENTS[element])) for shape in shapes]


def assert_right(found: list[Array], text: str, given: list[Array]) -> None:
    for got, want in zip(found, evaluate_module(parse_module(text, "test.mlir"), given), strict=True):
        verdict = check(got, want)
        assert verdict.ok, f"{verdict.worst} at {verdict.place}"


def random_sizes(kind: str, random: Random) -> tuple[int, ...]:
    rows, length = random.randint(1, 70), random.choice([1, 2, 7, 31, 33, 64, 77, 100, 129, 257, 511, 1000, 2049, 4100])
    match kind:
        case "column_softmax":
            return (random.choice([1, 5, 77, 200]), random.randint(1, 70))
        case "group_norm":
            return (random.randint(1, 4), random.randint(1, 3), random.randint(1, 9), random.choice([1, 7, 33, 100]))
        case _:
            return (random.randint(1, 3), rows, length) if random.random() < 0.3 else (rows, length)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_values_in_registers_and_part_by_part(kind: str, seed: int) -> None:
    random = Random(f"{kind} {seed}")
    sizes, element = random_sizes(kind, random), random.choice(list(ELEMENTS))
    text = rows_text(kind, sizes, element)
    given = arrays(text, sizes, element, seed)
    for candidate in (0, PARTS):
        module = lowered(text, "sm_90a", "tile", candidate)
        (kernel,) = kernels(module)
        assert str(kernel.config).startswith("#tile.form<rows")
        assert_right(run_program(module, given), text, given)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("candidate", [0, PARTS])
@pytest.mark.parametrize(("kind", "sizes"), [("softmax", (9, 1025)), ("layer_norm", (70, 77)), ("column_softmax", (77, 33))])
def test_schedules_are_proven_and_right(kind: str, sizes: tuple[int, ...], candidate: int, target: str) -> None:
    text = rows_text(kind, sizes, "f16")
    module = lowered(text, target, "schedule", candidate)
    given = arrays(text, sizes, "f16")
    report = run_program_scheduled(module, given, "late", 0)
    assert report.ok, str(report)
    assert_right(list(report.outputs), text, given)


@pytest.mark.parametrize("kind", ["softmax", "rms_norm"])
@pytest.mark.parametrize("sizes", [(5, 77), (1, 3000), (3, 1)])
def test_rows_of_any_length(kind: str, sizes: tuple[int, int]) -> None:
    """Lengths that only the runtime knows: one kernel, rows walked part by part."""
    text = rows_text(kind, (-1, -1)).replace("64.0", f"{sizes[1]}.0")
    module = lowered(text, "sm_90a", "tile")
    assert len(kernels(module)) == 1
    given = arrays(text, sizes, "f32")
    assert_right(run_program(module, given), text, given)


@pytest.mark.parametrize("kind", ["softmax", "layer_norm"])
def test_each_array_is_read_once_where_rows_stay(kind: str) -> None:
    """As long as rows fit a workgroup: one load of each argument, no loop."""
    for length in (77, 1001, 8192, 5120, 32768):
        (kernel,) = kernels(lowered(rows_text(kind, (300, length)), "sm_90a", "tile"))
        loads = [op for op in kernel.walk() if isinstance(op, tile.LoadOp)]
        assert len(loads) == {"softmax": 1, "layer_norm": 3}[kind]
        assert not any(op.name == "scf.for" for op in kernel.walk())


@pytest.mark.parametrize("sizes", [(8, 100_003), (3, 1_000_003)])
def test_few_long_rows_are_left_to_all_units(sizes: tuple[int, int]) -> None:
    assert len(kernels(lowered(rows_text("softmax", sizes), "sm_90a", "tile"))) > 1


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("seed", range(40))
def test_tiles_fit_the_machine(target: str, seed: int) -> None:
    random, spec = Random(seed), target_spec(target)
    rows, length, bytes_each = random.randint(1, 100_000), random.choice([1, 7, 77, 1000, 5120, 8192, 30_000]), random.choice([2, 4])
    axes = (AxisShape(rows, is_reduction=False, unit_stride_reads=0, unit_stride_writes=0), AxisShape(length, True, 4, 4))
    *whole, part = row_tiles(axes, bytes_each, spec)
    assert whole
    assert whole[0].is_whole
    for one in (*whole, part):
        threads = one.warps * spec.subgroup_size
        assert threads <= spec.max_threads_per_workgroup
        assert one.extents[0] * one.extents[1] <= max(most_held(threads, spec) * threads, one.extents[1])
    assert all(length <= one.extents[1] for one in whole)
    assert whole[0].extents[1] <= max(1.3 * length, length + 32)
