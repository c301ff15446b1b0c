"""Fitting the constants of the models (`machine/rates.py`) to measured times of kernels.

Nonlinear least squares on the logarithms of modelled over measured time, with a soft loss, so that no outlier decides (scipy). Constants
are fitted form by form, as factors of those that were there: those that the sample says little about stay.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import exp, log
from typing import Any, Final

from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.loop_nest import loop_nest
from treadle.dialects import dispatch
from treadle.errors import USAGE, TreadleError
from treadle.frontends import mlir
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.machine import Rates, TargetSpec, target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.transforms.kernel.set_kernel_form import answers

FITTED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "roles": (
        *(("roles", name) for name in ("cache_row_clocks", "row_clocks", "stage_clocks", "own_share", "apart_share", "beyond_clocks")),
        *(("roles", name) for name in ("cut_line_factor", "cut_request_factor", "cut_sector_factor", "common_share")),
        *(("roles", name) for name in ("copied_row_clocks", "copied_cache_clocks", "held_clocks", "fill_clocks", "step_clocks")),
        *(("roles", name) for name in ("wait_clocks", "power_factor", "cut_run_clocks")),
        *(("roles", name) for name in ("ring_clocks", "clustered_ring_clocks", "together_clocks", "both_clocks")),
        *(("roles", name) for name in ("clustered_clocks", "larger_clusters_clocks")),
        *(("roles", name) for name in ("tile_overhead", "epilogue_clocks", "cut_store_clocks", "stored_clocks")),
        *(("roles", name) for name in ("deferred_overhead", "deferred_clocks", "ping_pong_overhead", "ping_pong_share")),
        ("streaming", "fixed_clocks"),
    ),
    "tiles": (("general", "piece_clocks"),),
    "streaming": tuple(("streaming", name) for name in ("latency_clocks", "peak_share", "vector_share", "workgroup_clocks", "load_macs")),
    "swapped": tuple(("swapped", name) for name in ("row_clocks", "missing_row_clocks", "stage_clocks", "peak_share", "idle_factor")),
}
"""By form, the constants that its times tell about: those of the forms before are kept."""
STAYS: Final = 0.03
"""Weight of a constant's own distance from what it was, beside a kernel's."""
FURTHEST: Final = log(4)
STARTS: Final = (0.0, -0.5, 0.5)
"""Logarithms of the first constant's factor that fits begin at: where it bounds no kernel's modelled time, nothing leads to it."""
SOFT: Final = 0.08
"""Differences beyond this part count less than their square."""


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A contraction on a machine, in the form that its overrides ask for, and its measured time. `module` holds the nest's operations."""

    name: str
    module: builtin.ModuleOp
    problem: KernelProblem
    form: str
    seconds: float
    is_own_choice: bool

    def modelled(self, spec: TargetSpec) -> float:
        """Seconds by the models with the rates of `spec`."""
        return answers(self.problem.on_product(spec))[0].choices[0].seconds


def timed_kernels(text: str, name: str, target: str, times: Sequence[tuple[CompileOptions, float]]) -> list[TimedKernel]:
    """The kernels of a program that is one contraction; none for other programs. `times`: in ms, by options."""
    if not times:
        return []
    module, spec = mlir.load(text, name), target_spec(target)
    run_passes(module, tensor_passes(spec, times[0][0]))
    kernels = [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)]
    if len(kernels) != 1 or (nest := loop_nest(kernels[0])).kind != "contraction":
        return []
    found: list[TimedKernel] = []
    for options, ms in times:
        problem = KernelProblem(nest, spec, options.overrides, options.f32_precision, options.fp8_accumulation)
        best = answers(problem)[0]
        if best.choices:
            found.append(TimedKernel(name, module, problem, best.form.NAME, ms / 1e3, not options.tile))
    return found


def with_rates(spec: TargetSpec, rates: Rates) -> TargetSpec:
    """The machine with other constants."""
    return replace(spec, product=replace(spec.product, fitted=rates))


def changed(rates: Rates, places: Sequence[tuple[str, str]], factors: Sequence[float]) -> Rates:
    """The constants at `places` (record and field) times so much."""
    for (group, name), factor in zip(places, factors, strict=True):
        record = getattr(rates, group)
        rates = replace(rates, **{group: replace(record, **{name: getattr(record, name) * factor})})
    return rates


def fit(spec: TargetSpec, kernels: Sequence[TimedKernel]) -> Rates:
    """The rates of `spec` fitted to kernels. Raises TR001 where scipy is missing."""
    try:
        least_squares: Any = import_module("scipy.optimize").least_squares
    except ImportError as problem:
        raise TreadleError(USAGE, message=f"fitting needs scipy: pip install 'treadle[calibrate]' ({problem})") from problem
    rates = spec.rates
    for form, places in FITTED.items():
        of_form = [kernel for kernel in kernels if kernel.form == form and not kernel.is_own_choice]
        if len(of_form) < 2 * len(places):
            continue

        def residuals(
            logs: Any,
            of_form: Sequence[TimedKernel] = of_form,
            places: Sequence[tuple[str, str]] = places,
            rates: Rates = rates,
        ) -> list[float]:
            tried = with_rates(spec, changed(rates, places, [exp(value) for value in logs]))
            return [log(kernel.modelled(tried) / kernel.seconds) for kernel in of_form] + [STAYS * value for value in logs]

        starts = [[first] + [0.0] * (len(places) - 1) for first in STARTS]
        asked: dict[str, Any] = {"bounds": (-FURTHEST, FURTHEST), "loss": "soft_l1", "f_scale": SOFT, "diff_step": 0.02, "max_nfev": 20}
        fits: list[Any] = [least_squares(residuals, start, **asked) for start in starts]
        logs: list[float] = min(fits, key=lambda found: found.cost).x.tolist()
        rates = changed(rates, places, [exp(value) for value in logs])
    return rates


@dataclass(frozen=True, slots=True)
class Quality:
    """How good models are on measured kernels: by form, the number of kernels, and the median and the 95 % quantile of how far modelled
    times are off, as parts; and of how much slower the candidate of least modelled time is than the fastest, over shapes.
    """

    errors: Mapping[str, tuple[int, float, float]]
    shapes: int
    lost_median: float
    lost_95: float


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which so large a part of `values` lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def quality(spec: TargetSpec, kernels: Sequence[TimedKernel]) -> Quality:
    """See `Quality`. The compiler's own choice of an earlier fit is no candidate: it is one of the others, or will be chosen anew."""
    by_form: dict[str, list[float]] = {}
    by_shape: dict[str, list[tuple[float, float]]] = {}
    for kernel in (kernel for kernel in kernels if not kernel.is_own_choice):
        modelled = kernel.modelled(spec)
        by_form.setdefault(kernel.form, []).append(abs(log(modelled / kernel.seconds)))
        by_shape.setdefault(kernel.name, []).append((modelled, kernel.seconds))
    lost = [min(tried)[1] / min(seconds for _, seconds in tried) - 1 for tried in by_shape.values() if len(tried) > 1] or [0.0]
    errors = {form: (len(all_), exp(statistics.median(all_)) - 1, exp(quantile(all_, 0.95)) - 1) for form, all_ in by_form.items()}
    return Quality(errors, len(lost), statistics.median(lost), quantile(lost, 0.95))
