"""`treadle bench`: the suite of workloads against its peers, each case checked and measured in a process of its own."""

import json as json_text
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from treadle import driver
from treadle.bench import random_report, records
from treadle.bench.option_text import options_from_plain, parse_options, plain_options
from treadle.bench.peers import COMPILED, EAGER, require_torch
from treadle.bench.protocol import QUICK, MeasureOptions
from treadle.bench.random_shapes import SAMPLES
from treadle.bench.records import COPY, OURS, CaseRecord
from treadle.bench.session import Session
from treadle.bench.suite import choose
from treadle.bench.workload import Workload
from treadle.errors import USAGE, TreadleError
from treadle.machine import target_spec
from treadle.tools import report
from treadle.tools.compile_options import Fp8Option, PrecisionOption
from treadle.tools.diagnostics import EXIT_WRONG_RESULT
from treadle.tools.random_bench import chosen_form, compile_ahead, random_workloads

RESULTS = Path("benchmarks") / "results"
COMPILED_PEER_SECONDS = 240.0
"""torch.compile tries many kernels of its own."""


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Workloads, groups or patterns; all by default.")] = None,
    device: Annotated[Literal["cuda", "hip"], typer.Option(help="Where to run.")] = "cuda",
    vs: Annotated[Literal["torch", "none"], typer.Option(help="The peer.")] = "torch",
    max_autotune: Annotated[bool, typer.Option("--max-autotune", help="Also torch.compile with max-autotune (slow to compile).")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Eleven rounds, short warm-up, small samples.")] = False,
    rounds: Annotated[int, typer.Option(min=0, help="Calls of each contender (at least 11); 0 for the default.")] = 0,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="A compile option, such as num_stages=4.")
    ] = None,
    f32_precision: PrecisionOption = None,
    fp8_accumulation: Fp8Option = None,
    tuned: Annotated[bool, typer.Option("--tuned", help="Use what `treadle tune` stored, where it did.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds a case may take.")] = 150.0,
    deadline: Annotated[float, typer.Option(min=0, help="Begin no case after so many seconds; 0 for no limit.")] = 0.0,
    save: Annotated[str | None, typer.Option(metavar="NAME", help="Keep the result as benchmarks/results/NAME.json.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print records instead of a table.")] = False,
    random: Annotated[int, typer.Option(min=0, metavar="COUNT", help="Measure so many random workloads instead of the suite.")] = 0,
    sample: Annotated[str, typer.Option(help=f"With --random: {', '.join(SAMPLES)}.")] = "contractions",
    seed: Annotated[int, typer.Option(help="With --random: which workloads; nothing may be fitted to a seed that is reported.")] = 0,
    dtype: Annotated[list[str] | None, typer.Option(help="With --random: an element type; bf16 and f16 by default.")] = None,
    layouts: Annotated[list[str] | None, typer.Option(help="With --random: nn, nt, tn or tt (how A and B are stored).")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Compile ahead in so many processes; 0: each workload when its turn comes.")] = 0,
    show: Annotated[bool, typer.Option("--list", help="Show the workloads and leave.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print the MLIR of the chosen workloads and leave.")] = False,
) -> int:
    """Measure the suite against its peers."""
    chosen = random_workloads(sample, random, seed, dtype or (), layouts or ()) if random else choose(names or ())
    if show or text:
        _show_suite(chosen, as_json=json, as_text=text)
        return 0
    numerics = {"f32_precision": f32_precision, "fp8_accumulation": fp8_accumulation}
    given = parse_options(option or ()) | {name: value for name, value in numerics.items() if value is not None}
    if save is not None and Path(save).name != save:
        raise TreadleError(USAGE, message=f"--save {save}: a name is wanted, not a path")
    require_torch()
    target = driver.target_of_device(device)
    peers = [] if vs == "none" else [EAGER, *([COMPILED] if max_autotune else [])]
    measuring = QUICK if quick else MeasureOptions()
    measuring = replace(measuring, rounds=rounds) if rounds else measuring
    limit = timeout + (COMPILED_PEER_SECONDS if max_autotune else 0)
    requests = [_request(workload, device, target, peers, measuring, given, tuned=tuned) for workload in chosen]
    path = RESULTS / f"{save}.json" if save is not None else None
    if jobs:
        compile_ahead(requests, target, jobs)
    with Session() as session:
        environment, found = run_cases(session, chosen, requests, limit, deadline, path)
    if json:
        print(json_text.dumps(records.document(environment, found), indent=1))
    else:
        show_records(report.console(), environment, found)
    if random:
        units = target_spec(target).compute_units
        for line in random_report.lines(found, units, partial(chosen_form, target=target)):
            print(line, file=sys.stderr if json else sys.stdout)
    return 0 if all(record.status == "ok" for record in found) else EXIT_WRONG_RESULT


def _request(
    workload: Workload, device: str, target: str, peers: Sequence[str], measuring: MeasureOptions, given: Mapping[str, Any], *, tuned: bool
) -> dict[str, Any]:
    options = dict(given)
    if tuned:
        from treadle.bench.tuning import tuned_options  # with it comes the compiler

        stored = tuned_options(workload.text, target, options_from_plain(workload.options, given))
        options = given if stored is None else plain_options(stored)
    return {
        "kind": "case",
        "name": workload.name,
        "device": device,
        "peers": list(peers),
        "measure": asdict(measuring),
        "options": dict(options),
    }


