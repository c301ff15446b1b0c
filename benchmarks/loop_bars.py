"""Whether the main loops of AMD code keep their bars, over the suite and all architectures: static, nothing is run.

    python benchmarks/loop_bars.py                                      # the whole suite for all four: half an hour on one core
    python benchmarks/loop_bars.py 'llama3-8b-*' --targets gfx942,gfx1201

A loop falls short with a wait for loads between the matrix instructions of a stage, an access to scratch, a move of accumulators, a wait
for all copies in a loop with direct copies, or a broken rule of the audit (docs/audits.md). The exit status is 1 where one does, or where
a workload does not compile.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from treadle.bench.suite import choose
from treadle.bench.workload import Workload
from treadle.errors import TreadleError
from treadle.targets import registry
from treadle.targets.loop_report import ReportsLoops
from treadle.tools.audit import own_rows, shortfalls

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")


def findings(workload: Workload, target: str) -> tuple[int, list[str]]:
    """How many loops a workload has for a target, and what they fall short of, a line each."""
    backend = registry.backend(target)
    if not isinstance(backend, ReportsLoops):
        raise SystemExit(f"{target} has no loop reports")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "module.mlir")
        file.write_text(workload.text)
        try:
            rows = own_rows(file, target, backend, workload.options, None, bare=False)
        except TreadleError as error:
            return 0, [f"does not compile: {error}"]
    return len(rows), [f"{row.loop.kernel}, {row.schedule}: {', '.join(found)}" for row in rows if (found := shortfalls(row))]


def main() -> int:
    """Look at each workload for each target; 1 where something falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help="names, groups or patterns of the suite; all without")
    parser.add_argument("--targets", default=",".join(TARGETS))
    asked = parser.parse_args()
    loops = short = 0
    for workload in choose(asked.workloads):
        for target in asked.targets.split(","):
            count, found = findings(workload, target)
            print(workload.name, target, count, file=sys.stderr, flush=True)
            loops, short = loops + count, short + len(found)
            for line in found:
                print(f"{workload.name} {target}: {line}", flush=True)
    print(f"{loops} loops, {short} fall short")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
