"""`treadle run`: compile a file, run it on random or given inputs, and check the result against float64."""

import json as json_text
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from treadle import driver
from treadle.errors import USAGE, TreadleError
from treadle.options import CompileOptions
from treadle.sim.check import CheckResult
from treadle.sim.check import check as check_one
from treadle.tools import report
from treadle.tools.compile_options import (
    ChoicesOption,
    Fp8Option,
    LevelOption,
    PrecisionOption,
    TunedOption,
    UnprovenOption,
    compile_options,
)
from treadle.tools.diagnostics import EXIT_WRONG_RESULT
from treadle.tools.inputs import Array, make_inputs

if TYPE_CHECKING:
    from treadle.frontends.levels import Level
    from treadle.tools.scheduled import ScheduledRun

Device = Literal["auto", "sim", "cuda", "hip"]


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.mlir", help="The program: functions on tensors, or kernels.")],
    function: Annotated[str | None, typer.Option(help="The function to run, where the file has several.")] = None,
    device: Annotated[Device, typer.Option(help="Where to run; auto takes a GPU where there is one, else the simulator.")] = "auto",
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="64x32xf16|NUMBER|FILE.npy", help="One input, in order; random N(0,1) by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    check: Annotated[bool, typer.Option("--check", help="Compare with a float64 evaluation of the tensor-level program.")] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="With --device sim: run the kernels' schedules and report races and deadlocks.")
    ] = False,
    target: Annotated[str, typer.Option(help="With --schedule: the architecture that the kernels are scheduled for.")] = "sm_90a",
    option: ChoicesOption = None,
    f32_precision: PrecisionOption = None,
    fp8_accumulation: Fp8Option = None,
    tuned: TunedOption = True,
    level: LevelOption = None,
    allow_unproven: UnprovenOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print a record instead of tables.")] = False,
) -> int:
    """Compile FILE.mlir and run it."""
    if schedule and device != "sim":
        raise TreadleError(USAGE, message="--schedule needs --device sim")
    options = compile_options(option, f32_precision, fp8_accumulation, tuned=tuned, allow_unproven=allow_unproven)
    start = time.perf_counter()
    program = driver.compile(file, target=driver.target_of_device(device), options=options, function=function, level=level)
    compiled = time.perf_counter()
    arrays = make_inputs(program.name, program.manifest.inputs, inputs or (), seed, program.manifest.number_inputs)
    made = time.perf_counter()
    scheduled = _scheduled(file, function, target, arrays, seed, options, level) if schedule else None
    given = program(*arrays) if scheduled is None else scheduled.results
    results: tuple[Array, ...] = tuple(map(np.asarray, given))  # a GPU's are arrays on the device
    ran = time.perf_counter()
    comparisons = check_results(program, results, arrays) if check else ()
    wrong = any(not one.ok for one in comparisons) or (scheduled is not None and not scheduled.ok)
    seconds = {"compile": compiled - start, "run": ran - made}
    if json:
        entry = record(program, arrays, results, comparisons, seed, seconds)
        print(json_text.dumps(entry if scheduled is None else entry | {"schedule": scheduled.record()}, indent=2, allow_nan=False))
    else:
        show(program, results, comparisons, seconds)
        if scheduled is not None:
            scheduled.show(report.console())
    return EXIT_WRONG_RESULT if wrong else 0


def _scheduled(
    file: Path, function: str | None, target: str, arrays: Sequence[Array], seed: int, options: CompileOptions, level: "Level | None"
) -> "ScheduledRun":
    from treadle.tools.scheduled import run_schedules

    return run_schedules(file, function, target, arrays, seed, options, level)


def check_results(program: driver.Program, results: Sequence[Array], arrays: Sequence[Array]) -> tuple[CheckResult, ...]:
    """Each output against the float64 evaluation of the tensor-level program."""
    return tuple(check_one(result, reference) for result, reference in zip(results, program.reference(*arrays), strict=True))


def type_text(array: Array) -> str:
    """`33x1000xfloat32`."""
    return "x".join([*(str(extent) for extent in array.shape), str(array.dtype)])


def show(program: driver.Program, results: Sequence[Array], comparisons: Sequence[CheckResult], seconds: dict[str, float]) -> None:
    """Print what was formed and chosen, the result and the verdict."""
    out = report.console()
    times = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    out.print(f"[bold]{program.name}[/] for {program.target} on {program.device_name}: {times}")
    out.print(report.kernels_table(program))
    out.print(report.remarks_table(program.remarks, kinds=("decision", "refusal")))
    outputs = [(item.name, type_text(result)) for item, result in zip(program.manifest.outputs, results, strict=True)]
    out.print(report.results_table(outputs, comparisons))


def finite(value: float) -> float | None:
    """A number as JSON has them: infinities and NaN are null."""
    return value if math.isfinite(value) else None


def record(
    program: driver.Program,
    arrays: Sequence[Array],
    results: Sequence[Array],
    comparisons: Sequence[CheckResult],
    seed: int,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """The same as a JSON value; `verdict` is null where nothing was checked."""
    outputs: list[dict[str, Any]] = []
    for number, (item, result) in enumerate(zip(program.manifest.outputs, results, strict=True)):
        entry: dict[str, Any] = {"name": item.name, "dtype": item.dtype, "shape": list(result.shape)}
        if comparisons:
            one = comparisons[number]
            entry |= {
                "relative_error": finite(one.relative_error),
                "worst": finite(one.worst),
                "allowed": finite(one.allowed),
                "correct": one.ok,
                "problem": one.problem,
            }
        outputs.append(entry)
    return {
        "function": program.name,
        "target": program.target,
        "device": program.device_name,
        "seed": seed,
        "seconds": seconds,
        "inputs": [
            {"name": item.name, "dtype": item.dtype, "shape": list(array.shape)}
            for item, array in zip(program.manifest.inputs, arrays, strict=True)
        ],
        "outputs": outputs,
        "kernels": [
            {"name": kernel.name, "symbol": kernel.symbol, "workgroup": list(kernel.block), "shared_bytes": kernel.shared_bytes}
            for kernel in program.manifest.kernels
        ],
        "relative_error": finite(max(one.relative_error for one in comparisons)) if comparisons else None,
        "verdict": None if not comparisons else "correct" if all(one.ok for one in comparisons) else "wrong",
        "remarks": [{"kind": r.kind, "pass": r.pass_name, "subject": r.subject, "text": r.text} for r in program.remarks],
    }
