"""Loops that are cut into stages beside the same loops without, on a GPU: by hand, by the compiler, and not at all.

    python benchmarks/stage_schedules.py                     # products of several lengths, and attention
    python benchmarks/stage_schedules.py --list              # the cases alone; needs no GPU
    python benchmarks/stage_schedules.py gemm --quick --output benchmarks/results/NAME.json

`staged` is cut by hand (`tl.warp_pipeline_stage`), `auto` by the compiler (`stages="auto"`), `plain` not at all: there consumer warpgroups
share each tile and a producer copies, as the compiler has it by itself. Attention is that of examples/attention.py (`plain`) and
examples/staged_attention.py. Times are taken as `treadle bench` takes them. Ratios: the time of `plain` over that of `staged`, and
the time of `staged` over that of `auto`; above 1 the stages, and the compiler's stages, are faster.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from treadle.bench.machine import TorchMachine
from treadle.bench.protocol import QUICK, MeasureOptions, measure, ratio
from treadle.bench.workload import TensorSpec

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]


@dataclass(frozen=True)
class Case:
    """A product of m x k and k x n in f16, or attention of `heads` heads of `m` queries and as many keys of width k."""

    m: int
    n: int
    k: int
    heads: int = 0

    @property
    def name(self) -> str:
        """As in reports."""
        return f"attention {self.heads}x{self.m} D={self.k}" if self.heads else f"gemm {self.m}x{self.n}x{self.k}"


CASES = (
    *(Case(4096, 4096, k) for k in (256, 512, 1024)),
    Case(8192, 8192, 512),
    Case(8192, 8192, 1024),
    Case(4096, 4096, 4096),
    Case(8192, 8192, 8192),
    Case(8192, 8192, 128, heads=32),
    Case(4096, 4096, 64, heads=128),
)


def attention_calls(case: Case, machine: TorchMachine) -> tuple[dict[str, Callable[[], object]], dict[str, Any]]:
    """What is measured of attention, and the results that they fill."""
    plain, staged = import_module("attention").attention, import_module("staged_attention").attention
    q, k, v = (machine.tensor(TensorSpec(name, (case.heads, case.m, case.k), "f16"), number) for number, name in enumerate("qkv"))
    tile, scale = {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 2 if case.k > 64 else 3}, case.k**-0.5
    results = {name: q.new_empty(q.shape) for name in ("plain", "staged")}
    sums, launch = q.new_empty(q.shape[:2]).float(), staged[-(-case.m // 128), case.heads]
    alone = plain[-(-case.m // 128), case.heads, 1]

    def unstaged() -> None:
        alone(q[None], k[None], v[None], results["plain"][None], sums[None], 0, scale, False, D=case.k, **tile)

    return {"plain": unstaged, "staged": lambda: launch(q, k, v, results["staged"], scale, D=case.k, **tile)}, results


def calls_of(case: Case, machine: TorchMachine) -> tuple[dict[str, Callable[[], object]], dict[str, Any]]:
    """What is measured, and the results that they fill."""
    if case.heads:
        return attention_calls(case, machine)
    example = import_module("staged_matmul")
    a, b = (
        machine.tensor(TensorSpec(name, shape, "f16"), number)
        for number, (name, shape) in enumerate((("a", (case.m, case.k)), ("b", (case.k, case.n))))
    )
    grid = -(-case.m // example.TILE["BM"]), -(-case.n // example.TILE["BN"])
    kernels = {"plain": example.plain, "staged": example.staged, "auto": example.auto}
    results = {name: a.new_empty((case.m, case.n)) for name in kernels}

    def call(name: str) -> Callable[[], object]:
        launch = kernels[name][grid]
        return lambda: launch(a, b, results[name], num_warps=8, **example.TILE)

    return {name: call(name) for name in kernels}, results


def record_of(case: Case, machine: TorchMachine, options: MeasureOptions) -> dict[str, Any]:
    """Run, compare and measure one."""
    calls, results = calls_of(case, machine)
    for call in calls.values():
        call()
    machine.synchronize()
    error = max(machine.difference(found, results["plain"]) for found in results.values())
    samples = measure(machine, calls, options)
    ratios = {"staged": ratio(samples["plain"], samples["staged"])}
    if "auto" in samples:
        ratios["auto"] = ratio(samples["staged"], samples["auto"])
    return {"name": case.name, "ms": {who: taken.median_ms for who, taken in samples.items()}, "ratio": ratios, "error": error}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a line each; 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PART", help="cases whose name has it")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(arguments)
    chosen = [case for case in CASES if not asked.names or any(part in case.name for part in asked.names)]
    if asked.list:
        print(*(case.name for case in chosen), sep="\n")
        return 0
    options = QUICK if asked.quick else MeasureOptions()
    machine, records = TorchMachine(options.flush_bytes), list[dict[str, Any]]()
    for case in chosen:
        record = record_of(case, machine, options)
        records.append(record)
        ratios, times = record["ratio"], ", ".join(f"{who} {ms:.4f} ms" for who, ms in record["ms"].items())
        auto = f", auto {ratios['auto']:.3f} of staged" if "auto" in ratios else ""
        print(f"{case.name:24} staged {ratios['staged']:.3f} of plain{auto}; {times}", flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(records, indent=1))
    return int(any(record["error"] > 1e-2 for record in records))


if __name__ == "__main__":
    sys.exit(main())
