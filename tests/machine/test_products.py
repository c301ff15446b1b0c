"""Products: which there are, what they agree on, and that models work on facts alone."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.machine import Product, known_targets, target_spec
from treadle.machine.products import PRODUCTS, default_product, derived_rates, products_of
from treadle.plan.f32_split import macs_per_second
from treadle.plan.role_clocks import role_cost
from treadle.plan.role_forms import role_tiles
from treadle.plan.role_search import role_tile
from treadle.plan.role_tiles import ResultShape, RoleProblem
from treadle.plan.small_m import SmallShape, stream_clocks, stream_tiles, swapped_clocks, swapped_tiles
from treadle.plan.tile_config import ContractionShape

HALVES = ResultShape(2, True)


def test_every_architecture_has_products_and_the_first_is_the_default() -> None:
    for name in known_targets():
        assert products_of(name)[0] == default_product(name) == target_spec(name).product
        assert all(product.architecture == name for product in products_of(name))


def test_names_tell_products_apart() -> None:
    names = [(product.architecture, product.name) for product in PRODUCTS]
    devices = [(product.architecture, name) for product in PRODUCTS for name in product.device_names]
    assert len(set(names)) == len(names)
    assert len(set(devices)) == len(devices)
    assert all(product.name == product.name.lower() and ":" not in product.name for product in PRODUCTS)


@pytest.mark.parametrize(
    ("name", "instruction", "tera"),
    [
        ("h100-sxm", "wgmma_m64k16_f32_bf16_bf16", 989),
        ("h100-pcie", "wgmma_m64k16_f32_bf16_bf16", 756),
        ("h20", "wgmma_m64k16_f32_bf16_bf16", 148),
        ("mi300x", "mfma_16x16x16_f32_bf16", 1307),
        ("mi355x", "mfma_16x16x32_f32_bf16", 2500),
        ("rx-9070-xt", "wmma12_16x16x16_f32_bf16", 195),
    ],
)
def test_peak_rates_follow_from_the_rows_as_data_sheets_state_them(name: str, instruction: str, tera: float) -> None:
    product = next(product for product in PRODUCTS if product.name == name)
    spec = replace(target_spec(product.architecture), product=product)
    assert 2e-12 * macs_per_second(spec, spec.instruction(instruction)) == pytest.approx(tera, rel=0.02)


def test_only_what_was_measured_has_fitted_rates() -> None:
    assert [product.name for product in PRODUCTS if product.is_measured] == ["h200-sxm", "h100-sxm"]
    for product in PRODUCTS:
        assert product.rates == (product.fitted or derived_rates(product))


def test_half_the_bandwidth_doubles_what_follows_the_memory() -> None:
    whole = Product("a", "x", "a", compute_units=100, clock_mhz=1000, memory_gbps=2000, l2_bytes=1 << 20)
    half = Product("b", "x", "b", compute_units=100, clock_mhz=1000, memory_gbps=1000, l2_bytes=1 << 20)
    assert half.rates.roles.fill_clocks == pytest.approx(2 * whole.rates.roles.fill_clocks)
    assert half.rates.streaming == whole.rates.streaming


@settings(suppress_health_check=[HealthCheck.too_slow])  # the models are searched in every example
@given(
    units=st.integers(1, 400),
    clock=st.integers(500, 4000),
    bandwidth=st.integers(50, 20_000),
    rate=st.sampled_from([1.0, 0.5, 0.25]),
    size=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 20_000)),
)
def test_models_work_for_any_product_without_fitted_rates(
    units: int, clock: int, bandwidth: int, rate: float, size: tuple[int, int, int]
) -> None:
    product = Product("new", "sm_90a", "new", units, clock, bandwidth, 1 << 20, rate)
    spec = replace(target_spec("sm_90a"), product=product)
    m, n, k = size
    problem = RoleProblem(spec.instruction("wgmma_m64k16_f32_bf16_bf16"), ContractionShape(1, m, n, k), 2, (HALVES,))
    tile = role_tile(problem, spec)
    assert tile is not None
    assert 0 < role_cost(tile, problem, spec) <= min(role_cost(other, problem, spec) for other in role_tiles(problem, spec))
    shape = SmallShape(min(m, 8), n, k, 2, 2, 4, along_k=True, vector=8)
    assert all(stream_clocks(tile, shape, spec) > 0 for tile in stream_tiles(shape, spec)[:3])
    assert all(swapped_clocks(tile, shape, spec) > 0 for tile in swapped_tiles(problem.row, shape, spec))


def test_an_instruction_whose_cycles_nobody_stated_counts_as_eight_times_the_vector_units() -> None:
    spec = target_spec("gfx942")
    row = replace(spec.matrix_instructions[0], cycles=0)
    assert spec.macs_per_clock(row) == 8 * spec.macs_per_clock(None)
