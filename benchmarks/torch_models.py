"""Blocks of models in PyTorch, with random weights: what `torch_blocks.py` measures, and random ones."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportIncompatibleMethodOverride=false

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

nn, F = torch.nn, torch.nn.functional


def quick_gelu(x: Any) -> Any:
    """The activation of CLIP-L."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "quick-gelu": quick_gelu}


def rms(width: int) -> Any:
    """The norm of Llama."""
    return nn.RMSNorm(width, eps=1e-5)


class Mlp(nn.Module):
    """A norm, then `act(first(x))`, times `gate(x)` where there is one, then `second`; added to the input."""

    def __init__(self, width: int, hidden: int, activation: str, gated: bool, bias: bool, norm: Callable[[int], Any]) -> None:
        super().__init__()
        self.norm, self.activation = norm(width), ACTIVATIONS[activation]
        self.first, self.second = nn.Linear(width, hidden, bias=bias), nn.Linear(hidden, width, bias=bias)
        self.gate = nn.Linear(width, hidden, bias=bias) if gated else None

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        h = self.activation(self.first(y))
        return x + self.second(h if self.gate is None else h * self.gate(y))


class Attention(nn.Module):
    """A norm, attention of `heads` on `shared` keys of `seen` elements a token, and a projection; added to the input."""

    def __init__(
        self,
        heads: int,
        shared: int,
        head: int,
        causal: bool,
        bias: bool,
        norm: Callable[[int], Any],
        seen: int = 0,
        out_bias: bool = False,
    ) -> None:
        super().__init__()
        width = heads * head
        self.norm, self.heads, self.shared, self.head, self.causal = norm(width), heads, shared, head, causal
        self.q, self.o = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias or out_bias)
        self.k, self.v = nn.Linear(seen or width, shared * head, bias=bias), nn.Linear(seen or width, shared * head, bias=bias)

    def split(self, y: Any, context: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values: batch, heads, tokens, elements of a head."""
        projected = (self.q(y), self.k(context), self.v(context))
        q, k, v = (p.view(p.shape[0], p.shape[1], -1, self.head).transpose(1, 2) for p in projected)
        return q, k, v

    def forward(self, x: Any, context: Any = None) -> Any:
        y = self.norm(x)
        q, k, v = self.split(y, y if context is None else context)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=self.heads != self.shared)
        return x + self.o(mixed.transpose(1, 2).reshape(x.shape))


def rotated(x: Any, cosines: Any, sines: Any) -> Any:
    """Rotary positions: tables have a row a token."""
    a, b = x.chunk(2, -1)
    return x * cosines + torch.cat((-b, a), -1) * sines


class LlamaLayer(Attention):
    """A layer of Llama on tokens from the first one on: the tables of rotary positions are arguments."""

    def __init__(self, heads: int, shared: int, head: int, hidden: int) -> None:
        super().__init__(heads, shared, head, True, False, rms)
        self.mlp = Mlp(heads * head, hidden, "silu", True, False, rms)

    def forward(self, x: Any, cosines: Any, sines: Any) -> Any:
        y = self.norm(x)
        q, k, v = self.split(y, y)
        q, k = rotated(q, cosines, sines), rotated(k, cosines, sines)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.mlp(x + self.o(mixed.transpose(1, 2).reshape(x.shape)))


class LlamaStep(LlamaLayer):
    """One new token of each sequence against a static cache of keys and values; `place` is the token's position."""

    def __init__(self, heads: int, shared: int, head: int, hidden: int, batch: int, length: int) -> None:
        super().__init__(heads, shared, head, hidden)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, shared, length, head))

    def forward(self, x: Any, cosines: Any, sines: Any, place: Any) -> Any:
        y = self.norm(x)
        q, k, v = self.split(y, y)
        q, k = rotated(q, cosines, sines), rotated(k, cosines, sines)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        seen = torch.arange(self.keys.shape[2], device=x.device) <= place
        q = q.view(x.shape[0], self.shared, -1, self.head)  # those that share keys, as rows
        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen.view(1, 1, 1, -1))
        return self.mlp(x + self.o(mixed.reshape(x.shape)))


class Bert(nn.Module):
    """A layer of BERT: each norm behind the sum."""

    def __init__(self, heads: int, head: int, hidden: int) -> None:
        super().__init__()
        width = heads * head
        self.attention = Attention(heads, heads, head, False, True, lambda _: nn.Identity())
        self.mlp = Mlp(width, hidden, "gelu", False, True, lambda _: nn.Identity())
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return self.behind(self.mlp(self.before(self.attention(x))))


