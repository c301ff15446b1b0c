"""Whether the main loops of AMD code keep their bars: asked of a table that loop_costs.py wrote; nothing is compiled or run.

    python benchmarks/loop_bars.py [benchmarks/results/NAME.json]

A loop falls short with a wait for loads between the matrix instructions of a stage, an access to scratch, a move of accumulators, a wait
for all copies in a loop with direct copies, too small a modelled share of matrix instructions over whole tiles, a broken rule of the audit
(docs/audits.md), or as many matrix instructions for each instruction as another compiler's loop, or fewer. Also said: the same waits of the
loops without scheduling fences. The exit status is 1 where a loop falls short or a workload does not compile.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from treadle.tools.audit import shortfalls

TABLE = Path(__file__).parent / "results" / "static-2026-11-26-amd-loops.json"
Record = dict[str, Any]


def peer_density(loops: list[Record], workload: str, target: str) -> float:
    """The most matrix instructions for each instruction of another compiler's loops; 0 where there is none."""
    peers = [one for one in loops if (one["workload"], one["target"]) == (workload, target) and one["compiler"] != "treadle"]
    return max((one["density"] for one in peers), default=0.0)


def behind_peers(loops: list[Record], record: Record) -> bool:
    """Whether a loop of Treadle's has no more matrix instructions for each instruction than the peers' loops."""
    return record["density"] <= peer_density(loops, record["workload"], record["target"])


def own(loops: list[Record]) -> list[Record]:
    """The loops that users get."""
    return [
        one for one in loops if one["compiler"] == "treadle" and "error" not in one and (one["fences"] or one["schedule"] == "sequential")
    ]


def report(loops: list[Record], target: str) -> int:
    """Say what falls short for a target; how many loops do."""
    mine = [one for one in loops if one["target"] == target]
    short = 0
    for one in mine:
        if "error" in one:
            print(f"{one['workload']} {target}: does not compile: {one['error']}")
            short += 1
    for one in own(mine):
        found = [*shortfalls(target, one)]
        if behind_peers(mine, one):
            found.append(f"{one['density']:.3f} matrix instructions for each, a peer {peer_density(mine, one['workload'], target):.3f}")
        if found:
            print(f"{one['workload']} {target}: {one['kernel']}, {one['schedule']}: {', '.join(found)}")
            short += 1
    bare = [
        one for one in mine if one["compiler"] == "treadle" and not one.get("fences") and one.get("schedule", "sequential") != "sequential"
    ]
    waits = sum(one["load_waits"] for one in bare)
    print(f"{target}: {len(own(mine))} loops, {short} fall short; without fences {waits} waits for loads in {len(bare)} loops")
    return short


def main() -> int:
    """Ask each target of a table; 1 where something falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    loops: list[Record] = json.loads(parser.parse_args().table.read_text())["loops"]
    return 1 if sum(report(loops, target) for target in sorted({one["target"] for one in loops})) else 0


if __name__ == "__main__":
    sys.exit(main())
