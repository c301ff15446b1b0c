"""Calibration: kernels of random shapes, each tiled in several ways and timed on a device. `rate_fit.py` fits the models to the times.

Times are kept as lines of JSON, one a shape, written as they come: a run that was broken off goes on where it ended.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from treadle.bench.candidates import candidates, problem_of
from treadle.bench.option_text import options_from_plain, plain_options
from treadle.bench.random_shapes import RandomChoice, random_names
from treadle.bench.suite import find
from treadle.bench.tuning import compile_quietly
from treadle.bench.workload import Workload
from treadle.errors import READ_FILE, USAGE, WRITE_FILE, TreadleError
from treadle.options import CompileOptions

SAMPLES: Final = ("contractions", "batched", "contractions", "skinny")
"""The samples of `random_shapes.py` that shapes are taken from, in turn."""
ALL: Final = 1000
"""More candidates than a shape has."""


def calibration_names(count: int, seed: int) -> list[str]:
    """The first `count` shapes of a seed; more shapes of the same seed begin with these."""
    drawn = {sample: iter(random_names(sample, count, seed, RandomChoice())) for sample in dict.fromkeys(SAMPLES)}
    return list(dict.fromkeys(next(drawn[SAMPLES[number % len(SAMPLES)]]) for number in range(count)))


def workload_of(name: str) -> Workload:
    """The workload of a name. Raises TR001 for none."""
    workload = find(name)
    if workload is None:
        raise TreadleError(USAGE, message=f"{name} is no workload")
    return workload


def base_options(workload: Workload) -> CompileOptions:
    """A workload's own options, its reduction in one part: parts have a model of their own, made of these."""
    return replace(workload.options, split_reduction="off", tuned=False)


def trials(name: str, target: str, count: int) -> list[CompileOptions]:
    """The compiler's own choice, and at most `count` others: half of them the best by the models, the rest any that fit the machine."""
    workload = workload_of(name)
    base = base_options(workload)
    own, *ranked = candidates(problem_of(workload.text, name, target, base), target, base, ALL)
    best, others = ranked[: (count + 1) // 2], ranked[(count + 1) // 2 :]
    draw = random.Random(f"trials of {name}")
    return [own, *best, *draw.sample(others, min(len(others), count - len(best)))]


def compile_trials(work: Sequence[tuple[str, CompileOptions]], target: str, jobs: int) -> Iterator[None]:
    """Fill the cache, one after another as they are done. What fails here fails again, and is told, where it is measured."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(compile_quietly, workload_of(name).text, target, options) for name, options in work]
        for _ in as_completed(waiting):
            yield


def add_line(path: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep a shape's times, in place of a last line that was cut off. Raises TR902."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "rows": [dict(row) for row in rows]}) + "\n")
    except OSError as problem:
        raise TreadleError(WRITE_FILE, path=path, reason=problem.strerror or problem) from problem


def read_lines(path: Path) -> dict[str, list[tuple[CompileOptions, float]]]:
    """Options and times in ms by shape, of those that ran; a last line that was cut off is left out. Raises TR901."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return {
            line["name"]: [(options_from_plain(CompileOptions(), row["options"]), row["ms"]) for row in line["rows"] if "ms" in row]
            for line in whole
        }
    except OSError as problem:
        raise TreadleError(READ_FILE, path=path, reason=problem.strerror or problem) from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise TreadleError(READ_FILE, path=path, reason=f"it holds no times of treadle calibrate ({problem})") from problem


def plain_trials(chosen: Sequence[CompileOptions]) -> list[dict[str, Any]]:
    """Options as a request to a worker has them."""
    return [plain_options(options) for options in chosen]
