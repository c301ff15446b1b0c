"""The report of a random sample: quantiles, classes, the worst."""

import pytest

from treadle.bench.named_shapes import named_workload
from treadle.bench.random_report import by_class, classes, lines, quantiles, worst
from treadle.bench.records import CaseRecord


def record(name: str, ratio: float | None) -> CaseRecord:
    made = CaseRecord(name, ms={"treadle": 1.0, "torch": ratio or 1.0})
    if ratio is not None:
        made.ratio = {"torch": ratio}
    return made


def test_quantiles() -> None:
    found = quantiles([0.5, *[1.0] * 18, 2.0])
    assert found["geometric mean"] == pytest.approx(1.0)
    assert (found["min"], found["5%"], found["median"]) == (0.5, 0.5, 1.0)
    assert quantiles([]) == {}


def test_classes() -> None:
    workload = named_workload("gemm-bf16-nt-256x512x72")
    assert workload is not None
    assert classes(workload, 16) == {"type": "bf16", "row pitch": "multiple of 16 bytes", "sizes": "multiples of 8", "waves": "1/4..1/2"}
    assert "waves" not in classes(workload, 0)
    sums = named_workload("rowsums-f32-3x4096")
    assert sums is not None
    assert set(classes(sums, 16)) == {"type", "row pitch"}


def test_means_by_class_and_the_worst() -> None:
    records = [record("gemm-bf16-nt-256x512x64", 0.5), record("gemm-bf16-nt-128x512x64", 2.0), record("gemm-f16-nt-8x8x8", None)]
    assert by_class(records, 0)["type"] == {"bf16": (2, pytest.approx(1.0), 0.5)}
    assert [r.name for r in worst(records)] == ["gemm-bf16-nt-256x512x64", "gemm-bf16-nt-128x512x64"]
    records[1].repeatable = False
    shown = "\n".join(lines(records, 0, "the form of {}".format))
    assert "2 workloads (1 without a ratio): geometric mean 1.000, min 0.500" in shown
    assert "0.500 gemm-bf16-nt-256x512x64: the form of gemm-bf16-nt-256x512x64" in shown
    assert "not bitwise repeatable: gemm-bf16-nt-128x512x64" in shown
