"""`treadle calibrate`: fits the constants of the models to kernels of random shapes, measured on this machine's GPU."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from treadle import driver, knobs
from treadle.bench.protocol import QUICK, MeasureOptions
from treadle.bench.random_shapes import FITTING_SEEDS
from treadle.bench.rate_fit import Quality, TimedKernel
from treadle.errors import USAGE, TreadleError
from treadle.machine import TargetSpec, target_spec
from treadle.machine.stored_rates import plain_rates, product_name, store_rates
from treadle.options import CompileOptions
from treadle.tools import report


def calibrate(
    times: Annotated[Path, typer.Option(help="File of times; shapes that it has are not measured again.")] = Path("treadle-times.jsonl"),
    save: Annotated[Path | None, typer.Option(help="File that the product's rates are written to (see TREADLE_RATES).")] = None,
    device: Annotated[Literal["cuda", "hip", "none"], typer.Option(help='Where to measure; "none": fit to times that are there.')] = "cuda",
    target: Annotated[str, typer.Option(help='With --device none: the product of the times, as "sm_90a:h100-pcie".')] = "sm_90a",
    count: Annotated[int, typer.Option(min=1, help="Random shapes.")] = 80,
    tries: Annotated[int, typer.Option(min=2, max=64, help="Tilings of each shape beside the compiler's own choice.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the shapes; 1 and 2 are those for fitting, others for checking.")] = FITTING_SEEDS[0],
    check: Annotated[Path | None, typer.Option(help="Another file of times, of another seed, that the result is judged on.")] = None,
    quick: Annotated[bool, typer.Option("--quick/--long", help="Eleven rounds, short warm-up.")] = True,
) -> int:
    """Fit the models' constants to this machine: measures random contractions in several tilings, and tells how good the models are."""
    from treadle.bench.rate_fit import fit, quality, with_rates

    if device != "none":
        target = driver.target_of_device(device)
        _measure(times, target, device, (count, tries, seed), QUICK if quick else MeasureOptions())
    spec = target_spec(target)
    kernels = _kernels(times, target)
    if not kernels:
        raise TreadleError(USAGE, message=f"{times} holds no times of {target}")
    fitted = with_rates(spec, fit(spec, kernels))
    judged = kernels if check is None else _kernels(check, target)
    _show(spec, fitted, judged, times if check is None else check, quality(spec, judged), quality(fitted, judged))
    if save is not None:
        store_rates(save, spec.product, fitted.rates)
        report.console().print(f"kept in {save}; compilations use it with TREADLE_RATES={save}", markup=False)
    return 0


def _measure(times: Path, target: str, device: str, asked: tuple[int, int, int], measuring: MeasureOptions) -> None:
    from treadle.bench.calibration import add_line, calibration_names, compile_trials, plain_trials, read_lines, trials, workload_of
    from treadle.bench.peers import require_torch
    from treadle.tools.tune import measure_all

    require_torch()
    count, tries, seed = asked
    done = read_lines(times)
    chosen = {name: trials(name, target, tries) for name in calibration_names(count, seed) if name not in done}
    work = [(name, options) for name, tried in chosen.items() for options in tried]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"compiling for {target}", total=len(work))
        for _ in compile_trials(work, target, knobs.WORKERS.get() or os.cpu_count() or 1):
            progress.advance(task)
        task = progress.add_task("measuring", total=len(chosen))
        for name, tried in chosen.items():
            try:
                rows: Sequence[Mapping[str, Any]] = measure_all(workload_of(name).text, plain_trials(tried), device, measuring, 120.0)
            except TreadleError as problem:  # one shape less
                rows = [{"options": {}, "problem": problem.message}]
            add_line(times, name, rows)
            progress.advance(task)


def _kernels(path: Path, target: str) -> list[TimedKernel]:
    from treadle.bench.calibration import read_lines, workload_of
    from treadle.bench.rate_fit import timed_kernels

    found: list[TimedKernel] = []
    for name, times in read_lines(path).items():
        asked: Sequence[tuple[CompileOptions, float]] = [(replace(options, split_reduction="off"), ms) for options, ms in times]
        found += timed_kernels(workload_of(name).text, name, target, asked)
    return found


def _show(spec: TargetSpec, fitted: TargetSpec, kernels: Sequence[TimedKernel], path: Path, before: Quality, after: Quality) -> None:
    out = report.console()
    title = f"{product_name(spec.product)}, judged on {path}"
    made = report.table(title, "form", "kernels", "median error", "95 %", "fitted: median", "95 %")
    for form, (number, median, most) in before.errors.items():
        _, fitted_median, fitted_most = after.errors[form]
        made.add_row(form, str(number), f"{median:.1%}", f"{most:.1%}", f"{fitted_median:.1%}", f"{fitted_most:.1%}")
    out.print(made)
    for name, found in (("as they were", before), ("fitted", after)):
        lost = f"{found.lost_median:.1%} at the median, {found.lost_95:.1%} at the 95 % quantile"
        out.print(f"rates {name}: the choice among {len(kernels)} measured kernels of {found.shapes} shapes is behind the best by {lost}")
    changed = report.table("constants that the fit changed", "constant", "was", "is")
    new = plain_rates(fitted.rates)
    for group, values in plain_rates(spec.rates).items():
        for name, value in values.items():
            if value != new[group][name]:
                changed.add_row(f"{group}.{name}", f"{value:.4g}", f"{new[group][name]:.4g}")
    out.print(changed)
