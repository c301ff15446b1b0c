# pyright: reportUnknownLambdaType=false
"""Which regions are taken of those that can be: by the model, by measuring, and what is kept of it."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from pytorch.blocks import ResidualBlock  # noqa: E402

import treadle.torch  # noqa: E402
from treadle.machine import target_spec  # noqa: E402
from treadle.torch import choice, measuring  # noqa: E402
from treadle.torch.library import Replaced  # noqa: E402
from treadle.torch.settings import Settings, settings_of  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(measuring, "default_folder", lambda: tmp_path)
    torch._dynamo.reset()
    treadle.torch.clear_report()
    torch.manual_seed(0)
    yield


class FakeTimer:
    """Runs each call once, compares what they give, and says the times that it was made with."""

    def __init__(self, ours: float, theirs: float) -> None:
        self.times = {measuring.OURS: ours, measuring.THEIRS: theirs}
        self.count = 0

    def __call__(self, calls: Mapping[str, Callable[[], Any]]) -> Mapping[str, float]:
        self.count += 1
        ours, theirs = (calls[name]() for name in (measuring.OURS, measuring.THEIRS))
        for mine, right in zip(ours, theirs, strict=True):
            assert (torch.as_tensor(mine) - right).abs().max() <= 1e-4
        return self.times


def run(model: Any, x: Any, **options: Any) -> Any:
    settings = {"treadle.rest": "eager", "treadle.target": "sim", **{f"treadle.{name}": value for name, value in options.items()}}
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(model, backend=treadle.torch.backend, fullgraph=True, options=settings)(x)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_what_is_measured_slower_is_left(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(13, 13), nn.ReLU(), nn.Linear(13, 13), nn.ReLU())
    x = torch.randn(5, 13)
    slow = FakeTimer(11, 10)
    monkeypatch.setattr(measuring, "timer", slow)
    assert (run(model, x, choice="measured", rest=rest) - model(x)).abs().max() <= 1e-5
    report = treadle.torch.report()
    assert (report.taken, len(report.regions), slow.count) == (0, 2, 1)  # two layers, one program
    assert report.regions[0].measured_us == (11, 10)
    assert "left: 11.0 us measured, 10.0 us what it replaces" in str(report)


def test_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Linear(13, 17), torch.randn(5, 13)
    monkeypatch.setattr(measuring, "timer", FakeTimer(9, 10))
    run(model, x, choice="measured")
    other = FakeTimer(50, 10)
    monkeypatch.setattr(measuring, "timer", other)
    run(model, x, choice="measured")
    report = treadle.torch.report()
    assert (report.taken, other.count) == (2, 0)
    assert report.regions[1].measured_us == (9, 10)
    for path in measuring.default_folder().rglob("region-*.json"):
        path.write_text(path.read_text().replace('"sim"', '"another product"'), encoding="utf-8")
    run(model, x, choice="measured")
    assert other.count == 1
    assert treadle.torch.report().taken == 2


def test_images_and_dynamic_sizes_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = FakeTimer(9, 10)
    monkeypatch.setattr(measuring, "timer", fast)
    options = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.choice": "measured"}
    block, x = ResidualBlock().to(memory_format=torch.channels_last), torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.compile(block, backend=treadle.torch.backend, dynamic=True, options=options)(x)
    assert fast.count == treadle.torch.report().taken == 5


def test_what_is_modelled_slower_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Linear(13, 17), torch.randn(5, 13)
    run(model, x, choice="modelled")
    (region,) = treadle.torch.report().regions
    assert region.taken
    assert region.modelled_us is not None and region.replaced_us is not None
    assert f"{region.modelled_us:.1f} us modelled, {region.replaced_us:.1f} us what it replaces" in str(region)
    slower = 2 * region.replaced_us
    monkeypatch.setattr(choice, "modelled_us", lambda program: slower)
    run(model, x, choice="modelled")
    left = treadle.torch.report().regions[1]
    assert not left.taken
    assert "are modelled for its 1 launch(es)" in left.reason
    run(model, x)  # on the simulator all are taken
    assert treadle.torch.report().regions[2].taken
    assert treadle.torch.report().flop_share == pytest.approx(2 / 3)


def test_choices_follow_modes() -> None:
    assert settings_of({}, None)[0].chosen == "modelled"
    assert settings_of({}, "reduce-overhead")[0].chosen == "modelled"
    assert settings_of({}, "max-autotune-no-cudagraphs")[0].chosen == "measured"
    assert settings_of({"treadle.strict": True}, "max-autotune")[0].chosen == "all"
    assert settings_of({"treadle.choice": "all"}, "max-autotune")[0].chosen == "all"


def test_a_library_is_modelled_by_its_limits() -> None:
    spec = target_spec("sm_90a")
    large = Replaced(2 * 4096**3, 3 * 2 * 4096**2, 0, 2048, "bf16").seconds(spec)
    assert 150e-6 < large < 260e-6
    assert Replaced(2 * 4096**3, 3 * 2 * 4096**2, 2 * 4096**2, 2048, "bf16").seconds(spec) > large
    assert Replaced(2 * 4096**3, 3 * 4 * 4096**2, 0, 2048, "").seconds(spec) > 5 * large
    one_row = Replaced(2 * 4096**2, 2 * 4096**2, 0, 32, "bf16").seconds(spec)
    assert 8e-6 < one_row < 20e-6
    few = Replaced(2 * 4096**2 * 128, 3 * 2 * 4096 * 128, 0, 32, "bf16").seconds(spec)
    assert few > Replaced(2 * 4096**2 * 128, 3 * 2 * 4096 * 128, 0, 132, "bf16").seconds(spec)


def test_what_is_replaced_is_measured_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode whose graphs are Inductor's compiles around the measurement: copies into a graph's inputs are no part of the times."""
    inductor = import_module("torch._inductor")
    found: list[bool] = []

    def compiling(*_: Any, options: dict[str, Any], **__: Any) -> None:
        with inductor.config.patch(options["config_patches"]):
            found.append(inductor.config.triton.cudagraphs)

    monkeypatch.setattr(inductor, "standalone_compile", compiling)
    graph = torch.fx.symbolic_trace(nn.ReLU()).graph
    with inductor.config.patch({"triton.cudagraphs": True}):
        measuring._replaced(graph, [torch.randn(2, 3)], Settings())
    assert found == [False]
