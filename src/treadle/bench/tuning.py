"""Tuning: candidates compiled in parallel processes, measured against each other, and the winner kept for later compilations.

A record says which `CompileOptions` are best for one text, its numerics and one target (`driver/tuned.py` reads them).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from treadle import __version__, driver
from treadle.bench.case import Compile, bound_call
from treadle.bench.machine import Machine
from treadle.bench.option_text import plain_options
from treadle.bench.protocol import Contenders, MeasureOptions, measure
from treadle.bench.records import write
from treadle.bench.workload import TensorSpec
from treadle.driver import Program
from treadle.driver.tuned import read_record, record_path, with_choices
from treadle.errors import DYNAMIC_SIZE, TreadleError
from treadle.options import CompileOptions

TOLERANCE = 0.05
"""How far candidates may be apart: they add in different orders, and round once."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One candidate after compilation: `problem` is why it does not exist, "" where it does."""

    options: CompileOptions
    problem: str


def compile_quietly(text: str, target: str, options: CompileOptions) -> str:
    """Compile into the disk cache; returns why that failed, "" where it did not. Runs in a worker process."""
    try:
        driver.compile(text, target=target, options=replace(options, tuned=False))
    except TreadleError as problem:
        return f"{problem.code}: {problem.message}"
    except Exception as problem:  # noqa: BLE001 - a candidate that breaks the compiler is a candidate less, and is reported
        return f"{type(problem).__name__}: {problem}"
    return ""


def compile_candidates(text: str, target: str, candidates: Sequence[CompileOptions], workers: int) -> Iterator[Compiled]:
    """Compile all candidates in `workers` processes; yields each when it is done."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(compile_quietly, text, target, options): options for options in candidates}
        for job in as_completed(jobs):
            failure = job.exception()
            yield Compiled(jobs[job], job.result() if failure is None else f"{type(failure).__name__}: {failure}")


def input_specs(program: Program) -> list[TensorSpec]:
    """The inputs of a program whose sizes are all static. Raises TR804 for one with dynamic dimensions."""
    specs: list[TensorSpec] = []
    for number, record in enumerate(program.manifest.inputs):
        shape = tuple(extent for extent in record.shape if isinstance(extent, int))
        if len(shape) != len(record.shape):
            shown = "x".join([*(str(extent) if isinstance(extent, int) else "?" for extent in record.shape), record.dtype])
            raise TreadleError(DYNAMIC_SIZE, index=number, name=record.name, shape=shown, example=shown.replace("?", "64"))
        specs.append(TensorSpec(record.name, shape, record.dtype))
    return specs


def measure_candidates(
    text: str, candidates: Sequence[CompileOptions], machine: Machine, compile_text: Compile, options: MeasureOptions
) -> list[dict[str, Any]]:
    """Time of each candidate in ms, interleaved; the first is the one the others' results are compared with. Plain values, in order."""
    rows: list[dict[str, Any]] = [{"options": plain_options(candidate)} for candidate in candidates]
    arrays: list[Any] = []
    reference: tuple[Any, ...] = ()
    contenders: dict[str, Callable[[], object]] = {}
    for number, (row, candidate) in enumerate(zip(rows, candidates, strict=True)):
        program = compile_text(text, candidate)
        if not arrays:
            arrays = [machine.tensor(spec, options.seed + i) for i, spec in enumerate(input_specs(program))]
        call = bound_call(program, arrays)
        results = tuple(machine.adopt(result) for result in call())
        machine.synchronize()
        reference = reference or results
        difference = max(machine.difference(mine, first) for mine, first in zip(results, reference, strict=True))
        if difference > TOLERANCE:
            row["problem"] = f"its result differs from the first candidate's by {difference:.3g} of the largest value"
        else:
            contenders[str(number)] = call
    _times(rows, contenders, machine, options)
    return rows


def _times(rows: Sequence[dict[str, Any]], contenders: Contenders, machine: Machine, options: MeasureOptions) -> None:
    for number, samples in measure(machine, contenders, options).items():
        rows[int(number)]["ms"] = samples.median_ms


def winner(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The fastest row; of equal times the earliest, which the model prefers."""
    timed = [row for row in rows if "ms" in row]
    return min(timed, key=lambda row: row["ms"], default=None)


# records


def store(text: str, target: str, product: str, base: CompileOptions, best: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Keep the winner with everything it was compared with, for the numerics of `base` and the product it was measured on. Raises TR902."""
    path = record_path(text, target, base)
    content = {"treadle": __version__, "target": target, "product": product, "best": dict(best), "measured": [dict(row) for row in rows]}
    write(path, content)
    return path


def tuned_options(text: str, target: str, base: CompileOptions) -> CompileOptions | None:
    """`base` with the stored choice for a text on a target, whatever the product; None where there is none."""
    content = read_record(record_path(text, target, base))
    return None if content is None else with_choices(base, content["best"]["options"])
