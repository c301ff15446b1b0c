"""What the examples share: running on the GPU that is there, else on the simulator, checking against float64, and measuring against Triton.

`python examples/kernels/softmax.py` runs an example; `--bench`, on a GPU with PyTorch, measures it; `--sizes 64 1000` gives other sizes.
"""

import argparse
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.driver import target_of_device


@dataclass
class Problem:
    """Arrays by name, the call that launches the kernel on them, and what the results are in float64 (or a function that computes it)."""

    arrays: dict[str, np.ndarray]
    call: Callable[..., None]
    want: Mapping[str, np.ndarray | Callable[[], np.ndarray]]
    bytes_moved: int = 0
    flops: int = 0


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A matrix product in float64."""
    return a.astype(np.float64) @ b.astype(np.float64)


def gelu(x: np.ndarray) -> np.ndarray:
    """The argument times the normal distribution's integral up to x."""
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def on_nvidia() -> bool:
    """Whether the GPU that is there multiplies tiles of any width, and has registers for wide ones."""
    return target_of_device("auto").startswith("sm_")


def check(problem: Problem, arrays: Mapping[str, np.ndarray]) -> float:
    """The largest error in units of the largest value. Raises AssertionError where it is more than two roundings of the type."""
    worst = 0.0
    for name, want in problem.want.items():
        expected: np.ndarray = want() if callable(want) else want
        got = arrays[name].astype(np.float64)
        scale = max(float(np.abs(expected).max(initial=0.0)), 1e-30)
        error = float(np.abs(got - expected).max(initial=0.0)) / scale
        bound = 2 * float(np.finfo(arrays[name].dtype).eps) + 1e-5
        if not error <= bound:
            raise AssertionError(f"{name} is off by {error:.2g} of its largest value, {bound:.2g} is allowed")
        worst = max(worst, error)
    return worst


def run(problem: Problem) -> float:
    """Launch on the GPU that is there, else on the simulator, and check; the largest error."""
    if target_of_device("auto") == "sim":
        problem.call(**problem.arrays)
        return check(problem, problem.arrays)
    tensors = on_device(problem)
    problem.call(**tensors)
    return check(problem, {name: tensor.cpu().numpy() for name, tensor in tensors.items()})


def on_device(problem: Problem) -> dict[str, Any]:
    """The arrays as tensors of the GPU."""
    torch: Any = importlib.import_module("torch")
    return {name: torch.from_numpy(array).cuda() for name, array in problem.arrays.items()}


def bench(name: str, problem: Problem) -> None:
    """Median times of the kernel and of Triton's, taken in turns, each after a sweep of the cache."""
    from treadle.bench.machine import TorchMachine
    from treadle.bench.protocol import MeasureOptions, measure

    options = MeasureOptions()
    machine, ours = TorchMachine(options.flush_bytes), on_device(problem)
    contenders: dict[str, Callable[[], object]] = {"treadle": lambda: problem.call(**ours)}
    try:
        theirs = {key: tensor.clone() for key, tensor in ours.items()}
        peer = importlib.import_module("triton_peers").PEERS[name]
        peer(**theirs)
        problem.call(**ours)
        for result in problem.want:
            difference = machine.difference(theirs[result], ours[result])
            print(f"{result}: the two differ by {difference:.2g} of the largest value")
        contenders["triton"] = lambda: peer(**theirs)
    except ImportError as error:
        print(f"no Triton to measure against: {error}")
    for who, samples in measure(machine, contenders, options).items():
        seconds = samples.median_ms / 1e3
        rate = f"{problem.flops / seconds / 1e12:.0f} TFLOP/s" if problem.flops else f"{problem.bytes_moved / seconds / 1e9:.0f} GB/s"
        print(f"{who:>8}: {samples.median_ms:.4f} ms, {rate}")


def main(name: str, make: Callable[..., Problem], small: Sequence[int], large: Sequence[int]) -> None:
    """The command line of an example."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", action="store_true", help="measure on the GPU, against Triton where it is installed")
    parser.add_argument("--sizes", type=int, nargs=len(small), help=f"other sizes than {small}, or {large} with --bench")
    chosen = parser.parse_args()
    problem = make(np.random.default_rng(0), *(chosen.sizes or (large if chosen.bench else small)))
    if chosen.bench:
        bench(name, problem)
    else:
        print(f"{name} {tuple(chosen.sizes or small)}: right, off by {run(problem):.2g} of the largest value at most")
