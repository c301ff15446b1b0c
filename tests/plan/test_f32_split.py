"""Parts of f32 operands as pure decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import known_targets, target_spec
from treadle.plan.f32_split import SPLITS, macs_per_second, split_refusal
from treadle.plan.tile_config import ContractionShape


@pytest.mark.parametrize("name", SPLITS)
def test_products_are_all_pairs_down_to_a_size_small_ones_first(name: str) -> None:
    """A pair's weight falls with the sum of its numbers: what is left out is smaller than everything that is kept."""
    split = SPLITS[name]
    weights = [a + b for a, b in split.products]
    assert weights == sorted(weights, reverse=True)
    kept = {(a, b) for a in range(split.parts) for b in range(split.parts) if a + b <= max(weights)}
    assert set(split.products) == kept and len(kept) == len(split.products)


@pytest.mark.parametrize(
    ("target", "types", "tera"),
    [
        ("sm_90a", ("bf16", "bf16"), 950),
        ("sm_90a", ("tf32", "tf32"), 474),
        ("gfx942", ("bf16", "bf16"), 1307),
        ("gfx942", ("f32", "f32"), 163),
        ("gfx950", ("bf16", "bf16"), 2517),
    ],
)
def test_peak_rates(target: str, types: tuple[str, str], tera: float) -> None:
    """In multiply-adds counted twice, as data sheets do (at the row's clock)."""
    spec = target_spec(target)
    assert 2e-12 * macs_per_second(spec, spec.instructions_for(*types, "f32")[0]) == pytest.approx(tera, rel=0.01)
    if target == "sm_90a":
        assert 2e-12 * macs_per_second(spec, None) == pytest.approx(59.3, rel=0.01)


@pytest.mark.parametrize(
    ("target", "name", "shape", "reason"),
    [
        ("sm_90a", "3xtf32", (1, 4096, 4096, 4096), None),
        ("sm_90a", "bf16x6", (None, None, 1024, None), None),
        ("sm_90a", "3xtf32", (1, 1, 4096, 4096), "modelled"),
        ("sm_90a", "3xtf32", (1, 64, 64, 64), "modelled"),
        ("gfx942", "3xtf32", (1, 4096, 4096, 4096), "no matrix instruction for tf32"),
        ("gfx942", "bf16x3", (1, 8192, 8192, 8192), None),
        ("gfx950", "bf16x6", (1, 8192, 8192, 8192), None),
    ],
)
def test_where_parts_pay(target: str, name: str, shape: tuple[int | None, int | None, int | None, int | None], reason: str | None) -> None:
    found = split_refusal(SPLITS[name], ContractionShape(*shape), target_spec(target))
    assert (found is None) == (reason is None) and (reason or "") in (found or "")


@given(target=st.sampled_from(known_targets()), name=st.sampled_from(sorted(SPLITS)), m=st.integers(1, 16), k=st.integers(1, 1 << 16))
def test_few_rows_stay_as_they_are(target: str, name: str, m: int, k: int) -> None:
    """The operands' memory traffic would be several times as large."""
    assert split_refusal(SPLITS[name], ContractionShape(1, m, 4096, k), target_spec(target)) is not None
