"""Compile and run every example, check each against float64, and show what was formed, chosen and generated.

Runs on the GPU that is there, else on the simulator. Code for one NVIDIA and one AMD architecture is generated everywhere.
"""

import re
import sys
import time
from collections import Counter
from pathlib import Path

from treadle import TreadleError, driver
from treadle.tools import report, run
from treadle.tools.diagnostics import report_user_error
from treadle.tools.inputs import make_inputs

EXAMPLES = ("splitk_matmul.mlir", "linear_bias_gelu.mlir", "softmax.mlir")
TARGETS = ("sm_90a", "gfx942")
SHOWN_INSTRUCTIONS = 4
MATRIX_INSTRUCTION = re.compile(r"[A-Z]MMA|v_mfma|v_s?wmma")


def run_example(path: Path) -> bool:
    """Compile, run and check one example on the default device; True where the result is right."""
    start = time.perf_counter()
    program = driver.compile(path)
    compiled = time.perf_counter()
    arrays = make_inputs(program.name, program.manifest.inputs, (), seed=0)
    made = time.perf_counter()
    results = program(*arrays)
    ran = time.perf_counter()
    comparisons = run.check_results(program, results, arrays)
    run.show(program, results, comparisons, {"compile": compiled - start, "run": ran - made})
    return all(one.ok for one in comparisons)


def show_generated(path: Path) -> None:
    """The kernels' code for each of `TARGETS`: size, registers, and its most frequent instructions."""
    table = report.table(
        "generated", "target", "kernel", "binary bytes", "registers", "spill bytes", "instructions", "matrix instructions", "most frequent"
    )
    for target in TARGETS:
        program = driver.compile(path, target=target)
        for kernel in program.manifest.kernels:
            counts: Counter[str] = Counter(kernel.facts.get("instructions", {}))
            frequent = ", ".join(f"{name} {count}" for name, count in counts.most_common(SHOWN_INSTRUCTIONS))
            matrix = ", ".join(f"{name} {count}" for name, count in counts.items() if MATRIX_INSTRUCTION.search(name))
            numbers = (len(program.binaries[kernel.binary]), kernel.facts.get("registers"), kernel.facts.get("spill_bytes"), counts.total())
            table.add_row(target, kernel.symbol, *(str(number) for number in numbers), matrix or "-", frequent)
    report.console().print(table)


def main() -> int:
    """Run all examples; 0 where every result is right."""
    folder, out = Path(__file__).parent, report.console()
    wrong: list[str] = []
    for name in EXAMPLES:
        out.rule(name)
        if not run_example(folder / name):
            wrong.append(name)
        show_generated(folder / name)
    out.print(f"[bold red]wrong: {', '.join(wrong)}[/]" if wrong else f"[bold green]all {len(EXAMPLES)} examples are right[/]")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TreadleError as error:
        sys.exit(report_user_error(error))
