"""`treadle bench --random`: which workloads, compiling them ahead in several processes, and the form that each got."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.progress import Progress

from treadle import driver
from treadle.bench.named_shapes import DTYPES, LAYOUTS
from treadle.bench.option_text import options_from_plain
from treadle.bench.random_shapes import SAMPLES, RandomChoice, random_names
from treadle.bench.suite import choose, find
from treadle.bench.workload import Workload
from treadle.errors import USAGE, TreadleError

DECIDER = "set-kernel-form"


def random_workloads(sample: str, count: int, seed: int, dtypes: Sequence[str], layouts: Sequence[str]) -> tuple[Workload, ...]:
    """The sample's workloads. Raises TR001 for a sample, type or layout that is unknown."""
    for given, known, what in (((sample,), SAMPLES, "--sample"), (dtypes, DTYPES, "--dtype"), (layouts, LAYOUTS, "--layouts")):
        if unknown := [word for word in given if word not in known]:
            raise TreadleError(USAGE, message=f"{what} {unknown[0]}: known are {', '.join(known)}")
    choice = RandomChoice(tuple(dtypes) or RandomChoice().dtypes, tuple(layouts))
    return choose(list(dict.fromkeys(random_names(sample, count, seed, choice))))


def compile_ahead(requests: Sequence[Mapping[str, Any]], target: str, jobs: int) -> None:
    """Fill the cache with the programs of these requests. What fails here fails again, and is told, where it is measured."""
    context = get_context("spawn")  # threads and devices of this process are none of theirs
    with Progress(console=Console(stderr=True), transient=True) as progress, ProcessPoolExecutor(jobs, mp_context=context) as pool:
        task = progress.add_task("compiling", total=len(requests))
        waiting = [pool.submit(_compile, request["name"], target, request["options"]) for request in requests]
        for _ in as_completed(waiting):
            progress.advance(task)


def _compile(name: str, target: str, options: Mapping[str, Any]) -> None:
    workload = find(name)
    if workload is not None:
        driver.compile(workload.text, target=target, options=replace(options_from_plain(workload.options, options), tuned=False))


def chosen_form(name: str, target: str) -> str:
    """What the compiler chose for the kernels of a workload, from its remarks; what it says where it does not compile."""
    workload = find(name)
    if workload is None:
        return ""
    try:
        trace = driver.trace(workload.text, target=target, options=replace(workload.options, tuned=False), until="tile")
    except TreadleError as problem:
        return f"{problem.code}: {problem.message}"
    decided = [remark for remark in trace.remarks if remark.pass_name == DECIDER and remark.kind == "decision"]
    return "; ".join(" ".join(remark.text.split()) for remark in decided)
