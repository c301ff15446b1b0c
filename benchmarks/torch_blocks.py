"""Blocks of models in PyTorch with this backend against Inductor alone, in one process: time of a call, errors, host time, compile time.

    python benchmarks/torch_blocks.py                          # all blocks, on the GPU (PyTorch and Triton are there)
    python benchmarks/torch_blocks.py llama-prefill mlp-16 --mode max-autotune-no-cudagraphs --report --json blocks.json
    python benchmarks/torch_blocks.py --random 20 --seed 7 --deadline 540      # forward, and forward with backward
    python benchmarks/torch_blocks.py --random 20 --seed 7 --from 12           # the same blocks from the 13th on
    python benchmarks/torch_blocks.py llama-prefill --compile  # also the first call in fresh processes, with caches empty and full
    python benchmarks/torch_blocks.py --tiny                   # small sizes on the simulator: does everything run, and right?

Weights and inputs are random. Calls of both are interleaved, the level-2 cache swept before each; a ratio is the median over the rounds of
Inductor's time over ours. In modes that make no CUDA graphs each call is captured in one, so that launches cost the host nothing; in the
others (`reduce-overhead`, `max-autotune`) the graphs are Inductor's. `host` is what a call costs the host where nothing waits for the
device. An error is the largest difference from the block in float64 over the largest value, of results and gradients the worst; eager's
stands beside it, and no tensor may be much further off than eager's.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

MODES = ("default", "max-autotune-no-cudagraphs", "max-autotune", "reduce-overhead")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blocks", nargs="*", help="which, of those in torch_models.py (default: all)")
    parser.add_argument("--mode", default="default", choices=MODES, help="Inductor's, for both")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random blocks instead, forward and with backward")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="K", help="leave out the first K")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="small blocks on the simulator")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many processes: they compile side by side and measure in turn")
    parser.add_argument("--turns", type=Path, metavar="FILE", help="with --jobs: other runs that name this file take turns with this one")
    parser.add_argument("--deadline", type=float, default=0, metavar="SECONDS", help="begin no block after so many")
    parser.add_argument("--compile", action="store_true", help="also compile in fresh processes, with caches empty and full")
    parser.add_argument("--report", action="store_true", help="print each block's report: regions with modelled and measured times")
    parser.add_argument("--kernels", action="store_true", help="print what each block runs on the GPU, kernel by kernel, on both sides")
    parser.add_argument("--json", type=Path, help="where to write the rows, after each")
    parser.add_argument("--first-call", metavar="COMPILER", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure what the command line names; 0 where all is right."""
    options = parsed()
    from torch_block_rows import first_call, rows, shown  # PyTorch is loaded where something is measured

    if options.first_call:
        print(first_call(options.blocks[0], options))
        return 0
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)  # graphs from an older cache have no rows in the report
        for row in rows(options):
            found.append(row)
            print(shown(row, options), flush=True)
            if options.report:
                print(row["report"], flush=True)
            if "kernel_times" in row:
                print(row["kernel_times"], flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    if ratios := [row["ratio"] for row in found]:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}, {len(ratios)} blocks, {options.mode}")
    return 0 if all(row["is_right"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
