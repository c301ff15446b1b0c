"""Blocks of transformers in PyTorch with this backend against Inductor alone: time of a call under a CUDA graph, and errors.

    python benchmarks/torch_blocks.py                    # all blocks, on the GPU (PyTorch and Triton are there)
    python benchmarks/torch_blocks.py llama-prefill mlp-16 --mode max-autotune-no-cudagraphs --json blocks.json
    python benchmarks/torch_blocks.py --random 20 --seed 7
    python benchmarks/torch_blocks.py --tiny             # small sizes on the simulator: does everything run, and right?

Weights and inputs are random. The time is the median of replays of one captured call, the level-2 cache written over before each. The
error is the largest difference from the block in float64 over the largest value; eager's own stands beside it.
"""

# pyright: reportUnknownMemberType=false

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import treadle.torch

nn, F = torch.nn, torch.nn.functional
REPLAYS = 50
CACHE_BYTES = 256 << 20
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}


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
    """A norm, attention of `heads` on `shared` keys, and a projection; added to the input."""

    def __init__(self, heads: int, shared: int, head: int, causal: bool, bias: bool, norm: Callable[[int], Any]) -> None:
        super().__init__()
        width = heads * head
        self.norm, self.heads, self.shared, self.head, self.causal = norm(width), heads, shared, head, causal
        self.q, self.o = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias)
        self.k, self.v = nn.Linear(width, shared * head, bias=bias), nn.Linear(width, shared * head, bias=bias)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        y = self.norm(x)
        q, k, v = (p(y).view(batch, length, -1, self.head).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=self.heads != self.shared)
        return x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))


def rms(width: int) -> Any:
    """The norm of Llama."""
    return nn.RMSNorm(width, eps=1e-5)


def llama(heads: int, shared: int, head: int, hidden: int) -> Any:
    """A layer without rotary positions."""
    return nn.Sequential(Attention(heads, shared, head, True, False, rms), Mlp(heads * head, hidden, "silu", True, False, rms))


def encoder(heads: int, head: int, hidden: int) -> Any:
    """A layer of BERT, ViT or CLIP."""
    norm = nn.LayerNorm
    return nn.Sequential(Attention(heads, heads, head, False, True, norm), Mlp(heads * head, hidden, "gelu", False, True, norm))


Block = tuple[Callable[[], Any], tuple[int, int, int], torch.dtype]
B16, H16 = torch.bfloat16, torch.float16
BLOCKS: dict[str, Block] = {
    "llama-prefill": (lambda: llama(32, 8, 128, 14336), (1, 2048, 4096), B16),
    "llama-prefill-4x512": (lambda: llama(32, 8, 128, 14336), (4, 512, 4096), B16),
    "llama-tokens-16": (lambda: llama(32, 8, 128, 14336), (16, 1, 4096), B16),
    "llama-tokens-1": (lambda: llama(32, 8, 128, 14336), (1, 1, 4096), B16),
    "mlp-2048": (lambda: Mlp(4096, 14336, "silu", True, False, rms), (1, 2048, 4096), B16),
    "mlp-16": (lambda: Mlp(4096, 14336, "silu", True, False, rms), (16, 1, 4096), B16),
    "mlp-1": (lambda: Mlp(4096, 14336, "silu", True, False, rms), (1, 1, 4096), B16),
    "bert-base": (lambda: encoder(12, 64, 3072), (32, 128, 768), H16),
    "vit-base": (lambda: encoder(12, 64, 3072), (64, 197, 768), H16),
    "clip-large-text": (lambda: encoder(12, 64, 3072), (16, 77, 768), H16),
}
TINY: dict[str, Block] = {
    "llama": (lambda: llama(4, 2, 6, 37), (2, 5, 24), B16),
    "encoder": (lambda: encoder(3, 5, 41), (3, 7, 15), torch.float32),
    "mlp-1": (lambda: Mlp(24, 37, "silu", True, False, rms), (1, 1, 24), H16),
}


