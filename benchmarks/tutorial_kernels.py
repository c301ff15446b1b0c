"""The kernels of examples/ beside the same computations in Triton, at the sizes of Triton's tutorials of these names, on a GPU.

    python benchmarks/tutorial_kernels.py                          # all
    python benchmarks/tutorial_kernels.py softmax matmul --quick   # some; fewer rounds, small sweeps of the cache
    python benchmarks/tutorial_kernels.py --list                   # the sizes alone; needs no GPU
    python benchmarks/tutorial_kernels.py --output benchmarks/results/NAME.json

Each result is compared with Triton's; times are taken as `treadle bench` takes them (interleaved, each call behind a sweep of the cache). A
ratio is Triton's time over Treadle's: above 1 Treadle is faster. Triton's kernels (examples/kernels/triton_peers.py) tune themselves.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from treadle.bench.machine import TorchMachine
from treadle.bench.protocol import QUICK, MeasureOptions, measure, ratio

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path[:0] = [str(EXAMPLES / "kernels"), str(EXAMPLES)]

SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "vector_add": ((1 << 16,), (1 << 22,), (1 << 27,)),
    "softmax": ((4096, 256), (4096, 1024), (4096, 4096), (4096, 12672)),
    "matmul": ((512,) * 3, (1024,) * 3, (2048,) * 3, (4096,) * 3),
    "swiglu": ((1024,) * 3, (2048,) * 3, (4096,) * 3),
    "layer_norm": ((4096, 1024), (4096, 4096), (4096, 8192), (4096, 15872)),
    "grouped_matmul": ((4096, 4, 1024, 1024), (2048, 4, 4096, 4096), (8192, 4, 4096, 4096)),
    "dropout": ((1 << 22,), (1 << 27,)),
    "attention": ((4, 32, 1024, 64, 0), (4, 32, 4096, 64, 0), (4, 32, 4096, 64, 1), (4, 32, 4096, 128, 0), (4, 32, 4096, 128, 1)),
}
"""By example: what its `problem` takes; of attention batch, heads, length, width and whether it is causal."""
TOLERANCE = 0.02
"""Of the largest value, between Treadle's and Triton's results, which round differently."""
UNLIKE = ("dropout",)
"""Whose results differ: they make numbers of random bits in different ways. The examples compare them with NumPy."""


def attention_problem(rng: np.random.Generator, batch: int, heads: int, length: int, width: int, causal: int) -> Any:
    """Attention of examples/attention.py as the other examples state their problems; the result in float64 is nobody's business here."""
    harness, kernel = import_module("harness"), import_module("attention").attention
    sizes = import_module("attention_sample").Sizes(batch, heads, 1, length, length, width, bool(causal), "f16")
    names, shape = ("q", "k", "v"), (batch, heads, length, width)
    drawn = {name: rng.standard_normal(shape[1:], np.float32).astype(np.float16) for name in names}
    arrays: dict[str, Any] = {name: np.repeat(array[None], batch, 0) for name, array in drawn.items()}
    arrays |= {"o": np.zeros(shape, np.float16), "lse": np.zeros(shape[:3], np.float32)}
    launch, options = kernel[-(-length // sizes.tile["BM"]), heads, batch], {"D": width, **sizes.tile}
    scale = 1 / math.sqrt(width)

    def call(**given: Any) -> None:
        launch(*given.values(), 0, scale, bool(causal), **options)

    return harness.Problem(arrays, call, {"o": np.zeros(0), "lse": np.zeros(0)}, flops=sizes.flop)


def problem_of(name: str, sizes: Sequence[int]) -> Any:
    """An example's problem."""
    make = attention_problem if name == "attention" else import_module(name).problem
    return make(np.random.default_rng(0), *sizes)


def arrays_on(machine: TorchMachine, problem: Any) -> dict[str, Any]:
    """The arrays of a problem as tensors of the GPU."""
    torch: Any = import_module("torch")
    found = {name: torch.from_numpy(array).cuda() for name, array in problem.arrays.items()}
    machine.synchronize()
    return found


def peer_of(name: str, sizes: Sequence[int]) -> Callable[..., object]:
    """Triton's kernel of an example, which takes the same arrays."""
    found: Callable[..., object] = import_module("triton_peers").PEERS[name]
    return partial(found, causal=bool(sizes[-1])) if name == "attention" else found


def record_of(name: str, sizes: Sequence[int], machine: TorchMachine, options: MeasureOptions | None) -> dict[str, Any]:
    """Run and compare one, and measure it where there are options."""
    begin = time.perf_counter()
    problem, peer = problem_of(name, sizes), peer_of(name, sizes)
    ours = arrays_on(machine, problem)
    theirs = {key: tensor.clone() for key, tensor in ours.items()}
    peer(**theirs)
    problem.call(**ours)
    error = 0.0 if name in UNLIKE else max(machine.difference(theirs[result], ours[result]) for result in problem.want)
    compiled = time.perf_counter() - begin
    record = {"name": name, "sizes": list(sizes), "error": error, "first_call_s": compiled}
    if options is None:
        return record
    samples = measure(machine, {"treadle": lambda: problem.call(**ours), "triton": lambda: peer(**theirs)}, options)
    times = {who: taken.median_ms for who, taken in samples.items()}
    return {**record, "ms": times, "ratio": ratio(samples["triton"], samples["treadle"])}


def told(record: dict[str, Any]) -> str:
    """A line of a report."""
    what = f"{record['name']:14} {'x'.join(map(str, record['sizes'])):22}"
    if "problem" in record:
        return f"{what} {record['problem']}"
    if "ratio" not in record:
        return f"{what} {record['first_call_s']:.1f} s to the first results, differ by {record['error']:.1e}"
    ms = record["ms"]
    return f"{what} {record['ratio']:6.3f}  {ms['treadle']:.4f} ms, Triton {ms['triton']:.4f} ms, differ by {record['error']:.1e}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line each and the least ratio of each example; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", action="store_true", help="only run and compare: fills the caches of both compilers")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds after which none is begun")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(SIZES):
        parser.error(f"no example {', '.join(sorted(unknown))}: there are {', '.join(SIZES)}")
    chosen = [(name, sizes) for name in asked.names or SIZES for sizes in SIZES[name]]
    if asked.list:
        print(*(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in chosen), sep="\n")
        return 0
    options, begin = QUICK if asked.quick else MeasureOptions(), time.perf_counter()
    machine, records = TorchMachine(options.flush_bytes), list[dict[str, Any]]()
    for name, sizes in chosen:
        if time.perf_counter() - begin > asked.deadline:
            break
        try:
            record = record_of(name, sizes, machine, None if asked.first else options)
        except Exception as problem:  # noqa: BLE001 - the others are measured still
            record = {"name": name, "sizes": list(sizes), "problem": f"{type(problem).__name__}: {problem}"[:300]}
        records.append(record)
        print(told(record), flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(records, indent=1))
    least: dict[str, float] = {}
    for record in records:
        if "ratio" in record:
            least[record["name"]] = min(record["ratio"], least.get(record["name"], math.inf))
    print("least:", ", ".join(f"{name} {found:.3f}" for name, found in least.items()))
    return int(any("problem" in record or record["error"] > TOLERANCE for record in records))


if __name__ == "__main__":
    sys.exit(main())
