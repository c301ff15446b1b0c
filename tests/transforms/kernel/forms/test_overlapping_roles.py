"""Tiles of role kernels that end with the result: the last ones begin earlier, and each element is stored by one workgroup."""

import random
from typing import Any

import numpy as np
import pytest
from generators.contractions import LAYOUTS, ContractionCase, Layout
from sim.schedule.faults import kernel_of

from treadle.driver import compile, trace
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.schedule import run_program_scheduled
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.tiling import contraction
from treadle.transforms.kernel.tiling.index_math import IndexBuilder
from treadle.verify.verify_schedule import COMPILED, explained_verdict

FORMS: tuple[dict[str, Any], ...] = (
    {"form": "roles"},
    {"form": "exchanged"},
    {"form": "roles", "consumer_warpgroups": 2},
    {"form": "roles", "ping_pong": 2},
    {"form": "roles", "persistent": "never"},
    {"form": "roles", "deferred_store": True},
    {"form": "roles", "cluster": 2, "group_m": 2},
    {"form": "exchanged", "cluster": 4, "cluster_n": 2, "group_m": 2},
)


def drawn(seed: int) -> ContractionCase:
    """Sizes of one tile and more, multiples of 16 bytes, most of them no multiples of tiles."""
    rng = random.Random(seed)
    form = FORMS[seed % len(FORMS)]
    groups, columns = form.get("consumer_warpgroups", 1), rng.choice((32, 48, 64))
    m, n = 64 * groups + 8 * rng.randint(0, 24 * groups), columns + 8 * rng.randint(0, columns // 4)
    options = {"tile": (64, columns, 64), "warps": (4, 1), "num_stages": 3, "split_reduction": "off", **form}
    return ContractionCase(m, n, 8 * rng.randint(2, 24), "f16", rng.choice(LAYOUTS), "f16", options=options)


def stage(case: ContractionCase) -> str:
    return trace(case.text, "sm_90a", CompileOptions(**case.options), until="schedule").stages["schedule"]


def run(case: ContractionCase, seed: int) -> tuple[str, bool]:
    """What the simulator reports, and whether the result is right."""
    values = np.random.default_rng(seed)
    a, b = (values.integers(-3, 4, spec.shape).astype(np.float16) for spec in case.inputs)
    left, right = (a if case.layout[0] == "n" else a.T), (b if case.layout[1] == "n" else b.T)
    report = run_program_scheduled(parse_module(stage(case), "case.mlir"), [a, b], "random", seed)
    return "" if report.ok else str(report), np.array_equal(report.outputs[0], (left.astype("f4") @ right.astype("f4")).astype("f2"))


@pytest.mark.parametrize("seed", range(24))
def test_each_element_is_computed_and_stored_once(seed: int) -> None:
    assert run(drawn(seed), seed) == ("", True)


def test_they_are_drawn() -> None:
    """Most of the cases above overlap along a side, many along both, in every form."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for seed in range(24):
        case = drawn(seed)
        config = config_of(kernel_of(stage(case)))
        assert isinstance(config, roles.Config) and config.overlaps_ends == (0, 1)
        rows, columns = config.tile[0] * config.groups, config.tile[1]
        m, n = (case.n, case.m) if case.options["form"] == "exchanged" else (case.m, case.n)
        sides = tuple(side for side, (size, extent) in enumerate(((m, rows), (n, columns))) if size > extent and size % extent)
        found.setdefault(str(FORMS[seed % len(FORMS)]), set()).add(sides)
    assert len(found) == len(FORMS) and all(kinds - {()} for kinds in found.values())
    assert any((0, 1) in kinds for kinds in found.values())


def to_the_end(index: IndexBuilder, place: SSAValue, extent: int, size: int) -> tuple[SSAValue, SSAValue]:
    """All tiles store what they compute."""
    return index.insert(arith.MinSIOp(index.multiply(place, extent), index.constant(size - extent))), index.constant(size)


@pytest.mark.parametrize("form", [*FORMS[:3], *FORMS[5:]])
def test_what_is_stored_twice_is_told(form: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the simulator, and by the proof, where it is asked to hold stores against one another."""
    options = {"tile": (64, 32, 64), "warps": (4, 1), "num_stages": 3, "split_reduction": "off", **form}
    case = ContractionCase(200, 232, 96, "f16", "nt", "f16", options=options)

    def findings() -> int:
        return len(explained_verdict(kernel_of(stage(case)), fix=False, effort=COMPILED, stores=True).findings)

    assert run(case, 1) == ("", True) and findings() == 0
    monkeypatch.setattr(contraction, "overlapping", to_the_end)
    said, _ = run(case, 1)
    assert "not ordered" in said and findings() >= 1


BESIDE = """
func.func @f(%a: tensor<200x64xf16>, %b: tensor<64x232xf16>, %c: tensor<200x232xf16>) -> tensor<200x232xf16> {
  %r = linalg.matmul ins(%a, %b : tensor<200x64xf16>, tensor<64x232xf16>) outs(%c : tensor<200x232xf16>) -> tensor<200x232xf16>
  return %r : tensor<200x232xf16>
}"""


def test_which_sides_do() -> None:
    """None whose rows end within an access, none of products that read a matrix besides, which may be the one that is written."""
    options: dict[str, Any] = {"tile": (64, 32, 64), "warps": (4, 1), "num_stages": 3, "split_reduction": "off", "form": "roles"}
    wanted: dict[tuple[Layout, int, int], tuple[int, ...]] = {
        ("nt", 200, 232): (0, 1),
        ("tt", 204, 232): (1,),
        ("nn", 204, 232): (0, 1),
        ("nn", 200, 228): (0,),
        ("nt", 200, 228): (0, 1),
    }
    for (layout, m, n), sides in wanted.items():
        case = ContractionCase(m, n, 64, "f16", layout, "f16", options={**options, "row_padding": "off"})
        config = config_of(kernel_of(stage(case)))
        assert isinstance(config, roles.Config) and config.overlaps_ends == sides, (layout, m, n)
    config = config_of(kernel_of(trace(BESIDE, "sm_90a", CompileOptions(**options), until="schedule").stages["schedule"]))
    assert isinstance(config, roles.Config) and config.overlaps_ends == ()


def test_a_result_has_a_tensor_map_for_each_end() -> None:
    options: dict[str, Any] = {"tile": (64, 32, 64), "warps": (4, 1), "num_stages": 3, "split_reduction": "off", "form": "roles"}
    case = ContractionCase(200, 232, 64, "f16", "nt", "f16", options=options)
    (kernel,) = compile(case.text, target="sm_90a", options=CompileOptions(**case.options)).manifest.kernels
    assert [arg.kind for arg in kernel.args].count("tensor_map") == 2 + 4
