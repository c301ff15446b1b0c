"""A small Llama block behind `torch.compile`: its result beside eager's, what was taken and why, and what one of its kernels does when.

Run it: python examples/llama_block.py [picture.svg]

On a GPU the block runs there, and Inductor has the rest; without one the regions run on the simulator and the rest operator by operator.
The kernel's timeline is a model of sm_90a either way, and needs no device.
"""

# pyright: reportUnknownMemberType=false

import sys
from pathlib import Path
from typing import Any

import torch

import treadle.torch
from treadle.timeline.kernels import Timeline, timelines

nn, F = torch.nn, torch.nn.functional


def rotated(x: Any) -> Any:
    """Rotary positions: `x` is batch, heads, positions, width of a head."""
    a, b = x.chunk(2, -1)
    rates = 10000.0 ** -(torch.arange(a.shape[-1], device=x.device) / a.shape[-1])
    angles = (torch.arange(x.shape[-2], device=x.device)[:, None] * rates).to(x.dtype)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


class LlamaBlock(nn.Module):
    """Attention whose heads share keys in groups, and a gated MLP, each behind a norm and added to what goes in."""

    def __init__(self, heads: int = 8, shared: int = 2, head: int = 16, hidden: int = 344) -> None:
        super().__init__()
        width = heads * head
        self.head = head
        self.before, self.behind = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, shared * head, bias=False), nn.Linear(width, shared * head, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.before(x)
        q, k, v = (p(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        y = self.behind(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def compare(block: LlamaBlock, x: Any) -> float:
    """The largest difference of the compiled block from the block in float64, over the largest value."""
    options = {} if x.is_cuda else {"treadle.rest": "eager", "treadle.target": "sim"}
    with torch.no_grad():
        found = torch.compile(block, backend="treadle", options=options)(x)
        right = LlamaBlock().to(x.device).double()
        right.load_state_dict(block.state_dict())
        exact = right(x.double())
    return float((found.double() - exact).abs().max() / exact.abs().max())


def widest_kernel() -> Timeline:
    """The timeline of the kernel with the most operators behind its product."""
    region = max((region for region in treadle.torch.report().regions if region.taken), key=lambda region: len(region.operators))
    (found,) = timelines(treadle.torch.program(region.program).stages["tensor"], "sm_90a")
    return found


def main(picture: Path | None = None) -> float:
    """Compile, compare, report and draw; the error of the compiled block."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    block, x = LlamaBlock().to(device, dtype), torch.randn(2, 48, 128, device=device, dtype=dtype)
    error = compare(block, x)
    print(f"largest difference from float64: {error:.1e} of the largest value")
    print(treadle.torch.report())
    timeline = widest_kernel()
    print(f"{timeline.kernel}: {timeline.outcome.clocks:.0f} clocks of {', '.join(timeline.lanes)}")
    if picture is not None:
        from treadle.timeline.draw import draw

        draw([timeline], picture, 0.0, timeline.outcome.clocks)
        print(f"drawn to {picture}")
    return error


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])) > 2e-2)
