"""Campaigns of random cases, each in a process of its own with a time limit.

    python tests/fuzz modules --count 10000 --jobs 16 --log modules.jsonl

Exit status 1 where a case shows a defect. docs/fuzzing.md says what each kind checks.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from fuzz.kinds import KINDS, load
from fuzz.outcomes import IN_TURN, MEANINGS, Outcome, Settings
from fuzz.pool import not_done, run_cases
from generators.contractions import TARGETS
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

SHOWN = 20


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    kinds = "\n".join(f"  {name:10}{meaning}" for name, meaning in KINDS.items())
    parser = argparse.ArgumentParser("tests/fuzz", description=f"kinds:\n{kinds}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=300, help="cases (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="the first case; the others follow it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: one a core)")
    parser.add_argument("--seconds", type=float, default=0.0, help="time limit of a case; the kind has its own")
    parser.add_argument(
        "--targets",
        default="",
        help="targets, separated by commas (default: five; `turn`: one a module; other cases take one each)",
    )
    parser.add_argument("--device", default="", help="modules: also run on this device (cuda, hip)")
    parser.add_argument("--no-iree", action="store_true", help="modules: do not ask IREE, where it is installed")
    parser.add_argument("--log", type=Path, help="append every outcome to this file, and skip the seeds that it holds")
    parser.add_argument("--save", type=Path, help="write the programs of all defects to this folder")
    chosen = parser.parse_args(given)
    chosen.targets = tuple(t for t in chosen.targets.split(",") if t)
    if chosen.targets != IN_TURN and (unknown := [t for t in chosen.targets if t not in TARGETS]):
        parser.error(f"{', '.join(unknown)}: no target; there are {', '.join(TARGETS)}")
    if chosen.targets == IN_TURN and chosen.kind != "modules":
        parser.error(f"{chosen.kind} have one target a case without being asked; leave --targets out")
    return chosen


def main(given: Sequence[str]) -> int:
    """Run a campaign and print its table."""
    chosen = arguments(given)
    settings = Settings(chosen.targets, chosen.device, not chosen.no_iree)
    earlier = [Outcome.read(line) for line in chosen.log.read_text("utf-8").splitlines()] if chosen.log and chosen.log.exists() else []
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    earlier = [outcome for outcome in earlier if outcome.seed in seeds]
    log = chosen.log.open("a", encoding="utf-8") if chosen.log else None
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(chosen.kind, total=chosen.count, completed=len(earlier))

        def seen(outcome: Outcome) -> None:
            progress.advance(task)
            if log is not None:
                log.write(outcome.line() + "\n")
                log.flush()
            if outcome.is_defect:
                progress.console.print(f"{outcome.status} {outcome.seed}: {outcome.label} {short(outcome.detail)}", markup=False)

        remaining = not_done(seeds, {outcome.seed for outcome in earlier})
        limit = chosen.seconds or load(chosen.kind).seconds
        outcomes = earlier + run_cases(chosen.kind, remaining, settings, seconds=limit, jobs=chosen.jobs, seen=seen)
    if chosen.save is not None:
        save(chosen.save, chosen.kind, outcomes)
    show(chosen.kind, outcomes)
    return int(any(outcome.is_defect for outcome in outcomes))


def short(detail: str) -> str:
    """The first words of a detail on one line."""
    return " ".join(detail.split())[:200]


def save(folder: Path, kind: str, outcomes: Sequence[Outcome]) -> None:
    """The programs of the defects, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        if outcome.is_defect and outcome.text:
            head = "".join(
                f"// {line}\n" for line in f"{kind} {outcome.seed}: {outcome.status} {outcome.label}\n{outcome.detail}".splitlines()
            )
            (folder / f"{kind}_{outcome.seed}.mlir").write_text(head + outcome.text, encoding="utf-8")


def show(kind: str, outcomes: Sequence[Outcome]) -> None:
    """The table of the campaign, last of all: how many cases ended how, and the first defects."""
    counts = Counter(outcome.status for outcome in outcomes)
    table = Table("outcome", "cases", "first seeds", "meaning", box=None)
    for status, meaning in MEANINGS.items():
        if counts[status]:
            first = ", ".join(str(o.seed) for o in outcomes if o.status == status) if status not in ("right", "refused") else ""
            table.add_row(status, str(counts[status]), first[:60], meaning)
    console = Console(width=150)
    defects = [outcome for outcome in outcomes if outcome.is_defect]
    for outcome in defects[:SHOWN]:
        console.print(
            f"{outcome.status}: python tests/fuzz {kind} --seed {outcome.seed} --count 1\n  {outcome.label}\n  {short(outcome.detail)}",
            markup=False,
        )
    console.print(table)
    console.print(f"{len(outcomes)} cases, {len(defects)} defects")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
