"""Samples: determined by their seed, within their ranges, of the shares that they state."""

from collections import Counter

import pytest

from treadle.bench.named_shapes import named_workload
from treadle.bench.random_shapes import SAMPLES, RandomChoice, random_names
from treadle.bench.workload import Workload

COUNT = 400


def workloads(sample: str, seed: int, choice: RandomChoice) -> list[Workload]:
    return [w for name in random_names(sample, COUNT, seed, choice) if (w := named_workload(name)) is not None]


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_name_is_a_workload_and_depends_on_the_seed_alone(sample: str) -> None:
    usual = RandomChoice()
    names = random_names(sample, COUNT, 7, usual)
    assert names[:50] == random_names(sample, 50, 7, usual)
    assert names != random_names(sample, COUNT, 8, usual)
    assert len(workloads(sample, 7, usual)) == COUNT


def test_contractions_have_the_stated_shares() -> None:
    found = workloads("contractions", 3, RandomChoice())
    assert all(2e8 < w.flop < 3e12 for w in found)
    layouts = Counter(w.name.split("-")[2] for w in found)
    assert 0.18 < (layouts["tn"] + layouts["tt"]) / COUNT < 0.32  # a quarter; three standard deviations
    assert 0.68 < (layouts["nt"] + layouts["tt"]) / COUNT < 0.82
    odd = sum(any(int(size) % 8 for size in w.name.split("-")[3].split("x")) for w in found)
    assert 0.13 < odd / COUNT < 0.27


def test_types_and_layouts_are_those_asked_for() -> None:
    found = workloads("contractions", 4, RandomChoice(("f32", "f8E4M3FN"), ("nn",)))
    assert {(w.inputs[0].dtype, w.name.split("-")[2]) for w in found} == {("f32", "nn"), ("f8E4M3FN", "nt")}
    assert all(size % 16 == 0 for w in found if w.inputs[0].dtype != "f32" for spec in w.inputs for size in spec.shape)


def test_long_reductions_are_long() -> None:
    found = workloads("long", 5, RandomChoice())
    kinds = Counter(w.name.split("-")[0] for w in found)
    assert kinds["rowsums"] > kinds["softmax"] > 0
    assert all(max(max(spec.shape) for spec in w.inputs) >= 4096 for w in found)
    assert all(w.rows <= 1024 for w in found)


def test_convolutions_cover_their_ranges() -> None:
    found = workloads("convolutions", 6, RandomChoice())
    numbers = [w.name.split("-") for w in found]
    windows = Counter(next(part for part in parts if part.startswith("k")) for parts in numbers)
    assert set(windows) == {f"k{size}" for size in range(1, 8)}
    assert 0.4 < sum("s2" in parts for parts in numbers) / COUNT < 0.6
    channels = [w.inputs[0].shape[3] for w in found]
    assert min(channels) < 16 and max(channels) > 1024
    assert 0.1 < sum(count % 8 != 0 for count in channels) / COUNT < 0.4
    assert all(1e8 < w.flop < 1.2e12 for w in found)
