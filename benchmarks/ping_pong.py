"""Ping-pong beside the cooperative schedule, from one source with stages (examples/persistent_matmul.py), on a Hopper GPU.

    python benchmarks/ping_pong.py                      # 8192 x 8192 x K for K = 128 .. 8192
    python benchmarks/ping_pong.py 128 1024 --rows 4096 --columns 4096 --quick --output benchmarks/results/NAME.json
    python benchmarks/ping_pong.py --automatic          # beside the source that leaves stages and groups to the compiler
    python benchmarks/ping_pong.py --list               # what is measured; needs no GPU

Each schedule is measured with the tiles that suit it, and the fastest counts. Times are taken as `treadle bench` takes them. A ratio is the
time of the cooperative schedule over that of ping-pong: above 1 ping-pong is faster. `same tile`: both with tiles of 128 x 128.
`automatic`: the fastest of these schedules over the fastest of those that the compiler chooses, of two tiles: it is to be 0.97 at least.
Results are compared with PyTorch's; the exit status is 1 where they differ.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from treadle.bench.machine import TorchMachine
from treadle.bench.protocol import QUICK, MeasureOptions, measure, ratio
from treadle.bench.workload import TensorSpec

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]

LENGTHS = (128, 256, 512, 1024, 4096, 8192)
SCHEDULES: dict[str, dict[str, Any]] = {
    "ping-pong 128x128": {"GROUPS": 2, "BN": 128, "num_stages": 5},
    "ping-pong 128x192": {"GROUPS": 2, "BN": 192, "num_stages": 3},
    "cooperative 128x128": {"GROUPS": 1, "BN": 128, "num_stages": 6},
    "cooperative 128x256": {"GROUPS": 1, "BN": 256, "num_stages": 4},
}
AUTOMATIC: dict[str, dict[str, Any]] = {
    "automatic 128x128": {"BN": 128, "num_stages": 5},
    "automatic 128x256": {"BN": 256, "num_stages": 4},
}
WARPS = 8


def fastest(times: dict[str, float], kind: str) -> str:
    """The schedule of a kind that takes least."""
    return min((name for name in times if name.startswith(kind)), key=times.__getitem__)


def record_of(
    size: tuple[int, int, int], machine: TorchMachine, options: MeasureOptions, schedules: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Run, compare and measure one product."""
    example, (rows, columns, length) = import_module("persistent_matmul"), size
    shapes = {"a": (rows, length), "b": (length, columns)}
    a, b = (machine.tensor(TensorSpec(name, shape, "f16"), number) for number, (name, shape) in enumerate(shapes.items()))
    results = {name: a.new_empty((rows, columns)) for name in schedules}
    grid = import_module("torch").cuda.get_device_properties(0).multi_processor_count

    def call(name: str) -> Callable[[], object]:
        launch = (example.automatic if name in AUTOMATIC else example.matmul)[grid]
        return lambda: launch(a, b, results[name], num_warps=WARPS, **schedules[name])

    calls = {name: call(name) for name in schedules}
    for each in calls.values():
        each()
    machine.synchronize()
    wanted = a @ b
    error = max(machine.difference(found, wanted) for found in results.values())
    samples = measure(machine, calls, options)
    times = {name: taken.median_ms for name, taken in samples.items()}
    of = {kind: fastest(times, kind) for kind in ("ping-pong", "cooperative")}
    ratios = {
        "fastest": ratio(samples[of["cooperative"]], samples[of["ping-pong"]]),
        "same tile": ratio(samples["cooperative 128x128"], samples["ping-pong 128x128"]),
    }
    if AUTOMATIC.keys() <= times.keys():
        by_hand = min(SCHEDULES, key=times.__getitem__)
        of["automatic"] = fastest(times, "automatic")
        ratios["automatic"] = ratio(samples[by_hand], samples[of["automatic"]])
    return {"name": f"{rows}x{columns}x{length}", "ms": times, "fastest": of, "ratio": ratios, "error": error}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a line for each length; 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="*", type=int, metavar="K")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=8192)
    parser.add_argument("--automatic", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(arguments)
    lengths, schedules = asked.lengths or LENGTHS, SCHEDULES | (AUTOMATIC if asked.automatic else {})
    if asked.list:
        print(*(f"{asked.rows}x{asked.columns}x{length}: {', '.join(schedules)}" for length in lengths), sep="\n")
        return 0
    options = QUICK if asked.quick else MeasureOptions()
    machine, records = TorchMachine(options.flush_bytes), list[dict[str, Any]]()
    for length in lengths:
        record = record_of((asked.rows, asked.columns, length), machine, options, schedules)
        records.append(record)
        ratios, times = record["ratio"], ", ".join(f"{name} {ms:.4f} ms" for name, ms in record["ms"].items())
        automatic = f", automatic {ratios['automatic']:.3f}" if "automatic" in ratios else ""
        print(f"{record['name']:16} {ratios['fastest']:.3f} (same tile {ratios['same tile']:.3f}{automatic}); {times}", flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(records, indent=1))
    return int(any(record["error"] > 1e-2 for record in records))


if __name__ == "__main__":
    sys.exit(main())