class Resnet(nn.Module):
    """A residual block of SDXL's UNet, with the embedding of the time."""

    def __init__(self, channels: int, filters: int, embedded: int, groups: int = 32) -> None:
        super().__init__()
        self.before, self.behind = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, filters)
        self.first, self.second = nn.Conv2d(channels, filters, 3, padding=1), nn.Conv2d(filters, filters, 3, padding=1)
        self.time = nn.Linear(embedded, filters)
        self.beside = nn.Conv2d(channels, filters, 1) if channels != filters else nn.Identity()

    def forward(self, x: Any, time: Any) -> Any:
        y = self.first(F.silu(self.before(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.beside(x) + self.second(F.silu(self.behind(y)))


class Transformer(nn.Module):
    """A transformer block of SDXL's UNet: attention, attention on the text, and a GEGLU MLP."""

    def __init__(self, heads: int, head: int, seen: int) -> None:
        super().__init__()
        width, norm = heads * head, nn.LayerNorm
        self.own = Attention(heads, heads, head, False, False, norm, out_bias=True)
        self.text = Attention(heads, heads, head, False, False, norm, seen, out_bias=True)
        self.norm, self.up, self.down = norm(width), nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, text: Any) -> Any:
        x = self.text(self.own(x), text)
        linear, gate = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(linear * F.gelu(gate))


def encoder(heads: int, head: int, hidden: int, activation: str = "gelu", causal: bool = False) -> Any:
    """A layer of ViT or CLIP: each norm in front."""
    norm = nn.LayerNorm
    return nn.Sequential(Attention(heads, heads, head, causal, True, norm), Mlp(heads * head, hidden, activation, False, True, norm))


@dataclass(frozen=True)
class Block:
    """`make` gives the model, `shapes` are its inputs' (N(0, 1)), `place` a position, the last input. `is_training`: with backward."""

    make: Callable[[], Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    is_training: bool = False
    has_channels_last: bool = False
    place: int | None = None

    def layout(self, value: Any) -> Any:
        """A module or an image with channels last, where this block's are so."""
        is_image = not isinstance(value, torch.Tensor) or value.dim() == 4
        return value.to(memory_format=torch.channels_last) if self.has_channels_last and is_image else value

    def inputs(self, device: str) -> tuple[Any, ...]:
        """New ones."""
        made = [self.layout(torch.randn(shape, device=device).to(self.dtype)) for shape in self.shapes]
        return (*made, *([] if self.place is None else [torch.tensor([self.place], device=device)]))


def prefill(batch: int, length: int, heads: int = 32, shared: int = 8, head: int = 128, hidden: int = 14336) -> Block:
    """A Llama layer, of Llama-3-8B by default."""
    shapes = ((batch, length, heads * head), (length, head), (length, head))
    return Block(lambda: LlamaLayer(heads, shared, head, hidden), shapes, torch.bfloat16)


def step(batch: int, length: int, heads: int = 32, shared: int = 8, head: int = 128, hidden: int = 14336) -> Block:
    """A step of such a layer with a cache for `length` tokens that is full up to the last few."""
    shapes = ((batch, 1, heads * head), (1, head), (1, head))
    return Block(lambda: LlamaStep(heads, shared, head, hidden, batch, length), shapes, torch.bfloat16, place=length - 3)


def mlp(batch: int, length: int, width: int = 4096, hidden: int = 14336, is_training: bool = False) -> Block:
    """A SwiGLU MLP."""
    return Block(lambda: Mlp(width, hidden, "silu", True, False, rms), ((batch, length, width),), torch.bfloat16, is_training)


def resnet(channels: int, filters: int, size: int, has_channels_last: bool) -> Block:
    """A residual block of SDXL's UNet, two images."""
    shapes = ((2, channels, size, size), (2, 1280))
    return Block(lambda: Resnet(channels, filters, 1280), shapes, torch.float16, has_channels_last=has_channels_last)


def unet_transformer(heads: int, tokens: int) -> Block:
    """A transformer block of SDXL's UNet, two images and their texts."""
    return Block(lambda: Transformer(heads, 64, 2048), ((2, tokens, heads * 64), (2, 77, 2048)), torch.float16)


BLOCKS: dict[str, Block] = {
    "llama-prefill": prefill(1, 2048),
    "llama-decode-1": step(1, 2304),
    "llama-decode-16": step(16, 2304),
    "clip-l-text": Block(lambda: encoder(12, 64, 3072, "quick-gelu", True), ((16, 77, 768),), torch.float16),
    "clip-bigg-text": Block(lambda: encoder(20, 64, 5120, "gelu", True), ((16, 77, 1280),), torch.float16),
    "bert-base": Block(lambda: Bert(12, 64, 3072), ((32, 128, 768),), torch.float16),
    "vit-base": Block(lambda: encoder(12, 64, 3072), ((64, 197, 768),), torch.float16),
    "sdxl-resnet-1280": resnet(1280, 1280, 32, False),
    "sdxl-resnet-1280-channels-last": resnet(1280, 1280, 32, True),
    "sdxl-resnet-640-channels-last": resnet(320, 640, 64, True),
    "sdxl-transformer-1280": unet_transformer(20, 1024),
    "sdxl-transformer-640": unet_transformer(10, 4096),
    "swiglu-training": mlp(1, 2048, is_training=True),
    "llama-prefill-4x512": prefill(4, 512),
    "mlp-2048": mlp(1, 2048),
    "mlp-16": mlp(16, 1),
    "mlp-1": mlp(1, 1),
}
TINY: dict[str, Block] = {
    "llama-prefill": prefill(2, 5, 4, 2, 6, 37),
    "llama-decode": step(3, 9, 4, 2, 6, 37),
    "clip-text": Block(lambda: encoder(3, 5, 41, "quick-gelu", True), ((3, 7, 15),), torch.float32),
    "bert": Block(lambda: Bert(3, 5, 41), ((3, 7, 15),), torch.float16),
    "sdxl-resnet": Block(lambda: Resnet(4, 6, 5, 2), ((2, 4, 6, 6), (2, 5)), torch.float32),
    "sdxl-resnet-channels-last": Block(lambda: Resnet(4, 4, 5, 2), ((2, 4, 6, 6), (2, 5)), torch.float16, has_channels_last=True),
    "sdxl-transformer": Block(lambda: Transformer(3, 4, 7), ((2, 5, 12), (2, 3, 7)), torch.float16),
    "swiglu-training": mlp(1, 7, 24, 37, is_training=True),
}


def random_block(rng: random.Random, largest: int = 8192) -> tuple[str, Block]:
    """An MLP or attention of any width, activation, gate, bias, type and size. `largest`: width and MLP's inner width."""
    heads, head = rng.choice([1, 2, 4, 7, 8, 12, 16, 32]), rng.choice([32, 40, 64, 72, 80, 96, 128])
    while heads * head > largest:
        heads, head = max(1, heads // 2), head if heads > 1 else head // 2
    width, hidden = heads * head, rng.randint(min(64, largest), largest)
    if rng.random() < 0.3:
        width = rng.randint(min(64, largest), largest)
    activation, gated, bias = rng.choice(["silu", "gelu", "relu"]), rng.random() < 0.5, rng.random() < 0.5
    dtype = rng.choice([torch.bfloat16, torch.float16, torch.float32])
    most = min(4096, largest // 2)
    length = int(most ** rng.random())
    batch = int(max(1, most // length) ** rng.random())
    is_llama = rng.random() < 0.5
    norm = rms if is_llama else nn.LayerNorm
    label = f"{'bias ' if bias else ''}{'rms' if is_llama else 'layer-norm'} {str(dtype).removeprefix('torch.')}"
    if rng.random() < 0.5:
        name = f"mlp {batch}x{length}x{width} {hidden} {activation}{' gated' if gated else ''} {label}"
        return name, Block(lambda: Mlp(width, hidden, activation, gated, bias, norm), ((batch, length, width),), dtype)
    causal, shape = rng.random() < 0.5, (batch, length, heads * head)
    whole = rng.random() < 0.7
    name = f"{'block' if whole else 'attention'} {batch}x{length} {heads}x{head} {f'{hidden} {activation} ' if whole else ''}{label}"

    def make() -> Any:
        first = Attention(heads, heads, head, causal, bias, norm)
        return nn.Sequential(first, Mlp(heads * head, hidden, activation, gated, bias, norm)) if whole else first

    return name, Block(make, (shape,), dtype)
