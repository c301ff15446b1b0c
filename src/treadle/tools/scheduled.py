"""Runs of a program's schedules in the simulator: for `treadle run --schedule`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.frontends.levels import Level
from treadle.options import CompileOptions
from treadle.sim.element_types import Array
from treadle.sim.schedule import Report, run_program_scheduled
from treadle.sim.schedule.scheduler import Mode

MODES: tuple[Mode, ...] = ("late", "random")


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A program's schedules for `target`, executed once in each mode; the results are those of the first mode."""

    target: str
    reports: tuple[Report, ...]

    @property
    def ok(self) -> bool:
        """Whether no mode found anything to object to."""
        return all(report.ok for report in self.reports)

    @property
    def results(self) -> tuple[Array, ...]:
        """One array an output."""
        return self.reports[0].outputs

    def show(self, out: Console) -> None:
        """Print what was found."""
        for mode, report in zip(MODES, self.reports, strict=True):
            out.print(f"schedules for {self.target}, asynchronous effects {mode}: {report}", highlight=False, markup=False)

    def record(self) -> dict[str, Any]:
        """The same as a JSON value."""
        found = [
            {"mode": mode, "steps": report.steps, "objections": [] if report.ok else str(report).splitlines()}
            for mode, report in zip(MODES, self.reports, strict=True)
        ]
        return {"target": self.target, "correct": self.ok, "runs": found}


def run_schedules(
    file: Path,
    function: str | None,
    target: str,
    arrays: Sequence[Array],
    seed: int,
    options: CompileOptions,
    level: Level | None = None,
) -> ScheduledRun:
    """Compile a file to schedule level for `target` and run it on `arrays`. Raises TreadleError with the user's line, TR501.

    The schedules are run whatever the verifier thinks of them: this is the other opinion.
    """
    module = scheduled(read_source(file, level), target, replace(options, verify=False), function)
    return ScheduledRun(target, tuple(run_program_scheduled(module, arrays, mode, seed) for mode in MODES))
