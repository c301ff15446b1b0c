"""What a random sample shows: quantiles of the ratio to the faster peer, means by class, the worst with the forms chosen for them."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from math import ceil

from treadle.bench.named_shapes import named_workload, pitch_bytes
from treadle.bench.records import CaseRecord, geometric_mean
from treadle.bench.workload import Workload

WAVE_TILE = (128, 256)
"""Waves are counted in tiles of these sizes."""
WAVES = ((0.25, "under 1/4"), (0.5, "1/4..1/2"), (1.0, "1/2..1"), (2.0, "1..2"), (4.0, "2..4"), (float("inf"), "4 and more"))
WORST = 20


def quantiles(ratios: Sequence[float]) -> dict[str, float]:
    """Geometric mean, least, 5 %, 25 % and 50 % of the ratios (none of nothing)."""
    if not ratios:
        return {}
    ordered = sorted(ratios)
    found = {"geometric mean": geometric_mean(ordered) or 0.0, "min": ordered[0]}
    for part in (0.05, 0.25):
        found[f"{part:.0%}"] = ordered[max(0, ceil(part * len(ordered)) - 1)]
    return found | {"median": statistics.median(ordered)}


def classes(workload: Workload, units: int) -> dict[str, str]:
    """The classes that a workload counts in; waves need the machine's compute units (0: unknown)."""
    found = {"type": workload.inputs[0].dtype, "row pitch": f"multiple of {pitch_bytes(workload)} bytes"}
    if workload.name.startswith("gemm"):
        shape = workload.outputs[0].shape
        batch = shape[0] if len(shape) > 2 else 1
        sizes = (workload.rows, workload.columns, workload.flop // (2 * batch * workload.rows * workload.columns))
        found["sizes"] = f"multiples of {next(step for step in (128, 64, 8, 1) if not any(size % step for size in sizes))}"
        if units:
            tiles = batch * ceil(workload.rows / WAVE_TILE[0]) * ceil(workload.columns / WAVE_TILE[1])
            found["waves"] = next(text for most, text in WAVES if tiles / units < most)
    return found


def by_class(records: Sequence[CaseRecord], units: int) -> dict[str, dict[str, tuple[int, float, float]]]:
    """For each kind of class and each class: number of cases, geometric mean of the ratios, least ratio."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        workload = named_workload(record.name)
        if workload is None or record.best_ratio is None:
            continue
        for kind, name in classes(workload, units).items():
            found.setdefault(kind, {}).setdefault(name, []).append(record.best_ratio)
    return {
        kind: {name: (len(ratios), geometric_mean(ratios) or 0.0, min(ratios)) for name, ratios in sorted(named.items())}
        for kind, named in found.items()
    }


def worst(records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """The cases that are slowest beside their peer, slowest first."""
    measured = [record for record in records if record.best_ratio is not None]
    return sorted(measured, key=lambda record: record.best_ratio or 0.0)[:WORST]


def lines(records: Sequence[CaseRecord], units: int, chosen: Callable[[str], str]) -> list[str]:
    """The report as text; `chosen` gives the form that a workload of that name got."""
    ratios = [record.best_ratio for record in records if record.best_ratio is not None]
    report = ["peer / treadle over " + _counted(len(ratios), len(records)) + ": " + _pairs(quantiles(ratios))]
    for kind, named in by_class(records, units).items():
        shown = "; ".join(f"{name} ({count}) {mean:.3f}, least {least:.2f}" for name, (count, mean, least) in named.items())
        report.append(f"by {kind}: {shown}")
    report += [f"{record.best_ratio:.3f} {record.name}: {chosen(record.name)}" for record in worst(records)]
    unstable = [record.name for record in records if record.status == "ok" and not record.repeatable]
    return [*report, *([f"not bitwise repeatable: {', '.join(unstable)}"] if unstable else [])]


def _counted(measured: int, asked: int) -> str:
    return f"{measured} workloads" + (f" ({asked - measured} without a ratio)" if asked != measured else "")


def _pairs(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())
