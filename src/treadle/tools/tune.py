"""`treadle tune`: the model's best few configurations of a program, compiled in parallel, measured on the device, the winner kept."""

import json as json_text
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from treadle import driver, knobs
from treadle.bench.option_text import options_from_plain, parse_options, plain_options
from treadle.bench.peers import require_torch
from treadle.bench.protocol import QUICK, MeasureOptions
from treadle.bench.session import Session
from treadle.bench.suite import find
from treadle.driver.sources import read_source
from treadle.errors import DEVICE_CALL, NOTHING_TO_TUNE, TreadleError
from treadle.options import CompileOptions
from treadle.runtime.device import open_device
from treadle.tools import report


def tune(
    what: Annotated[str, typer.Argument(metavar="FILE.mlir|NAME", help="A tensor program, or a workload of `treadle bench --list`.")],
    device: Annotated[Literal["cuda", "hip"], typer.Option(help="Where to measure.")] = "cuda",
    target: Annotated[str, typer.Option(help="With --dry-run: what to compile for.")] = "sm_90a",
    top: Annotated[int, typer.Option(min=1, max=64, help="Candidates beside the compiler's own choice.")] = 6,
    option: Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="A compile option of all candidates.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Eleven rounds, short warm-up.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that measuring may take.")] = 300.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show and compile the candidates, measure nothing; needs no device.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a record instead of a table.")] = False,
) -> int:
    """Find the fastest configuration of a program and keep it: compilations on the same product use it from then on."""
    from treadle.bench.candidates import candidates, problem_of
    from treadle.bench.tuning import store, winner

    text, base = source_of(what)
    base = options_from_plain(base, parse_options(option or ()))
    if not dry_run:
        require_torch()
        target = driver.target_of_device(device)
    problem = problem_of(text, what, target, base)
    rows = compile_all(text, target, candidates(problem, target, base, top))
    good = [row for row in rows if "problem" not in row]
    best: Mapping[str, Any] | None = None
    path: Path | None = None
    if not dry_run:
        measured = measure_all(text, [row["options"] for row in good], device, QUICK if quick else MeasureOptions(), timeout)
        for row, found in zip(good, measured, strict=True):
            row.update(found)
        best = winner(rows)
        if best is None:
            raise TreadleError(NOTHING_TO_TUNE, name=what, target=target, reason="no candidate ran")
        path = store(text, target, open_device(device).name, base, best, rows)
    if json:
        record = {"program": what, "target": target, "best": best, "measured": rows, "record": None if path is None else str(path)}
        print(json_text.dumps(record, indent=1))
    else:
        show(what, target, rows, best, path)
    return 0


def source_of(what: str) -> tuple[str, CompileOptions]:
    """Text and options of a workload, or of a file. Raises TR901."""
    workload = find(what)
    return (workload.text, workload.options) if workload is not None else (read_source(Path(what)).text, CompileOptions())


def compile_all(text: str, target: str, chosen: Sequence[CompileOptions]) -> list[dict[str, Any]]:
    """Compile candidates in parallel with a progress bar on stderr; one row each, in order, with `problem` where it failed."""
    from treadle.bench.tuning import compile_candidates

    workers = min(len(chosen), knobs.WORKERS.get() or min(8, os.cpu_count() or 1))
    rows: dict[CompileOptions, dict[str, Any]] = {candidate: {"options": plain_options(candidate)} for candidate in chosen}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"compiling for {target}, {workers} processes", total=len(chosen))
        for compiled in compile_candidates(text, target, chosen, workers):
            progress.advance(task)
            if compiled.problem:
                rows[compiled.options]["problem"] = " ".join(compiled.problem.split())
    return list(rows.values())


def measure_all(
    text: str, chosen: Sequence[Mapping[str, Any]], device: str, measuring: MeasureOptions, seconds: float
) -> list[dict[str, Any]]:
    """Times of candidates, taken in a process of its own. Raises TR603 where that fails."""
    request = {"kind": "tune", "text": text, "candidates": list(chosen), "device": device, "measure": asdict(measuring)}
    with Session() as session:
        outcome, value = session.ask(request, seconds)
    if outcome != "ok":
        raise TreadleError(DEVICE_CALL, call="measuring the candidates", reason=f"{outcome}: {value}", hint="try fewer with --top")
    return value


def options_text(plain: Mapping[str, Any]) -> str:
    """`tile=128,256,64 num_stages=4`, or that the compiler chooses."""
    shown = [f"{name}={str(value).strip('[]').replace(' ', '')}" for name, value in plain.items()]
    return " ".join(shown) or "the compiler's choice"


def show(what: str, target: str, rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any] | None, path: Path | None) -> None:
    """The table of candidates in the model's order, and what was kept."""
    out = report.console()
    made = report.table(f"{what} for {target}", "options", "ms", "of the first", "")
    first = rows[0].get("ms") if rows else None
    for row in rows:
        time = row.get("ms")
        share = f"{first / time:.3f}" if first and time else "-"
        note = "[green]best[/]" if row is best else escape(str(row.get("problem", "")))
        made.add_row(options_text(row["options"]), "-" if time is None else f"{time:.4f}", share, note)
    out.print(made)
    if path is not None:
        out.print(f"kept as {path}", markup=False)
