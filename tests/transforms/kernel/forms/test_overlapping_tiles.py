"""Tiles of multiply-adds that end with the result: the last ones begin earlier, and each element is stored by one workgroup."""

import random
from typing import Any

import numpy as np
import pytest
from generators.contractions import LAYOUTS, ContractionCase
from sim.schedule.faults import kernel_of

from treadle.dialects import tile
from treadle.driver import trace
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.schedule import run_program_scheduled
from treadle.transforms.kernel.forms import tiles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.tiling import contraction
from treadle.transforms.kernel.tiling.index_math import IndexBuilder

TILES = (((16, 32, 16), (1, 1)), ((32, 16, 16), (2, 1)), ((32, 96, 16), (1, 2)), ((48, 32, 16), (1, 1)), ((96, 64, 16), (2, 1)))


def drawn(seed: int) -> ContractionCase:
    """Sizes of one tile and more, most of them no multiples."""
    rng = random.Random(seed)
    extents, warps = rng.choice(TILES)
    m, n = (extent + rng.randint(0, 2 * extent) for extent in extents[:2])
    split = rng.choice(("off", "off", "3"))
    options: dict[str, Any] = {"tile": extents, "warps": warps, "split_reduction": split}
    return ContractionCase(m, n, rng.randint(1, 150), "f32", rng.choice(LAYOUTS), "f32", options=options)


def stage(case: ContractionCase, name: str) -> str:
    return trace(case.text, "sm_90a", CompileOptions(**case.options), until="schedule").stages[name]


def kernels_of(text: str) -> list[tile.KernelOp]:
    return [op for op in parse_module(text, "case.mlir").walk() if isinstance(op, tile.KernelOp)]


def run(case: ContractionCase, seed: int) -> tuple[str, bool]:
    """What the simulator reports, and whether the result is right."""
    values = np.random.default_rng(seed)
    a, b = (values.integers(-8, 9, spec.shape).astype("f4") for spec in case.inputs)
    left, right = (a if case.layout[0] == "n" else a.T), (b if case.layout[1] == "n" else b.T)
    report = run_program_scheduled(parse_module(stage(case, "schedule"), "case.mlir"), [a, b], "random", seed)
    return "" if report.ok else str(report), np.array_equal(report.outputs[0], left @ right)


@pytest.mark.parametrize("seed", range(16))
def test_each_element_is_computed_and_stored_once(seed: int) -> None:
    case = drawn(seed)
    config = config_of(kernels_of(stage(case, "schedule"))[0])
    assert isinstance(config, tiles.Config)
    assert bool(config.overlaps_ends) == (case.m % config.tile[0] > 0 or case.n % config.tile[1] > 0)
    assert run(case, seed) == ("", True)


def test_what_is_stored_twice_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    case = ContractionCase(45, 70, 40, "f32", "nn", "f32", options={"tile": (32, 32, 16), "warps": (1, 1), "split_reduction": "off"})
    assert run(case, 1) == ("", True)

    def to_the_end(index: IndexBuilder, place: SSAValue, extent: int, size: int) -> tuple[SSAValue, SSAValue]:
        begin = index.insert(arith.MinSIOp(index.multiply(place, extent), index.constant(size - extent)))
        return begin, index.constant(size)

    monkeypatch.setattr(contraction, "overlapping", to_the_end)
    said, _ = run(case, 1)
    assert "are not ordered" in said


def test_which_tiles_do() -> None:
    """Along an axis none that is longer than the result, none that reads a matrix besides, which may be the one that is written."""
    options: dict[str, Any] = {"tile": (32, 32, 16), "warps": (1, 1), "split_reduction": "off"}
    for m, n, overlaps in ((31, 64, False), (64, 31, False), (31, 70, True), (64, 96, False), (33, 32, True), (32, 33, True)):
        config = config_of(kernel_of(stage(ContractionCase(m, n, 40, "f32", "nt", "f32", options=options), "schedule")))
        assert isinstance(config, tiles.Config) and bool(config.overlaps_ends) is overlaps
    beside = """
func.func @f(%a: tensor<45x40xf32>, %b: tensor<40x70xf32>, %c: tensor<45x70xf32>) -> tensor<45x70xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<45x40xf32>, tensor<40x70xf32>) outs(%c : tensor<45x70xf32>) -> tensor<45x70xf32>
  return %r : tensor<45x70xf32>
}"""
    config = config_of(kernel_of(trace(beside, "sm_90a", CompileOptions(**options), until="schedule").stages["schedule"]))
    assert isinstance(config, tiles.Config) and not config.overlaps_ends
