"""Convolutions behind `torch.compile` on the simulator: a residual block, and models of diffusers from tiny configurations."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from pytorch.blocks import ResidualBlock  # noqa: E402

import treadle.torch  # noqa: E402

OPTIONS = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    treadle.torch.clear_report()
    torch.manual_seed(0)
    yield


def compiled(run: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(run, backend=treadle.torch.backend, fullgraph=True, options={**OPTIONS, **options})


def results(model: Any, run: Callable[..., Any], x: Any, others: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The result, the gradient of the image and those of the model's parameters, by name."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    y = run(x, *others)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
    return {"result": y.detach(), "image": x.grad, **{name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}}


def hold_against_float64(model: Any, run: Callable[..., Any], x: Any, *others: Any, **options: Any) -> None:
    """`run` compiled in f32 is right up to 1e-5 of each tensor's largest value (of 1 where that is less: some gradients are zero but for
    rounding).
    """
    found = results(model, compiled(run, **options), x, others)
    wide = tuple(v.double() if v.is_floating_point() else v for v in others)
    for name, right in results(model.double(), run, x.double(), wide).items():
        assert (found[name].double() - right).abs().max() <= 1e-5 * right.abs().max().clamp(min=1), name
    model.float()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_a_residual_block(rest: str, layout: Any) -> None:
    block = ResidualBlock().to(memory_format=layout)
    x = torch.randn(2, 4, 6, 6).to(memory_format=layout)
    hold_against_float64(block, block, x, **{"treadle.rest": rest})
    report = treadle.torch.report()
    assert report.taken == len(report.regions) == 10
    epilogues = [region.operators[1:] for region in report.regions if region.operators[0] == "convolution" and len(region.kernels) == 1]
    assert [epilogue[-1:] for epilogue in epilogues[1:]] == [("add.Tensor",), (), ("mul.Tensor",)]
    assert len(epilogues[0]) > 1


def test_results_lie_as_they_would() -> None:
    block = ResidualBlock().to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert compiled(block)(x).stride() == block(x).stride()


def test_any_batch_compiles_nothing_new() -> None:
    block = ResidualBlock()
    run = torch.compile(block, backend=treadle.torch.backend, fullgraph=True, dynamic=True, options=OPTIONS)
    counts: list[int] = []
    with torch.no_grad():
        for batch, side in ((2, 6), (3, 8), (5, 4)):
            x = torch.randn(batch, 4, side, side)
            assert (run(x) - block(x)).abs().max() <= 1e-5
            counts.append(len(treadle.torch.report().regions))
    assert counts == [5, 5, 5]


def test_a_unet_of_two_sizes() -> None:
    """As SDXL's: text by cross attention, its summary and the image's sizes beside the time."""
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed; `make test-torch` installs it")
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=2,
        out_channels=2,
        layers_per_block=1,
        block_out_channels=(4, 8),
        norm_num_groups=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(1, 2),
        transformer_layers_per_block=(1, 1),
        cross_attention_dim=6,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=2,
        projection_class_embeddings_input_dim=17,
    )

    def run(x: Any, time: Any, text: Any, summary: Any, sizes: Any) -> Any:
        return unet(x, time, text, added_cond_kwargs={"text_embeds": summary, "time_ids": sizes}).sample

    others = (torch.tensor([3, 7]), torch.randn(2, 5, 6), torch.randn(2, 5), torch.rand(2, 6))
    hold_against_float64(unet, run, torch.randn(2, 2, 8, 8), *others)
    report = treadle.torch.report()
    assert report.taken == len(report.regions) > 200
    assert report.programs < len(report.regions) / 3


def test_a_decoder_of_images() -> None:
    """As Stable Diffusion's: attention in the middle, sizes doubled by repeating pixels."""
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed; `make test-torch` installs it")
    coder = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(4, 6),
        layers_per_block=1,
        latent_channels=2,
        norm_num_groups=2,
        sample_size=8,
    )

    def decode(x: Any) -> Any:
        return coder.decode(x).sample

    hold_against_float64(coder, decode, torch.randn(1, 2, 3, 5))
    report = treadle.torch.report()
    assert report.taken == len(report.regions) > 40