def run_cases(
    session: Session, chosen: Sequence[Workload], requests: Sequence[Mapping[str, Any]], limit: float, deadline: float, save: Path | None
) -> tuple[dict[str, Any], list[CaseRecord]]:
    """Ask for every case in turn, one line each on stderr; the result is saved after each, so that an end by force loses one case."""
    log = Console(stderr=True, highlight=False)
    begun = time.perf_counter()
    outcome, value = session.ask({"kind": "environment"}, limit)
    environment: dict[str, Any] = value if outcome == "ok" else {"problem": str(value)}
    found: list[CaseRecord] = []
    for number, (workload, request) in enumerate(zip(chosen, requests, strict=True), 1):
        if deadline and time.perf_counter() - begun > deadline:
            log.print(f"deadline: {len(chosen) - number + 1} workloads were not begun")
            environment["not_begun"] = [one.name for one in chosen[number - 1 :]]
            break
        started = time.perf_counter()
        outcome, value = session.ask(request, limit)
        if outcome == "ok":
            record = CaseRecord.from_plain(value)
        else:
            record = CaseRecord(workload.name, workload.group, workload.title, status=outcome, message=str(value))
        found.append(record)
        log.print(
            f"{number}/{len(chosen)} {record.name}: {_line(record)} ({time.perf_counter() - started:.1f} s)", markup=False, soft_wrap=True
        )
        if save is not None:
            records.write(save, records.document(environment, found))
    return environment, found


def _line(record: CaseRecord) -> str:
    times = ", ".join(f"{name} {value:.4f} ms" for name, value in record.ms.items())
    ratio = f", ratio {record.best_ratio:.3f}" if record.best_ratio else ""
    return f"{record.status} {times}{ratio} {record.message}".strip()


def _show_suite(chosen: Sequence[Workload], *, as_json: bool, as_text: bool) -> None:
    if as_text:
        for workload in chosen:
            print(f"// {workload.name}: {workload.title}\n{workload.text}")
        return
    if as_json:
        rows = [
            {
                "name": w.name,
                "group": w.group,
                "title": w.title,
                "flop": w.flop,
                "bytes": w.bytes,
                "peer": w.peer,
                "inputs": [{"name": s.name, "shape": list(s.shape), "dtype": s.dtype} for s in w.inputs],
                "outputs": [{"name": s.name, "shape": list(s.shape), "dtype": s.dtype} for s in w.outputs],
            }
            for w in chosen
        ]
        print(json_text.dumps(rows, indent=1))
        return
    made = report.table("workloads", "name", "group", "what", "GFLOP", "MB", "peer")
    for w in chosen:
        made.add_row(w.name, w.group, w.title, f"{w.flop / 1e9:.4g}", f"{w.bytes / 1e6:.4g}", w.peer)
    report.console().print(made)


def show_records(out: Console, environment: Mapping[str, Any], found: Sequence[CaseRecord]) -> None:
    """The table, the means, and what went wrong."""
    out.print(results_table(found))
    means = records.group_means(found)
    if means:
        out.print("geometric means of peer / treadle: " + ", ".join(f"{group} {mean:.3f}" for group, mean in means.items()))
    right = sum(record.status == "ok" for record in found)
    device = environment.get("device", "no device")
    packages = environment.get("packages", {})
    out.print(f"{right} of {len(found)} right on {device}; " + ", ".join(f"{name} {text}" for name, text in packages.items()))
    for record in found:
        if record.status != "ok":
            out.print(f"{record.name}: {record.status}: {record.message}", markup=False)
        for peer, problem in record.peer_problems.items():
            out.print(f"{record.name}: no time of {peer}: {problem}", markup=False)
        if record.status == "ok" and record.host_bound:
            out.print(f"{record.name}: the host may have been late for {', '.join(record.host_bound)}", markup=False)


def results_table(found: Sequence[CaseRecord]) -> Table:
    """One row a case: medians in ms, ratio to each peer, throughput, the part of a copy's where one was measured, error."""
    peers = list(dict.fromkeys(name for record in found for name in record.ms if name not in (OURS, COPY)))
    headings = [title for peer in peers for title in (f"{peer} ms", f"x {peer}")]
    rates = ["TFLOP/s", "GB/s", *(["of copy"] if any(record.of_copy is not None for record in found) else [])]
    made = report.table("bench", "workload", "treadle ms", *headings, *rates, "error", "host us", "clock", "verdict")
    for record in found:
        if not record.ms:
            made.add_row(record.name, "-", *["-"] * (len(headings) + len(rates)), "-", "-", "-", f"[bold red]{record.status}[/]")
            continue
        against: list[str] = []
        for peer in peers:
            against += [_number(record.ms.get(peer), ".4f"), _colored(record.ratio.get(peer))]
        verdict = "[green]ok[/]" if record.status == "ok" else f"[bold red]{record.status}[/]"
        clock = record.state.get("clocks.sm", "-")
        made.add_row(
            record.name,
            f"{record.ms[OURS]:.4f}",
            *against,
            f"{record.tflops:.1f}",
            f"{record.gbps:.0f}",
            *([_number(record.of_copy, ".1%")] if len(rates) > 2 else []),
            f"{record.error:.1e}",
            f"{record.host_us[OURS]:.1f}",
            clock,
            verdict,
        )
    return made


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _colored(value: float | None) -> str:
    if value is None:
        return "-"
    return f"[{'green' if value >= 1 else 'yellow' if value >= 0.95 else 'red'}]{value:.3f}[/]"
