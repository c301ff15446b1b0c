"""Fitting the models' constants: times made by a model with other constants are met, on shapes that the fit has not seen as well."""

import random
from functools import cache

import pytest

from treadle.bench.calibration import calibration_names, trials, workload_of
from treadle.bench.rate_fit import TimedKernel, changed, fit, quality, timed_kernels, with_rates
from treadle.machine import Rates, target_spec

TARGET = "sm_90a"
SPEC = target_spec(TARGET)
MOVED = (("roles", "cache_row_clocks"), ("roles", "epilogue_clocks"), ("roles", "tile_overhead"), ("streaming", "latency_clocks"))


def machine_rates() -> Rates:
    """A machine that is another than the product's row says."""
    return changed(SPEC.rates, MOVED, (1.6, 2.5, 2.0, 1.6))


@cache
def kernels(seed: int, count: int) -> tuple[TimedKernel, ...]:
    """Kernels of random shapes with the times of that machine, which differ by up to 2 % from run to run."""
    noise, other = random.Random(seed), with_rates(SPEC, machine_rates())
    found: list[TimedKernel] = []
    for name in calibration_names(count, seed):
        tried = [(options, 1.0) for options in trials(name, TARGET, 6)]
        found += timed_kernels(workload_of(name).text, name, TARGET, tried)
    return tuple(
        TimedKernel(k.name, k.module, k.problem, k.form, k.modelled(other) * noise.uniform(0.98, 1.02), k.is_own_choice) for k in found
    )


def test_a_fit_models_shapes_that_it_has_not_seen() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    fitted = with_rates(SPEC, fit(SPEC, kernels(1, 20)))
    before, after = quality(SPEC, kernels(3, 8)), quality(fitted, kernels(3, 8))
    assert before.errors["roles"][1] > 0.05
    assert after.errors["roles"][1] < 0.03 and after.errors["roles"][2] < 0.15
    assert after.lost_95 <= max(before.lost_95, 0.01), "of eight shapes another model may choose the best by chance"


def test_constants_without_kernels_stay() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    assert fit(SPEC, kernels(1, 12)[:3]) == SPEC.rates


def test_the_choice_is_judged_by_measured_times() -> None:
    of_first = [k for k in kernels(3, 8) if k.name == kernels(3, 8)[0].name and not k.is_own_choice]
    best, *_, other = sorted(of_first, key=lambda kernel: kernel.modelled(SPEC))
    assert best.modelled(SPEC) < other.modelled(SPEC)
    slow = TimedKernel(best.name, best.module, best.problem, best.form, 3.0, is_own_choice=False)
    fast = TimedKernel(other.name, other.module, other.problem, other.form, 2.0, is_own_choice=False)
    assert quality(SPEC, [slow, fast]).lost_median == pytest.approx(0.5)
