"""What the main loops of AMD code cost, Treadle's with and without scheduling fences beside IREE's: static figures, nothing is run.

    python benchmarks/loop_costs.py --output benchmarks/results/NAME.json           # the suite's contractions
    python benchmarks/loop_costs.py sdxl-ff640 square-4096-nk --targets gfx942
    python benchmarks/loop_costs.py --peers benchmarks/results/OLD.json --output benchmarks/results/NEW.json
    python benchmarks/loop_costs.py 'fp8-*' --targets gfx942 --output benchmarks/results/NAME.json --peers benchmarks/results/NAME.json

Every row is read off machine code as `treadle audit` does (docs/audits.md): counts, and the figures of a model that predicts no times. IREE
compiles the same module with `iree-compile` for the same target, where that is installed and takes it; its row is left out otherwise.
`--triton PYTHON` adds what Triton makes of plain products of f16 and bf16, by a Python that has it, in the tiles of triton_assembly.py.
`--peers` takes the rows of other compilers from an earlier table instead: of Treadle they depend on how it reads loops alone.
The table is written after each workload; what a table already has of other workloads and targets stays in it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from treadle.bench.suite import choose, suite
from treadle.bench.workload import Workload
from treadle.errors import TreadleError
from treadle.targets import registry
from treadle.targets.loop_report import ReportsLoops
from treadle.tools.audit import Row, as_plain, own_rows
from treadle.tools.report import console, table

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
SECONDS = 300


def iree_rows(text: Path, target: str, backend: ReportsLoops) -> list[Row]:
    """The loops of IREE's kernels; none where it is missing or refuses the module."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--iree-hal-target-backends=rocm", f"--iree-rocm-target={target}", f"--iree-hal-dump-executable-intermediates-to={folder}"]
        command = [str(Path(sys.executable).with_name("iree-compile")), str(text), *flags, "-o", str(Path(folder, "module.vmfb"))]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            return []
        return [Row("", 0, loop) for file in sorted(Path(folder).glob("*.rocmasm")) for loop in backend.read_reports(file.read_text())]


def triton_rows(workload: Workload, target: str, backend: ReportsLoops, python: str) -> list[Row]:
    """The loops of Triton's tutorial kernel for a plain product, one a tile; none for other workloads."""
    (left, *others), sizes = workload.inputs, [spec.shape for spec in (*workload.inputs, *workload.outputs)]
    if (
        workload.peer not in ("linear", "matmul")
        or left.dtype not in ("f16", "bf16")
        or len(others) != 1
        or any(len(s) != 2 for s in sizes)
    ):
        return []
    (m, k), n = sizes[0], sizes[2][1]
    order = "nk" if workload.peer == "linear" else "kn"
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(Path(__file__).with_name("triton_assembly.py")), target, left.dtype, str(m), str(n), str(k), order, folder]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.SubprocessError):
            return []
        return [Row("", 0, loop) for file in sorted(Path(folder).glob("*.s")) for loop in backend.read_reports(file.read_text())]


def kept_rows(peers: list[dict[str, Any]], workload: str, target: str, *, but: str) -> list[dict[str, Any]]:
    """The rows of other compilers in an earlier table, but for those of the one that is named."""
    return [one for one in peers if (one["workload"], one["target"]) == (workload, target) and one["compiler"] not in ("treadle", but)]


def records(workload: Workload, target: str, peers: list[dict[str, Any]] | None, triton: str) -> list[dict[str, Any]]:
    """One record a loop."""
    backend = registry.backend(target)
    if not isinstance(backend, ReportsLoops):
        raise SystemExit(f"{target} has no loop reports")
    place = {"workload": workload.name, "target": target}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "module.mlir")
        file.write_text(workload.text)
        try:
            own = own_rows(file, target, backend, workload.options, None)
        except TreadleError as error:
            print(f"{workload.name} for {target}: {error}", file=sys.stderr)
            return [{**place, "compiler": "treadle", "error": str(error)}]
        rows = [("treadle", row) for row in own]
        if peers is None:
            rows += [("iree", row) for row in iree_rows(file, target, backend)]
    rows += [("triton", row) for row in triton_rows(workload, target, backend, triton)] if triton else []
    found = [{**place, "compiler": compiler, **as_plain(row)} for compiler, row in rows]
    return found + kept_rows(peers or [], workload.name, target, but="triton" if triton else "")


def keep(output: Path, found: list[dict[str, Any]], workload: str, target: str) -> None:
    """Write the rows of a workload for a target into a table, in place of those that it has of them."""
    kept: list[dict[str, Any]] = json.loads(output.read_text())["loops"] if output.exists() else []
    loops = [one for one in kept if (one["workload"], one["target"]) != (workload, target)] + found
    text = {"kind": "static", "about": "read off machine code by benchmarks/loop_costs.py; nothing was run", "loops": loops}
    output.write_text(json.dumps(text, indent=1) + "\n")


def show(found: list[dict[str, Any]]) -> None:
    """The table of the records."""
    out = table(
        "main loops, static", "workload", "target", "compiler", "schedule", "fences", "matrix", "waits (loads)", "share", "registers"
    )
    for one in found:
        if "error" in one:
            out.add_row(one["workload"], one["target"], one["compiler"], "does not compile", *[""] * 5)
            continue
        density = f"{one['matrix']} of {one['instructions']} ({100 * one['density']:.0f} %)"
        waits = f"{len(one['inner_waits'])} ({one['load_waits']})"
        names = [str(one[key]) for key in ("workload", "target", "compiler", "schedule", "fences")]
        out.add_row(*names, density, waits, f"{100 * one['matrix_share']:.0f} %", str(one["registers"]))
    console().print(out)


def main() -> None:
    """Compile, read, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help="names or patterns of the suite; all without")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--peers", type=Path, help="an earlier table, for the rows of other compilers")
    parser.add_argument("--triton", default="", help="a Python that has Triton, whose rows are made as well")
    asked = parser.parse_args()
    chosen = choose(asked.workloads) if asked.workloads else suite()
    peers = None if asked.peers is None else json.loads(asked.peers.read_text())["loops"]
    found: list[dict[str, Any]] = []
    for target in asked.targets.split(","):
        for workload in chosen:
            rows = records(workload, target, peers, asked.triton)
            found += rows
            if asked.output is not None:
                keep(asked.output, rows, workload.name, target)
            print(f"{workload.name} {target}", file=sys.stderr)
    show(found)


if __name__ == "__main__":
    main()
