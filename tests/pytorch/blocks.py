"""Small models with random weights: the blocks that transformers are made of."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")
nn, F = torch.nn, torch.nn.functional


class GatedMlp(nn.Module):
    """`x + down(silu(gate(x)) * up(x))`"""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: Any, angles: Any) -> Any:
    """Rotary positions: `x` is batch, heads, positions, width of a head."""
    a, b = x.chunk(2, -1)
    return x * angles.cos().to(x.dtype) + torch.cat((-b, a), -1) * angles.sin().to(x.dtype)


class LlamaBlock(nn.Module):
    """Attention with rotary positions and shared keys, and a gated MLP, each behind a norm."""

    def __init__(self, heads: int = 4, shared: int = 2, head: int = 6, hidden: int = 37) -> None:
        super().__init__()
        width = heads * head
        self.heads, self.shared, self.head = heads, shared, head
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, shared * head, bias=False) for _ in range(2))
        self.before, self.behind, self.mlp = RmsNorm(width), RmsNorm(width), GatedMlp(width, hidden)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        y = self.before(x)
        q, k, v = (p(y).view(batch, length, -1, self.head).transpose(1, 2) for p in (self.q, self.k, self.v))
        steps = torch.arange(self.head // 2, device=x.device).float() / self.head
        angles = torch.arange(length, device=x.device).float()[:, None] * torch.cat((steps, steps))
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (rotated(k, angles), v))
        mixed = F.scaled_dot_product_attention(rotated(q, angles), k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
        return self.mlp(self.behind(x))


class BertBlock(nn.Module):
    """Attention written out, with biases, and a GELU MLP, each in front of a norm."""

    def __init__(self, heads: int = 3, head: int = 5, hidden: int = 41) -> None:
        super().__init__()
        width = heads * head
        self.heads, self.head = heads, head
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (p(x).view(batch, length, self.heads, self.head).transpose(1, 2) for p in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / self.head**0.5, -1)
        x = self.before(x + self.o((weights @ v).transpose(1, 2).reshape(batch, length, width)))
        return self.behind(x + self.second(F.gelu(self.first(x))))


class ResidualBlock(nn.Module):
    """Two convolutions behind normalisations of groups beside one of one pixel; half the size with gelu, and back."""

    def __init__(self, channels: int = 4, filters: int = 6) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.first, self.second = nn.Conv2d(channels, filters, 3, padding=1), nn.Conv2d(filters, filters, 3, padding=1)
        self.beside, self.down = nn.Conv2d(channels, filters, 1), nn.Conv2d(filters, filters, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(filters, channels, 2, stride=2)

    def forward(self, x: Any) -> Any:
        x = self.second(F.silu(self.first(F.silu(self.norm(x))))) + self.beside(x)
        return self.up(F.gelu(self.down(x)))
