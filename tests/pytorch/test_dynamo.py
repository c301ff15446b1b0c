"""`torch.compile` with this backend on the simulator: blocks forward and backward, what is taken, what is left and what is refused."""

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from pytorch.blocks import BertBlock, GatedMlp, LlamaBlock  # noqa: E402

import treadle.torch  # noqa: E402
from treadle.errors import TreadleError  # noqa: E402
from treadle.torch import region_calls  # noqa: E402

OPTIONS = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """No graphs and no regions of other tests."""
    torch._dynamo.reset()
    treadle.torch.clear_report()
    torch.manual_seed(0)
    yield


def compiled(model: Any, options: dict[str, Any] = OPTIONS, **others: Any) -> Any:
    return torch.compile(model, backend=treadle.torch.backend, fullgraph=True, options=options, **others)


def close(found: Any, right: Any, tolerance: float) -> None:
    scale = right.double().abs().max().clamp(min=0.5)  # some gradients are zero but for rounding
    assert (found.double() - right.double()).abs().max() <= tolerance * scale


def train(model: Any, run: Any, x: Any) -> list[Any]:
    """The result of `run`, and the gradients of the input and of the model's parameters."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    y = run(x)
    (y.float() * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize(
    ("model", "width"), [(lambda: GatedMlp(17, 33), 17), (LlamaBlock, 24), (BertBlock, 15)], ids=["gated-mlp", "llama", "bert"]
)
def test_blocks_are_right_forward_and_backward(model: Any, width: int) -> None:
    block = model()
    x = torch.randn(3, 7, width)
    found = train(block, compiled(block), x)
    right = train(block.double(), block, x.double())
    for mine, theirs in zip(found, right, strict=True):
        close(mine, theirs, 2e-5)
    report = treadle.torch.report()
    assert report.taken == len(report.regions) > 5


def test_bf16_is_no_worse_than_eager() -> None:
    block = LlamaBlock().bfloat16()
    x = torch.randn(2, 9, 24).bfloat16()
    with torch.no_grad():
        found, eager = compiled(block)(x).double(), block(x).double()
        right = block.double()(x.double())
    assert (found - right).abs().max() <= 1.5 * (eager - right).abs().max() + 2.0**-9 * right.abs().max()


@pytest.mark.parametrize("dynamic", [True, None])
def test_other_sizes_compile_nothing_new(dynamic: bool | None) -> None:
    block = BertBlock()
    run = compiled(block, dynamic=dynamic)
    regions: list[int] = []
    with torch.no_grad():
        for batch, length in ((3, 7), (5, 9), (2, 4), (7, 3)):
            x = torch.randn(batch, length, 15)
            close(run(x), block(x), 1e-5)
            regions.append(len(treadle.torch.report().regions))
    assert regions[1] == regions[-1]
    assert regions[0] == regions[1] or dynamic is None


def test_equal_layers_are_one_program() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(13, 13) for _ in range(4)))
    with torch.no_grad():
        compiled(model)(torch.randn(5, 13))
    report = treadle.torch.report()
    assert (len(report.regions), report.programs) == (4, 1)
    assert "4 of 4 matrix products and convolutions taken with 100.0 % of their FLOP, 1 programs" in str(report)


def test_what_follows_a_product_alone_is_in_its_kernel() -> None:
    block = GatedMlp(17, 33)
    with torch.no_grad():
        compiled(block)(torch.randn(3, 5, 17))
    regions = treadle.torch.report().regions
    assert [len(region.kernels) for region in regions] == [1, 1, 1]
    assert any("mul.Tensor" in region.operators for region in regions)
    assert "add.Tensor" in regions[-1].operators
    assert all("blocks.py:" in region.where for region in regions)


def test_norms_of_operands_stay_outside() -> None:
    def block(x: Any, w: Any) -> Any:
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True))).to(torch.bfloat16) @ w

    with torch.no_grad():
        compiled(block)(torch.randn(5, 13), torch.randn(13, 7).bfloat16())
    (region,) = treadle.torch.report().regions
    assert region.operators == ("mm",)


def test_a_mask_that_repeats_along_merged_dimensions_stays_outside() -> None:
    """Scores are a product of batch times heads; a mask without heads is no matrix of that shape."""

    def block(q: Any, k: Any, mask: Any) -> Any:
        return (q @ k.transpose(-1, -2)) / 8 + mask

    with torch.no_grad():
        q, k, mask = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 9, 7), torch.randn(2, 1, 1, 9)
        close(compiled(block)(q, k, mask), block(q, k, mask), 1e-5)
    (region,) = treadle.torch.report().regions
    assert region.operators == ("bmm", "div.Tensor")
    assert len(region.kernels) == 1


def test_what_the_compiler_lacks_stays_with_pytorch() -> None:
    def block(x: Any) -> Any:
        return x @ x

    x = torch.randint(0, 5, (3, 3), dtype=torch.uint8)
    options = {**OPTIONS, "treadle.strict": False}
    assert (compiled(block, options)(x) == block(x)).all()
    assert treadle.torch.report().taken == 0

    y = torch.randn(3, 3)
    options = {**options, "treadle.target": "sm_90a"}
    torch._dynamo.reset()
    assert (compiled(block, options)(y) == block(y)).all()
    (region,) = treadle.torch.report().regions
    assert "tensors are on 'cpu'" in region.reason
    assert '"treadle.target": "sim"' in region.reason, "what to do about it"
    assert "left: its tensors" in str(treadle.torch.report())


def test_strict_says_why() -> None:
    def block(x: Any) -> Any:
        return x @ x

    with pytest.raises(Exception, match=r"TR121.*tensors are on 'cpu'"):
        compiled(block, {**OPTIONS, "treadle.target": "sm_90a"})(torch.randn(3, 3))


@pytest.mark.parametrize("options", [{"treadle.rests": "eager"}, {"treadle.rest": "triton"}])
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    settings_of = import_module("treadle.torch.settings").settings_of
    with pytest.raises(TreadleError, match="TR120"):
        settings_of(options)


def test_the_precision_of_f32_is_pytorchs() -> None:
    settings = import_module("treadle.torch.settings").Settings
    torch.set_float32_matmul_precision("medium")
    try:
        assert settings().compile_options().f32_precision == "tf32"
        assert settings(f32_precision="ieee").compile_options().f32_precision == "ieee"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    home, _, name = project["entry-points"]["torch_dynamo_backends"]["treadle"].partition(":")
    assert getattr(import_module(home), name) is treadle.torch.backend


def test_inductor_runs_the_rest() -> None:
    block = GatedMlp(17, 33)
    x = torch.randn(3, 5, 17)
    with torch.no_grad():
        close(compiled(block, {"treadle.target": "sim", "treadle.strict": True})(x), block(x), 1e-5)
    assert treadle.torch.report().taken == 3


def test_graphs_from_pytorchs_cache_are_in_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    block, x = GatedMlp(17, 33), torch.randn(3, 5, 17)
    options = {"treadle.target": "sim"}
    with torch.no_grad():
        compiled(block, options)(x)
        first = treadle.torch.report()
        torch._dynamo.reset()
        treadle.torch.clear_report()
        for kept in ("treadle.torch.region_calls._called", "treadle.torch.kept_reports._noted", "treadle.torch.programs._programs"):
            monkeypatch.setattr(kept, type(import_module(kept.rpartition(".")[0]).__dict__[kept.rpartition(".")[2]])())
        hits = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]
        close(compiled(block, options)(x), block(x), 1e-5)
    assert torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"] > hits
    assert treadle.torch.report() == first
    assert first.taken == 3


def test_inductors_code_calls_regions_without_the_dispatcher() -> None:
    """As functions of their tensors; parameters that want gradients are passed as they are."""
    from torch._inductor.utils import run_and_get_code

    block, x = GatedMlp(17, 33), torch.randn(3, 7, 17)
    run = compiled(block, {"treadle.target": "sim", "force_disable_caches": True})
    with torch.no_grad():
        found, (code, *_) = run_and_get_code(run, x)
    close(found, block(x), 2e-5)
    regions = treadle.torch.report().taken
    calls = [line for line in code.splitlines() if " = treadle_region_" in line]
    assert len(calls) == regions > 2
    assert "ops.treadle.region.default(" not in code
    assert all("[" not in line.partition(" = ")[2] for line in calls)  # no list of tensors is made
    assert code.count("is_fixed=True") == regions
    results = {line.partition(" = ")[0].strip() for line in code.splitlines() if line.strip().endswith("[0]") and " = buf" in line}
    asserted = [line for line in code.splitlines() if "assert_" in line and any(f"({result}," in line for result in results)]
    assert len(results) == regions
    assert not asserted


def test_a_place_of_several_sizes_has_no_function_of_its_own() -> None:
    from torch._inductor.utils import run_and_get_code

    block = GatedMlp(17, 33)
    run = torch.compile(block, backend="treadle", dynamic=True, options={"treadle.target": "sim", "force_disable_caches": True})
    with torch.no_grad():
        found, (code, *_) = run_and_get_code(run, x := torch.randn(3, 7, 17))
        close(found, block(x), 2e-5)
        close(run(y := torch.randn(5, 6, 17)), block(y), 2e-5)
    assert " = treadle_region('" in code
    assert "is_fixed" not in code


def test_a_fixed_place_calls_a_settled_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stand:
        """A program that settles."""

        target = "sm_90a"
        calls: ClassVar[list[str]] = []

        def __call__(self, *inputs: Any) -> Any:
            self.calls.append("whole")
            return inputs

        def settled(self, inputs: Any, other: Any) -> Any:
            self.settled_for = inputs
            return self.call

        def call(self, *inputs: Any) -> Any:
            self.calls.append("settled")
            return inputs

    x = torch.randn(2)
    for is_fixed in (True, False):
        monkeypatch.setattr(region_calls, "_called", {"digest.graph": Stand()})
        Stand.calls.clear()
        call = region_calls.caller("digest.graph", is_fixed=is_fixed)
        for _ in range(3):
            assert call(x)[0] is x
        assert Stand.calls == (["whole", "settled", "settled"] if is_fixed else ["whole"] * 3)


def test_views_are_passed_as_the_memory_that_they_begin_with() -> None:
    """Of a linear layer's result for each pixel, and of images with channels last: the program sees the views."""
    from torch._inductor.utils import run_and_get_code

    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image = torch.nn.Conv2d(8, 16, 3, padding=1)
            self.last = torch.nn.Conv2d(16, 16, 1)
            self.shift = torch.nn.Linear(5, 16)

        def forward(self, x: Any, time: Any) -> Any:
            return self.last(self.image(x) + self.shift(time)[:, :, None, None])

    block = Shifted().to(memory_format=torch.channels_last)
    x, time = torch.randn(2, 8, 6, 7).to(memory_format=torch.channels_last), torch.randn(2, 5)
    run = compiled(block, {"treadle.target": "sim", "force_disable_caches": True})
    with torch.no_grad():
        found, (code, *_) = run_and_get_code(run, x, time)
    close(found, block(x, time), 2e-5)
    assert treadle.torch.report().taken == 3
    assert "views={" in code
    calls = [line for line in code.splitlines() if " = treadle_region_" in line and "buf" in line.partition(" = ")[0]]
    assert len(calls) == 3
    assert not any("reinterpret_tensor" in line for line in calls)
