"""Who merges the parts of a split product, on a GPU: a second launch, the last workgroup, a cluster, each workgroup in its turn.

    python benchmarks/part_merges.py                  # products of several sizes and numbers of parts
    python benchmarks/part_merges.py --list           # the cases alone; needs no GPU
    python benchmarks/part_merges.py 7168 --quick --output benchmarks/results/NAME.json

Times are taken as `treadle bench` takes them. A ratio is the time of the program with a second launch over that of the other: above 1 that
is faster. Results are compared with the second launch's; the exit status is 1 where they differ by more than the sums' order explains.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import treadle
from treadle.bench.case import bound_call
from treadle.bench.machine import TorchMachine
from treadle.bench.protocol import QUICK, MeasureOptions, measure, ratio
from treadle.bench.workload import TensorSpec

MERGES = ("kernel", "last", "cluster", "turnstile")
MOST_DIFFERENT = 1e-3
"""Of the largest result: sums of f32 in another order."""


@dataclass(frozen=True)
class Case:
    """A product of m x k and k x n in f16, in so many parts along k."""

    m: int
    n: int
    k: int
    parts: int

    @property
    def name(self) -> str:
        """As in reports."""
        return f"{self.m}x{self.n}x{self.k} in {self.parts}"

    def text(self, merge: str) -> str:
        """The program, with who merges."""
        a, b, c = f"tensor<{self.m}x{self.k}xf16>", f"tensor<{self.k}x{self.n}xf16>", f"tensor<{self.m}x{self.n}xf32>"
        return f"""
func.func @product(%a: {a}, %b: {b}) -> {c} {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : {c}
  %i = linalg.fill ins(%z : f32) outs(%e : {c}) -> {c}
  %r = linalg.matmul {{treadle.split_reduction = #dispatch.split<r0 = "{self.parts}" step 64, merge = {merge}>}}
    ins(%a, %b : {a}, {b}) outs(%i : {c}) -> {c}
  return %r : {c}
}}
"""


CASES = (
    *(Case(128, 512, 16384, parts) for parts in (4, 8, 33)),
    *(Case(16, 7168, 2048, parts) for parts in (2, 4)),
    *(Case(512, 512, 8192, parts) for parts in (4, 8)),
    *(Case(1024, 1024, 8192, parts) for parts in (2, 3)),
    Case(4096, 4096, 8192, 3),
)


def record_of(case: Case, machine: TorchMachine, options: MeasureOptions) -> dict[str, Any]:
    """Compile, run, compare and measure one."""
    shapes = {"a": (case.m, case.k), "b": (case.k, case.n)}
    arrays = [machine.tensor(TensorSpec(name, shape, "f16"), number) for number, (name, shape) in enumerate(shapes.items())]
    programs = {merge: treadle.compile(case.text(merge)) for merge in MERGES}
    results = {merge: machine.adopt(program(*arrays)[0]) for merge, program in programs.items()}
    machine.synchronize()
    error = max(machine.difference(found, results["kernel"]) for found in results.values())
    calls = {merge: bound_call(program, arrays) for merge, program in programs.items()}
    samples = measure(machine, calls, options)
    ratios = {merge: ratio(samples["kernel"], samples[merge]) for merge in MERGES[1:]}
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
        times = ", ".join(f"{who} {ms:.4f} ms" for who, ms in record["ms"].items())
        told = ", ".join(f"{who} {times_as_fast:.3f}" for who, times_as_fast in record["ratio"].items())
        print(f"{case.name:28} beside a second launch: {told}; {times}", flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(records, indent=1))
    return int(any(record["error"] > MOST_DIFFERENT for record in records))


if __name__ == "__main__":
    sys.exit(main())
