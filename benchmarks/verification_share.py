"""What part of a compilation the proof of its schedules takes: every program of the demo, for both vendors, in fresh processes.

    python benchmarks/verification_share.py            # five processes a row
    python benchmarks/verification_share.py 11 a.mlir  # eleven, other programs

The proof runs beside the tools that make machine code. "longer": by how much of its wall time a compilation is longer for it than one with
`verify=False`, in processes in turn. The proof's own time is the CPU time of its thread, its imports included. Compile time is that of
`driver.compile` alone, once by the wall clock and once as CPU time of the process and of the tools it started; what `import treadle.driver`
and `treadle.pipelines` take comes before and is in neither. "warm": the second compilation of a process. Nothing comes from the cache;
bytecode does, as with an installed package. Other work on the machine makes "longer" mean nothing.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAMS = tuple(ROOT / "examples" / name for name in ("splitk_matmul.mlir", "linear_bias_gelu.mlir", "softmax.mlir"))
TARGETS = ("sm_90a", "gfx942")
REPEATS = 5
Record = dict[str, float]


def _cpu_seconds() -> float:
    """CPU time of this process and of the processes that it waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure_here(path: str, target: str, proves: str) -> dict[str, Any]:
    """Compile twice in this process, with the proof ("yes") or without; seconds of the first ("fresh") and the second ("warm") time."""
    from treadle import driver, pipelines
    from treadle.options import CompileOptions

    prove, spent = pipelines.prove, 0.0

    def timed(*arguments: Any) -> None:
        nonlocal spent
        start = time.thread_time()
        prove(*arguments)
        spent += time.thread_time() - start

    pipelines.prove = timed
    found: dict[str, Any] = {}
    for name in ("fresh", "warm"):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TREADLE_CACHE_DIR"] = cache
            spent, cpu, start = 0.0, _cpu_seconds(), time.perf_counter()
            program = driver.compile(path, target=target, options=CompileOptions(verify=proves == "yes"))
            found[name] = {"wall": time.perf_counter() - start, "cpu": _cpu_seconds() - cpu, "proof": spent}
            found["kernels"] = len(program.manifest.kernels)
    return found


def measure(path: Path, target: str, repeats: int) -> list[dict[str, Any]]:
    """The same in so many processes each way, in turn, "without" the wall time of those without the proof; one more before them brings the
    bytecode and the file system's cache.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT / "src")

    def run(proves: str) -> dict[str, Any]:
        command = [sys.executable, __file__, "--here", str(path), target, proves]
        return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)

    rows: list[dict[str, Any]] = []
    for _ in range(repeats + 1):
        row, bare = run("yes"), run("no")
        for name in ("fresh", "warm"):
            row[name]["without"] = bare[name]["wall"]
        rows.append(row)
    return rows[1:]


def shares(records: list[Record], of: str) -> tuple[float, float]:
    """Median and largest part of the proof in a time, in percent."""
    found = [100 * record["proof"] / record[of] for record in records]
    return median(found), max(found)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repeats", nargs="?", type=int, default=REPEATS, help=f"processes a row (default {REPEATS})")
    parser.add_argument("programs", nargs="*", type=Path, help="modules (default: the demo's)")
    parser.add_argument("--here", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Print the table; 1 where the proof takes more than a tenth of the wall time of a compilation (median)."""
    options = parsed()
    if options.here:
        print(json.dumps(measure_here(*options.here)))
        return 0
    repeats, programs = options.repeats, options.programs or PROGRAMS
    heads = f"{'proof ms':>9}{'wall ms':>9}{'CPU ms':>8}{'longer %':>10}{'of wall %':>11}{'worst':>7}{'of CPU %':>10}{'worst':>7}"
    print(f"{'program':<20}{'target':<8}{'kernels':>8}{'process':>9}{heads}")
    too_much = False
    with tempfile.TemporaryDirectory() as bytecode:
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        for path in programs:
            for target in TARGETS:
                rows = measure(path, target, repeats)
                for name in ("fresh", "warm"):
                    records: list[Record] = [row[name] for row in rows]
                    milliseconds = [1000 * median(record[of] for record in records) for of in ("proof", "wall", "cpu")]
                    wall, cpu = shares(records, "wall"), shares(records, "cpu")
                    longer = 100 * (1 - 1000 * median(record["without"] for record in records) / milliseconds[1])
                    too_much |= wall[0] > 10
                    times = f"{milliseconds[0]:>9.1f}{milliseconds[1]:>9.0f}{milliseconds[2]:>8.0f}"
                    parts = f"{longer:>10.1f}{wall[0]:>11.1f}{wall[1]:>7.1f}{cpu[0]:>10.1f}{cpu[1]:>7.1f}"
                    print(f"{path.stem:<20}{target:<8}{rows[0]['kernels']:>8}{name:>9}{times}{parts}", flush=True)
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
