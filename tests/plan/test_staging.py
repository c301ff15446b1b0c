"""Paths and shared layouts of contraction operands."""

from typing import Any

import pytest

from treadle.layout.access import bank_conflicts, vector_width
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled
from treadle.machine import target_spec
from treadle.plan.access import AccessFacts, DimFacts
from treadle.plan.contract_layouts import matrix_layouts, multiply_add_layouts
from treadle.plan.layout_choice import GlobalAccess, candidates, global_cost, shared_cost
from treadle.plan.staging import bulk_refusal, descriptor_layout, multiply_add_k_step, register_buffer

RULES = target_spec("sm_90a").bulk_tensor


def facts(
    *,
    pitch: int | None = 512,
    pitch_divisor: int = 1,
    size: int | None = 123,
    align: int = 16,
    extent: int = 128,
    rank: int = 2,
    bits: int = 32,
    begin: int = 64,
) -> AccessFacts:
    rows = DimFacts(pitch, size, pitch_divisor if pitch is None else max(1, pitch & -pitch), 1, 1, extent)
    columns = DimFacts(1, 512, 1, 512, begin, 64)
    outer = tuple(DimFacts(1 << (20 + 2 * i), 3, 1 << (20 + 2 * i), 1, 1) for i in range(rank - 2))
    return AccessFacts((*outer, rows, columns), 2, align, bits)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pitch": 51234}, "pitch 102468 bytes is not a multiple of 16"),
        ({"pitch": None}, "pitch of dimension 0 is dynamic"),
        ({"pitch": 0}, "broadcast"),
        ({"pitch": -512}, "backwards"),
        ({"pitch": 8}, "overlap"),
        ({"align": 8}, "base is aligned to 8 bytes"),
        ({"extent": 512}, "box extent 512"),
        ({"size": 0}, "empty"),
        ({"rank": 6}, "rank 6"),
        ({"size": 1 << 31}, "size 2147483648 of dimension 0 is beyond 2147483647"),
        ({"pitch": 1 << 39}, "pitch 1099511627776 bytes of dimension 0 is beyond"),
        ({"begin": 4}, "tiles begin between multiples of 16 bytes"),
        ({"size": None, "bits": 64}, "dynamic size of dimension 0 may be beyond"),
    ],
)
def test_refusals_name_the_broken_rule(change: dict[str, Any], reason: str) -> None:
    assert RULES is not None
    found = bulk_refusal(facts(**change), change.get("rank", 2) - 1, RULES)
    assert found is not None and reason in found


LEGAL: list[dict[str, Any]] = [
    {},
    {"pitch": 520},
    {"pitch": None, "pitch_divisor": 8},
    {"rank": 5},
    {"align": 128},
    {"size": (1 << 31) - 1},
    {"size": None},
    {"pitch": 1 << 38},
    {"bits": 64},
    {"begin": 8},
]


@pytest.mark.parametrize("change", LEGAL)
def test_legal_boxes_are_not_refused(change: dict[str, Any]) -> None:
    assert RULES is not None
    assert bulk_refusal(facts(**change), change.get("rank", 2) - 1, RULES) is None


def test_strided_tiles_are_refused() -> None:
    assert RULES is not None
    assert bulk_refusal(facts(), None, RULES) == "no dimension of the tile has unit stride"


def test_descriptor_layouts_take_the_widest_swizzle() -> None:
    assert descriptor_layout((128, 64), (1, 0), 2, (128, 64, 32)) == swizzled((128, 64), (1, 0), 2, 128)
    assert descriptor_layout((128, 32), (1, 0), 2, (128, 64, 32)) == swizzled((128, 32), (1, 0), 2, 64)
    assert descriptor_layout((64, 192), (1, 0), 2, (128, 64, 32)).shape == (64, 192)


@pytest.mark.parametrize(("target", "name"), [("gfx942", "mfma_16x16x16_f32_f16"), ("gfx1100", "wmma11_16x16x16_f32_f16")])
def test_register_operands_get_a_layout_without_conflicts(target: str, name: str) -> None:
    spec = target_spec(target)
    layouts = matrix_layouts(spec.instruction(name), 128, 128, 2, 2)
    assert layouts.a is not None
    access = GlobalAccess(1, 8, 2)
    layout, cost = register_buffer((128, 32), access, layouts.a, 32 // layouts.k_step, spec.subgroup_size, 4, spec.banks)
    plain = row_major((128, 32), (1, 0))
    assert bank_conflicts(layouts.a, layout, 2, banks=spec.banks.count, bank_bytes=spec.banks.bytes) == 0
    assert bank_conflicts(layouts.a, plain, 2, banks=spec.banks.count, bank_bytes=spec.banks.bytes) > 0
    assert vector_width(layouts.a, layout, 2, 16) >= 4

    def total(shared: SharedLayout) -> int:
        registers = candidates((128, 32), access, spec.subgroup_size, 4, transposes=True)
        return 32 // layouts.k_step * shared_cost(layouts.a, shared, 2, spec.banks) + min(
            global_cost(r, access) + shared_cost(r, shared, 2, spec.banks) for r in registers
        )

    assert cost == total(layout) < total(plain)


def test_multiply_add_operands_are_read_in_wide_accesses() -> None:
    spec = target_spec("sm_90a")
    layouts = multiply_add_layouts(64, 64, 2, 2, 32, 4)
    assert layouts.a is not None and layouts.b is not None
    for shape, access, fragment in (((64, 32), GlobalAccess(1, 4, 4), layouts.a), ((32, 64), GlobalAccess(1, 4, 4), layouts.b)):
        layout, _ = register_buffer(shape, access, fragment, 8, 32, 4, spec.banks)
        assert vector_width(fragment, layout, 4) == 4
        assert bank_conflicts(fragment, layout, 4) == 0


def test_multiply_add_steps_fit_k() -> None:
    assert multiply_add_k_step(32, 4) == 4
    assert multiply_add_k_step(32, 2) == 8
    assert multiply_add_k_step(32, 1) == 8
    assert multiply_add_k_step(32, 8) == 4
    assert multiply_add_k_step(2, 4) == 2
    assert multiply_add_k_step(6, 4) == 2
