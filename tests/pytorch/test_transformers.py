"""Models of the transformers library from tiny configurations, forward and backward, against eager."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `make test-torch` installs it")

import treadle.torch  # noqa: E402

SIZES = {"hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 4}
TEXT = {"vocab_size": 50, **SIZES}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaModel(transformers.LlamaConfig(num_key_value_heads=2, use_cache=False, **TEXT)),
    "qwen3": lambda: transformers.Qwen3Model(transformers.Qwen3Config(num_key_value_heads=2, head_dim=6, use_cache=False, **TEXT)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**TEXT, **STILL)),
    "vit": lambda: transformers.ViTModel(transformers.ViTConfig(image_size=12, patch_size=4, **SIZES, **STILL)),
    "clip": lambda: transformers.CLIPTextModel(
        transformers.CLIPTextConfig(max_position_embeddings=16, eos_token_id=49, bos_token_id=48, **TEXT)
    ),
}


def gradients(model: Any, run: Any, x: Any) -> dict[str, Any]:
    """The last hidden state, and the gradients of the model's parameters that have one, by name."""
    model.zero_grad()
    y = run(x).last_hidden_state
    y.sin().sum().backward()
    return {"": y.detach(), **{name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    torch._dynamo.reset()
    treadle.torch.clear_report()
    torch.manual_seed(0)
    model = MODELS[name]()
    x = torch.randn(3, 3, 12, 12) if name == "vit" else torch.randint(0, 47, (3, 7))
    options = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}
    found = gradients(model, torch.compile(model, backend=treadle.torch.backend, options=options, fullgraph=True), x)
    for parameter, theirs in gradients(model, model, x).items():
        assert (found[parameter] - theirs).abs().max() <= 1e-5 * theirs.abs().max().clamp(min=1)
    report = treadle.torch.report()
    assert report.taken == len(report.regions) >= 18
    assert report.programs < len(report.regions)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "vit"])
def test_other_batches_and_lengths_compile_nothing_new(name: str) -> None:
    """Forward and backward, after the first of sizes that are dynamic."""
    torch._dynamo.reset()
    treadle.torch.clear_report()
    torch.manual_seed(0)
    model = MODELS[name]()
    options = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}
    run = torch.compile(model, backend=treadle.torch.backend, options=options, fullgraph=True, dynamic=True)
    counts: list[int] = []
    for batch, length in ((3, 7), (2, 9), (5, 4)):
        x = torch.randint(0, 47, (batch, length))
        found = gradients(model, run, x)
        for parameter, theirs in gradients(model, model, x).items():
            assert (found[parameter] - theirs).abs().max() <= 1e-5 * theirs.abs().max().clamp(min=1)
        counts.append(len(treadle.torch.report().regions))
    assert counts == [counts[0]] * 3
    assert counts[0] >= 18
