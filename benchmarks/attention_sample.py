"""Attention of the examples beside PyTorch's backends of scaled_dot_product_attention, on a GPU: named sizes, or a random sample.

    python benchmarks/attention_sample.py                                  # D = 128, 8192 long, and D = 64, 4096 long, full and causal
    python benchmarks/attention_sample.py --random 60 --seed 7 --output benchmarks/results/NAME.json
    python benchmarks/attention_sample.py --random 60 --seed 7 --list      # the sizes alone; needs no GPU
    python benchmarks/attention_sample.py --text                           # the kernel that linalg text becomes, not the example's
    python benchmarks/attention_sample.py --stages                         # stages of the compiler's choice beside four by hand, and none
    python benchmarks/attention_sample.py --decode                         # one query, 32768 keys: beside a copy of as many bytes, too

Each problem is compared with PyTorch's result in f32 arithmetic on one head, then measured as `treadle bench` measures (interleaved, each
call behind a sweep of the cache). A ratio is the fastest peer's time over Treadle's: above 1 Treadle is faster. With `--stages` Treadle's
is the example with stages="auto", and the peers are the four stages of examples/staged_attention.py and the example without stages: the
least ratio is to be 0.97 at least, and all results are compared.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

from treadle.bench.machine import TorchMachine
from treadle.bench.protocol import MeasureOptions, measure, ratio
from treadle.bench.random_report import quantiles
from treadle.bench.workload import TensorSpec

sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parent)]

BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
WIDTHS = (32, 64, 96, 128, 192, 256)
STEPS = (128, 64, 8, 1)
"""What lengths are rounded up to multiples of, each as often."""
MOST_ELEMENTS = 1 << 29
TOLERANCE = 0.02
"""Of the largest value: P is rounded to 16 bits by all."""


@dataclass(frozen=True)
class Sizes:
    """One problem: `shared` heads of K and V, each for `group` heads of Q; `width`: D."""

    batch: int
    shared: int
    group: int
    queries: int
    keys: int
    width: int
    causal: bool
    dtype: str

    @property
    def name(self) -> str:
        """As in reports."""
        heads = f"{self.shared * self.group}/{self.shared}"
        return f"{self.dtype} {self.batch}x{heads} {self.queries}x{self.keys} D={self.width}{' causal' if self.causal else ''}"

    @property
    def flop(self) -> int:
        """Operations of both products, for the scores that a mask leaves."""
        seen = self.queries * self.keys
        if self.causal:
            short = min(self.queries, self.keys)
            seen = short * (short + 1) // 2 + max(0, self.queries - self.keys) * self.keys
        return 4 * self.batch * self.shared * self.group * seen * self.width

    @property
    def tile(self) -> dict[str, int]:
        """Rows and columns of a tile of scores, warps and stages, by the registers that the tile of results leaves, and the keys. A kernel
        of one stage would have no roles.
        """
        rows = 64 if self.queries <= 64 else 128
        columns = 128 if self.width <= 128 and self.keys > 64 else 64
        stages = 3 if self.width <= 64 and self.keys > 2 * columns else 2
        return {"BM": rows, "BN": columns, "num_warps": rows // 16, "num_stages": stages}


NAMED = tuple(
    Sizes(*shape, causal, "bf16") for shape in ((2, 16, 1, 8192, 8192, 128), (4, 32, 1, 4096, 4096, 64)) for causal in (False, True)
)

DECODE = tuple(Sizes(8, 8, 4, queries, 32768, width, False, "bf16") for queries, width in ((1, 128), (1, 64), (4, 128)))


def _log_uniform(draw: random.Random, low: int, high: int) -> int:
    return min(high, int(exp(draw.uniform(log(low), log(high + 1)))))


def sizes_of(seed: int, number: int) -> Sizes:
    """Problem `number` of a seed: batch and heads 1..64, groups 1..8, lengths 1..32,768, D 32..256, half of them causal."""
    draw = random.Random(f"attention {seed} {number}")
    while True:
        batch, group = _log_uniform(draw, 1, 64), draw.choice((1, 1, 2, 4, 8))
        shared = _log_uniform(draw, 1, 64 // group)
        step, is_square, causal = draw.choice(STEPS), draw.random() < 0.75, draw.random() < 0.5
        queries, keys = (min(32768, -(-_log_uniform(draw, 1, 32768) // step) * step) for _ in range(2))
        found = Sizes(
            batch, shared, group, queries, queries if is_square else keys, draw.choice(WIDTHS), causal, draw.choice(("bf16", "f16"))
        )
        if batch * shared * group * max(queries, keys) * found.width <= MOST_ELEMENTS and found.flop < 10**13:
            return found


def problems(count: int, seed: int) -> list[Sizes]:
    """The first `count` problems of a seed; a longer list of the same seed begins with these."""
    return [sizes_of(seed, number) for number in range(count)]


def ours_in_parts(sizes: Sizes, q: Any, k: Any, v: Any) -> tuple[Callable[[], Any], Any] | None:
    """The call of examples/decode.py, and the array that it fills; None where rows are many, see different keys, or need no parts."""
    torch, decode = import_module("torch"), import_module("decode")
    rows, units = sizes.group * sizes.queries, torch.cuda.get_device_properties(q.device).multi_processor_count
    columns = sizes.tile["BN"]
    if sizes.causal or rows > 64 or decode.parts_of(sizes.batch * sizes.shared, sizes.keys, units, columns)[0] == 1:
        return None
    made: dict[tuple[tuple[int, ...], bool], Any] = {}

    def empty(shape: tuple[int, ...], is_wide: bool) -> Any:
        if (shape, is_wide) not in made:
            made[shape, is_wide] = torch.empty(shape, dtype=torch.float32 if is_wide else q.dtype, device=q.device)
        return made[shape, is_wide]

    def call() -> Any:
        return decode.decode(q, k, v, empty, units=units, BN=columns)

    return call, call()


def ours(sizes: Sizes, q: Any, k: Any, v: Any) -> tuple[Callable[[], Any], Any]:
    """The call, and the array that it fills."""
    if (found := ours_in_parts(sizes, q, k, v)) is not None:
        return found
    torch, attention = import_module("torch"), import_module("attention").attention
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tile = sizes.tile
    launch = attention[-(-sizes.queries // tile["BM"]), sizes.shared * sizes.group, sizes.batch]

    def call() -> None:
        launch(q, k, v, o, lse, 0, 1 / sqrt(sizes.width), sizes.causal, D=sizes.width, **tile)

    return call, o


def ours_of_text(sizes: Sizes, q: Any, k: Any, v: Any) -> tuple[Callable[[], None], Any]:
    """The same of the program that linalg text of the problem becomes."""
    torch, treadle = import_module("torch"), import_module("treadle")
    o, options = torch.empty_like(q), treadle.CompileOptions(attention="always")
    program = treadle.compile(import_module("attention_text").attention_text(sizes), "sm_90a", options)
    queries, result = (x.view(sizes.batch, sizes.shared, sizes.group, sizes.queries, sizes.width) for x in (q, o))

    def call() -> None:
        program(queries, k, v, out=result)

    return call, o


def ours_in_stages(sizes: Sizes, q: Any, k: Any, v: Any) -> tuple[dict[str, Callable[[], Any]], list[Any]]:
    """The calls by name: stages of the compiler's choice first, then by hand, and none; and the arrays that they fill."""
    torch, tile, heads = import_module("torch"), sizes.tile, sizes.shared * sizes.group
    attention, by_hand = import_module("attention").attention, import_module("staged_attention").attention
    filled, rows, scale = [torch.zeros_like(q) for _ in range(3)], -(-sizes.queries // tile["BM"]), 1 / sqrt(sizes.width)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    flat = [x.flatten(0, 1) for x in (q, *(x.repeat_interleave(sizes.group, 1) for x in (k, v)), filled[1])]

    def cut(o: Any, stages: str | None) -> Callable[[], Any]:
        launch = attention[rows, heads, sizes.batch]
        return lambda: launch(q, k, v, o, lse, 0, scale, sizes.causal, D=sizes.width, STAGES=stages, **tile)

    def staged() -> None:
        by_hand[rows, heads * sizes.batch](*flat, scale, D=sizes.width, CAUSAL=sizes.causal, **tile)

    return {"treadle": cut(filled[0], "auto"), "four stages": staged, "no stages": cut(filled[2], None)}, filled


def peers(sizes: Sizes, q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    """PyTorch's backends that take the problem."""
    torch = import_module("torch")
    kernel, attend = import_module("torch.nn.attention"), torch.nn.functional.scaled_dot_product_attention

    def made(backend: Any) -> Callable[[], Any]:
        def call() -> Any:
            with kernel.sdpa_kernel([backend]):
                return attend(q, k, v, is_causal=sizes.causal, enable_gqa=sizes.group > 1)

        return call

    found: dict[str, Callable[[], Any]] = {}
    for name in BACKENDS:
        call = made(getattr(kernel.SDPBackend, name))
        try:
            call()
            torch.cuda.synchronize()
        except Exception as problem:  # noqa: BLE001 - a backend that refuses a problem is none of its peers
            print(f"  without {name}: {' '.join(str(problem).split())[:100]}", file=sys.stderr)
            continue
        found[name] = call
    return found


def difference(sizes: Sizes, o: Any, q: Any, k: Any, v: Any) -> float:
    """Of the last head, as a part of the largest value."""
    torch = import_module("torch")
    one = [x[-1, -1].float() for x in (q, k, v)]
    rows = slice(0, min(sizes.queries, 512))
    scores = one[0][rows] @ one[1].T / sqrt(sizes.width)
    if sizes.causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf"))
    want = torch.softmax(scores, 1) @ one[2]
    return float((o[-1, -1].float()[rows] - want).abs().max() / want.abs().max())


def record_of(sizes: Sizes, machine: TorchMachine, *, from_text: bool = False, in_stages: bool = False) -> dict[str, Any]:
    """Compile, check and measure one problem."""
    heads = sizes.shared * sizes.group
    shapes = {"q": (heads, sizes.queries), "k": (sizes.shared, sizes.keys), "v": (sizes.shared, sizes.keys)}
    q, k, v = (
        machine.tensor(TensorSpec(name, (sizes.batch, *shape, sizes.width), sizes.dtype), seed)
        for seed, (name, shape) in enumerate(shapes.items())
    )
    if in_stages:
        calls, filled = ours_in_stages(sizes, q, k, v)
    else:
        call, o = (ours_of_text if from_text else ours)(sizes, q, k, v)
        calls, filled = {"treadle": call}, [o]
    for call in calls.values():
        call()
    machine.synchronize()
    error = max(difference(sizes, o, q, k, v) for o in filled)
    if not in_stages:
        calls |= peers(sizes, q, k, v)
        calls |= {"copy": lambda: v.copy_(k)} if sizes in DECODE else {}  # reads and writes as many bytes as attention reads
    samples = measure(machine, calls, MeasureOptions())
    times = {name: taken.median_ms for name, taken in samples.items()}
    ratios = {name: ratio(taken, samples["treadle"]) for name, taken in samples.items() if name != "treadle"}
    worst = min(ratios.values(), default=None)
    return {**asdict(sizes), "ms": times, "ratio": ratios, "least": worst, "error": error, "tflops": sizes.flop / times["treadle"] / 1e9}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line each and the quantiles; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(arguments)
    chosen = problems(asked.random, asked.seed) if asked.random else list(DECODE if asked.decode else NAMED)
    if asked.list:
        print(*(sizes.name for sizes in chosen), sep="\n")
        return 0
    machine, records = TorchMachine(MeasureOptions().flush_bytes), list[dict[str, Any]]()
    for sizes in chosen:
        try:
            record = record_of(sizes, machine, from_text=asked.text, in_stages=asked.stages)
        except Exception as problem:  # noqa: BLE001 - the rest of the sample is measured still
            record = {**asdict(sizes), "problem": f"{type(problem).__name__}: {problem}"[:300]}
        records.append(record)
        print(
            sizes.name, record.get("problem") or f"{record['tflops']:.0f} TFLOP/s {record['ratio']} error {record['error']:.1e}", flush=True
        )
    print(quantiles([record["least"] for record in records if record.get("least")]))
    if asked.output:
        asked.output.write_text(json.dumps(records, indent=1))
    return int(any("problem" in record or record["error"] > TOLERANCE for record in records))


if __name__ == "__main__":
    sys.exit(main())
