"""Indices of extrema: folded in parts, and to the bit what one loop would find, with ties, NaN, odd sizes and initial values that win."""

from random import Random

import numpy as np
import pytest
from analysis.test_coupled_reductions import INDEX, extrema
from transforms.reduction_texts import reduction

from treadle import pipelines
from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.program import run_program
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled

ARRAYS = list[np.ndarray]
FOLDED = [(kind, nan, body) for kind, ties, nan, body in extrema() if ties == "first" and nan != "order"]
OTHERS = [(kind, nan, body) for kind, ties, nan, body in extrema() if ties == "last" or nan == "order"]


def lowered(text: str, target: str, until: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions(), until=until)
    return module


def arrays(kind: str, rows: int, columns: int, random: Random, element: str = "f32") -> ARRAYS:
    """Few distinct numbers, so that most are ties; some NaN; initial values of which some are better than all elements."""
    generator = np.random.default_rng(random.randrange(1000))
    dtype = np.dtype({"f32": "float32", "f16": "float16", "i32": "int32", "i8": "int8"}[element])
    values = generator.integers(-3, 4, (rows, columns)).astype(dtype)
    if dtype.kind == "f":
        worst = -np.inf if kind == "argmax" else np.inf
        values[generator.random((rows, columns)) < 0.1] = np.nan
        values[generator.random((rows, columns)) < 0.1] = worst
    else:
        worst = float(np.iinfo(dtype).min if kind == "argmax" else np.iinfo(dtype).max)
    start = np.where(generator.random(rows) < 0.25, 9.0 if kind == "argmax" else -9.0, worst).astype(dtype)
    return [values, start, generator.integers(-9, 0, rows).astype(np.int32)]


def agrees(found: ARRAYS, text: str, given: ARRAYS) -> None:
    for got, want in zip(found, evaluate_module(parse_module(text, "test.mlir"), given), strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), want.value)


def reduces(module: builtin.ModuleOp) -> bool:
    """Whether values and indices are reduced together."""
    return any(isinstance(op, tile.ReduceOp) and len(op.inputs) == 2 for op in module.walk())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("kind", "nan", "body"), FOLDED)
def test_parts_are_merged(kind: str, nan: str, body: str, seed: int) -> None:
    """Random sizes around the extents of tiles, odd ones first."""
    random = Random(seed)
    rows, columns = (
        random.choice([(3, 9), (1, 777)]) if seed == 0 else (random.randint(1, 40), random.choice([1, 2, 63, 64, 65, 300, 2049, 4100]))
    )
    text = reduction(body, {"m": "f32", "i": "i32"}, shape=(rows, columns))
    module = lowered(text, "sm_90a", "tile")
    assert reduces(module) == (columns > 1)
    given = arrays(kind, rows, columns, random)
    agrees(run_program(module, given), text, given)


@pytest.mark.parametrize(("kind", "nan", "body"), OTHERS[::5])
def test_what_depends_on_the_order_keeps_it(kind: str, nan: str, body: str) -> None:
    text = reduction(body, {"m": "f32", "i": "i32"}, shape=(5, 77))
    module = lowered(text, "sm_90a", "tile")
    assert not reduces(module)
    given = arrays(kind, 5, 77, Random(1))
    agrees(run_program(module, given), text, given)


@pytest.mark.parametrize("element", ["i32", "i8", "f16"])
@pytest.mark.parametrize("predicate", ["gt", "lt"])
@pytest.mark.parametrize("unsigned", [False, True])
def test_other_types(element: str, predicate: str, unsigned: bool) -> None:
    compare = f"cmpf o{predicate}" if element == "f16" else f"cmpi {'u' if unsigned else 's'}{predicate}"
    pick = f"%m_next = arith.select %c, %x0, %m : {element}\n %i_next = arith.select %c, %k, %i : i32"
    body = f"{INDEX}%c = arith.{compare}, %x0, %m : {element}\n {pick}"
    text = reduction(body, {"m": element, "i": "i32"}, element=element, shape=(7, 301))
    module = lowered(text, "sm_90a", "tile")
    assert reduces(module)
    given = arrays("argmax" if predicate == "gt" else "argmin", 7, 301, Random(2), element)
    agrees(run_program(module, given), text, given)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("shape", [(3, 1025), (70, 33)])
@pytest.mark.parametrize(("kind", "nan", "body"), FOLDED[:: len(FOLDED) - 1])
def test_schedules_are_proven_and_right(kind: str, nan: str, body: str, shape: tuple[int, int], target: str) -> None:
    text = reduction(body, {"m": "f32", "i": "i32"}, shape=shape)
    module = lowered(text, target, "schedule")
    given = arrays(kind, *shape, Random(3))
    report = run_program_scheduled(module, given, "late", 0)
    assert report.ok, str(report)
    agrees(list(report.outputs), text, given)
