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
from treadle.torch.library_times import Product  # noqa: E402
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


class Behind(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


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
    assert str(report).count("left: 11.0 us measured, 10.0 us what it replaces") == str(report).count("us measured") == 2


@pytest.mark.parametrize(("ours", "theirs", "taken"), [(10.04, 10, 1), (10.06, 10, 0), (99.5, 100, 0), (98.9, 100, 1)])
def test_what_is_as_fast_is_taken_where_the_host_counts(ours: float, theirs: float, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short kernels leave the host little time; long ones must be faster where they were measured to be so beside others, too."""
    monkeypatch.setattr(measuring, "timer", FakeTimer(ours, theirs))
    run(nn.Linear(13, 17), torch.randn(5, 13), choice="measured")
    assert treadle.torch.report().taken == taken


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


def test_what_the_models_are_not_sure_of_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else: the product alone runs on the other side, what follows it is modelled."""
    model, x = nn.Sequential(nn.Linear(13, 17, bias=False), nn.ReLU()), torch.randn(5, 13)
    run(model, x, choice="modelled")
    known = treadle.torch.report().regions[0].replaced_us
    assert known is not None

    class Products(FakeTimer):
        def __call__(self, calls: Mapping[str, Callable[[], Any]]) -> Mapping[str, float]:
            self.count += 1
            (mine,), (product,) = (calls[name]() for name in (measuring.OURS, measuring.THEIRS))
            assert (torch.as_tensor(mine) - product.relu()).abs().max() <= 1e-4 < product.relu().sub(product).abs().max()
            return self.times

    long = 1 + 2 * choice.SMALL_US / known
    cases = (
        (1.0, 900.0, True, False),
        (1.0, 1.0, True, True),
        (0.45, 900.0, False, True),
        (1.5, 1.0, True, True),
        (long, 1.0, False, False),
    )
    for part, ours, is_measured, is_taken in cases:
        for path in measuring.default_folder().rglob("region-*.json"):
            path.unlink()
        timer = Products(ours, 1.0)
        monkeypatch.setattr(measuring, "timer", timer)
        monkeypatch.setattr(choice, "modelled_us", lambda program, part=part: part * known)
        run(model, x, choice="auto")
        region = treadle.torch.report().regions[-1]
        assert (region.measured_us is not None, timer.count, region.taken) == (is_measured, int(is_measured), is_taken)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("behind", "is_inside"),
    [(torch.relu, False), (lambda y: y[:3].relu(), False), (lambda y: torch.softmax(y, 1), True)],
    ids=["relu", "slice", "softmax"],
)
def test_biases_are_in_the_product_where_inductor_leaves_them_there(
    dtype: Any, behind: Any, is_inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes those of f32 out of what is read elementwise, through views or not."""
    found: list[bool] = []

    class Biased(FakeTimer):
        def __call__(self, calls: Mapping[str, Callable[[], Any]]) -> Mapping[str, float]:
            theirs: Any = calls[measuring.THEIRS]
            assert len(theirs()) == 1
            found.extend("addmm" in str(node.target) for node in theirs.func.graph.nodes if "mm" in str(node.target))
            return self.times

    model = nn.Linear(13, 17).to(dtype)
    monkeypatch.setattr(measuring, "timer", Biased(9, 10))
    monkeypatch.setattr(choice, "SURELY_FASTER", 0.0)
    monkeypatch.setattr(choice, "SMALL_US", 1e9)
    run(nn.Sequential(model, Behind(behind)), torch.randn(5, 13, dtype=dtype), choice="auto")
    assert found == [dtype == torch.float16 or is_inside]


def test_examples_take_no_random_numbers_of_the_users() -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["val"] = torch.empty(5, 13)
    before = torch.random.get_rng_state()
    example = measuring._example(node)
    assert example is not None and example.std() > 0.5
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_has_no_memory_to_be_measured_is_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(_: Any) -> Mapping[str, float]:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(measuring, "timer", no_memory)
    run(nn.Linear(13, 17), torch.randn(5, 13), choice="measured")
    assert treadle.torch.report().regions[0].measured_us is None


def test_choices_follow_modes() -> None:
    assert settings_of({}, None)[0].chosen == "auto"
    assert settings_of({}, "reduce-overhead")[0].chosen == "auto"
    assert settings_of({}, "max-autotune-no-cudagraphs")[0].chosen == "measured"
    assert settings_of({"treadle.strict": True}, "max-autotune")[0].chosen == "all"
    assert settings_of({"treadle.choice": "all"}, "max-autotune")[0].chosen == "all"


def product(*extents: int, element: str = "bf16", pitch: int = 16) -> Product:
    batch, rows, columns, depth = extents
    size = 2 if element else 4
    return Product(batch, rows, columns, depth, size * batch * (rows * depth + depth * columns + rows * columns), element, size, pitch)


def test_a_library_is_modelled_by_its_limits() -> None:
    """Beside measured times of cuBLAS on an H200, of a sample that the model was not fitted to."""
    spec = target_spec("sm_90a:h200-sxm")
    large = product(1, 4096, 4096, 4096).seconds(spec)
    assert 150e-6 < large < 260e-6
    assert product(1, 4096, 4096, 4096, element="").seconds(spec) > 5 * large
    assert 8e-6 < product(1, 1, 4096, 4096).seconds(spec) < 20e-6
    assert product(7, 128, 128, 512).seconds(spec) < product(700, 128, 128, 512).seconds(spec) / 3
    followed = Replaced((product(1, 4096, 4096, 4096),), 2 * 4096**2)
    assert followed.seconds(spec) == pytest.approx(large + followed.following_seconds(spec))
    for extents, pitch, us in (((1, 4096, 2048, 640), 16, 23.1), ((1, 512, 6656, 768), 16, 16.1), ((1, 128, 1408, 3584), 16, 12.3)):
        assert product(*extents, pitch=pitch).seconds(spec) == pytest.approx(us * 1e-6, rel=0.2)
    for extents, us in (((1, 3168, 1522, 3659), 337.9), ((1, 651, 1222, 2488), 39.2), ((1, 73, 11053, 645), 29.7)):
        assert product(*extents, pitch=2).seconds(spec) == pytest.approx(us * 1e-6, rel=0.45)


def test_what_a_region_replaces_is_read_off_its_graph() -> None:
    """Products have the extents of their results, and rows begin where the arrays' strides say."""
    from treadle.torch.library import replaced
    from treadle.torch.regions import find

    def products(function: Callable[..., Any], *tensors: Any) -> tuple[Product, ...]:
        from torch.fx.experimental.proxy_tensor import make_fx

        (region,) = find(make_fx(function)(*tensors).graph)
        found = replaced(region)
        assert found is not None
        return found.products

    half = {"dtype": torch.float16}
    (mm,) = products(torch.mm, torch.empty(40, 24, **half), torch.empty(56, 24, **half).t())
    assert (mm.batch, mm.rows, mm.columns, mm.depth, mm.element, mm.pitch_bytes) == (1, 40, 56, 24, "f16", 16)
    assert mm.bytes == 2 * (40 * 24 + 24 * 56 + 40 * 56)
    (mm,) = products(torch.mm, torch.empty(40, 27, **half)[:, :24], torch.empty(24, 56, **half))
    assert mm.pitch_bytes == 2
    (bmm,) = products(torch.bmm, torch.empty(3, 40, 28, **half), torch.empty(3, 28, 52, **half))
    assert (bmm.batch, bmm.rows, bmm.columns, bmm.depth, bmm.pitch_bytes) == (3, 40, 52, 28, 8)
    (seen,) = products(lambda x, w: torch.conv2d(x, w, padding=1, groups=2), torch.empty(3, 8, 9, 7), torch.empty(6, 4, 3, 3))
    assert (seen.batch, seen.rows, seen.columns, seen.depth, seen.element) == (2, 3 * 9 * 7, 3, 4 * 9, "")

    def gradients(g: Any, x: Any, w: Any) -> Any:
        return torch.ops.aten.convolution_backward(g, x, w, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])[:2]

    image, filters = products(gradients, torch.empty(3, 6, 9, 7), torch.empty(3, 8, 9, 7), torch.empty(6, 8, 3, 3))
    assert (image.rows, image.columns, image.depth) == (3 * 9 * 7, 8, 6 * 9)
    assert (filters.rows, filters.columns, filters.depth) == (8 * 9, 6, 3 * 9 * 7)


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