def random_block(rng: random.Random) -> tuple[str, Block]:
    """A block of any width, activation, gate, bias, type and size."""
    heads, head = rng.choice([1, 2, 4, 7, 8, 12, 16, 32]), rng.choice([32, 40, 64, 72, 80, 96, 128])
    width, hidden = heads * head, rng.randint(64, 8192)
    activation, gated, bias = rng.choice(list(ACTIVATIONS)), rng.random() < 0.5, rng.random() < 0.5
    dtype = rng.choice([B16, H16, torch.float32])
    length = int(2 ** rng.uniform(0, 12))
    batch = rng.randint(1, max(1, 4096 // length))
    norm = rng.choice([rms, nn.LayerNorm])
    shape = (batch, length, width)
    if rng.random() < 0.5:
        name = f"mlp {activation} gated={gated} bias={bias} {hidden} {shape} {dtype}"
        return name, (lambda: Mlp(width, hidden, activation, gated, bias, norm), shape, dtype)
    name = f"attention heads={heads} bias={bias} {shape} {dtype}"
    return name, (lambda: Attention(heads, heads, head, True, bias, norm), shape, dtype)


def replay_ms(call: Callable[[], Any]) -> float:
    """Median milliseconds of a captured call with a cold level-2 cache."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    flush = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    times: list[float] = []
    for _ in range(REPLAYS):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def error(found: Any, right: Any) -> float:
    """The largest difference over the largest value."""
    return float((found.double() - right).abs().max() / right.abs().max())


def measure(name: str, block: Block, options: argparse.Namespace) -> dict[str, Any]:
    """One block: right, and how fast with either compiler."""
    make, shape, dtype = block
    device = "cpu" if options.tiny else "cuda"
    torch.manual_seed(options.seed)
    model = make().to(device, dtype).eval()
    x = torch.randn(shape, device=device).to(dtype)
    row: dict[str, Any] = {"block": name, "shape": shape, "dtype": str(dtype), "mode": options.mode}
    with torch.no_grad():
        right = make().to(device).double()
        right.load_state_dict(model.state_dict())
        exact, eager = right(x.double()), model(x)
        row["eager_error"] = error(eager, exact)
        del right
        ours = {"treadle.rest": "eager", "treadle.target": "sim"} if options.tiny else None
        for compiler in ("treadle",) if options.tiny else ("inductor", "treadle"):
            torch._dynamo.reset()
            treadle.torch.clear_report()
            backend = treadle.torch.backend if compiler == "treadle" else "inductor"
            mode = {} if options.mode == "default" else {"mode": options.mode}
            run = torch.compile(
                model, backend=backend, dynamic=False, **mode, **({"options": ours} if ours and compiler == "treadle" else {})
            )
            start = time.perf_counter()
            row[f"{compiler}_error"] = error(run(x), exact)
            row[f"{compiler}_compile_s"] = time.perf_counter() - start
            if not options.tiny:
                row[f"{compiler}_ms"] = replay_ms(lambda run=run: run(x))
    if not options.tiny:
        row["ratio"] = row["inductor_ms"] / row["treadle_ms"]
    report = treadle.torch.report()
    row |= {"products": len(report.regions), "taken": report.taken, "left": [r.reason for r in report.regions if not r.taken]}
    row["kernels"] = sum(len(r.kernels) for r in report.regions)
    return row


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blocks", nargs="*", help=f"which: {', '.join(BLOCKS)}")
    parser.add_argument("--mode", default="default", choices=["default", "max-autotune-no-cudagraphs"], help="Inductor's, for both")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random blocks instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="small blocks on the simulator")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    chosen = TINY if options.tiny else {n: b for n, b in BLOCKS.items() if not options.blocks or n in options.blocks}
    if options.random:
        chosen = dict(random_block(rng) for _ in range(options.random))
    rows: list[dict[str, Any]] = []
    for name, block in chosen.items():
        row = measure(name, block, options)
        rows.append(row)
        print(" ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in row.items()), flush=True)
    if ratios := [row["ratio"] for row in rows if "ratio" in row]:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=str), encoding="utf-8")


if __name__ == "__main__":
    main()
