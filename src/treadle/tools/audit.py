"""`treadle audit`: what the steady loop of every kernel's machine code costs, and whether the code keeps the audit's rules."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from treadle.dialects.sync import SchedFenceOp
from treadle.driver.lowering import lower, tile_kernels
from treadle.driver.sources import read_source, read_text
from treadle.errors import NO_LOOP_REPORT, TreadleError
from treadle.ir.builtin import ModuleOp
from treadle.options import CompileOptions
from treadle.targets import registry
from treadle.targets.loop_report import LoopReport, ReportsLoops, schedule_name, tile_shape
from treadle.tools import report
from treadle.tools.compile_options import ChoicesOption, Level, LevelOption, compile_options
from treadle.tools.diagnostics import EXIT_WRONG_RESULT

TargetOption = Annotated[str, typer.Option("--target", help="gfx942, gfx950, gfx1100, gfx1201, or a product of one.")]

WHOLE_TILE = (256, 256)
WHOLE_TILE_SHARE = {"gfx942": 0.75, "gfx950": 0.85}
"""The least share of matrix instructions that the model is to give a loop over whole tiles of this size."""


@dataclass(frozen=True, slots=True)
class Row:
    """One loop. `schedule`: what Treadle planned for it, empty for code from elsewhere. `fences`: scheduling fences of its kernel.

    `tile`: rows and columns of the results that a workgroup holds, empty where that is not known.
    """

    schedule: str
    fences: int
    loop: LoopReport
    tile: tuple[int, ...] = ()


def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program, or (--asm) AMD assembly or disassembly from anywhere.")],
    target: TargetOption,
    asm: Annotated[bool, typer.Option("--asm", help="FILE is assembly: it is read, and nothing is compiled.")] = False,
    option: ChoicesOption = None,
    level: LevelOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> int:
    """Show what the loop with the most matrix instructions of every kernel costs; status 1 where the code breaks a rule of the audit."""
    backend = registry.backend(target)
    if not isinstance(backend, ReportsLoops):
        raise TreadleError(NO_LOOP_REPORT, target=target)
    if asm:
        rows = [Row("", 0, loop) for loop in backend.read_reports(read_text(file))]
    else:
        rows = own_rows(file, target, backend, compile_options(option), level)
    if as_json:
        print(json.dumps([as_plain(row) for row in rows], indent=1))
    elif not rows:
        report.console().print("no kernel has a loop with matrix instructions")
    else:
        report.console().print(loops_table(f"{file.name} for {target}", rows))
    return EXIT_WRONG_RESULT if any(row.loop.broken for row in rows) else 0


def own_rows(
    file: Path, target: str, backend: ReportsLoops, options: CompileOptions, level: Level | None, *, bare: bool = True
) -> list[Row]:
    """Compile a program as always, and read the loops of its kernels; with `bare` those with scheduling fences once more without them.

    Raises what compiling raises.
    """
    last: list[ModuleOp] = []
    lower(read_source(file, level), target, options, None, instrument=last.append)
    rows: list[Row] = []
    for kernel in tile_kernels(last[-1]):
        name, fences = schedule_name(kernel), [op for op in kernel.walk() if isinstance(op, SchedFenceOp)]
        tile = tile_shape(kernel)
        rows += [Row(name, len(fences), loop, tile)] if (loop := backend.report(kernel)) is not None else []
        for fence in fences if bare else ():
            fence.detach()
            fence.erase()
        if bare and fences and (without := backend.report(kernel)) is not None:
            rows.append(Row(name, 0, replace(without, broken=()), tile))  # for comparison: nobody is given this code
    return rows


def as_plain(row: Row) -> dict[str, object]:
    """A row as JSON has it."""
    loop = row.loop
    figures = {**asdict(loop), "load_waits": loop.load_waits, "density": loop.density}
    return {"schedule": row.schedule, "fences": row.fences, "tile": row.tile, **figures}


def shortfalls(target: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    """What a loop that Treadle planned has and should not, or has too little of; empty for a loop that keeps all bars.

    `record`: of `as_plain`, or of a table that was kept. None of the bars makes a result wrong; rules of the audit, errors, are among them.
    """
    planned, asynchronous = record["schedule"] != "sequential", record["schedule"].startswith("async")
    counts = {
        "waits for loads between matrix instructions": record["load_waits"] if planned else 0,
        "accesses to scratch": record["scratch"],
        "moves of accumulators": record["moves"],
        "waits for all copies": record["drains"] if asynchronous else 0,
    }
    found = [f"{count} {name}" for name, count in counts.items() if count] + [f"rule {rule}" for rule in record["broken"]]
    if planned and tuple(record["tile"]) == WHOLE_TILE and record["matrix_share"] < WHOLE_TILE_SHARE.get(target, 0.0):
        found.append(f"a modelled matrix share of {record['matrix_share']:.3f}")
    return tuple(found)


def _percent(part: float | None) -> str:
    return "?" if part is None else f"{100 * part:.0f} %"


def loops_table(title: str, rows: Sequence[Row]) -> report.Table:
    """One line a figure, one column a loop."""
    made = report.table(title, "steady loop of", *(row.loop.kernel for row in rows))
    lines: dict[str, list[str]] = {
        "schedule": [row.schedule or "-" for row in rows],
        "scheduling fences": [str(row.fences) if row.schedule else "?" for row in rows],
        "matrix instructions": [f"{row.loop.matrix} of {row.loop.instructions} ({_percent(row.loop.density)})" for row in rows],
        "waits between them (on loads)": [f"{len(row.loop.inner_waits)} ({row.loop.load_waits})" for row in rows],
        "what they wait for": [_waits(row.loop) for row in rows],
        "waits for all loads": [str(row.loop.drains) for row in rows],
        "loads, direct copies": [f"{row.loop.loads}, {row.loop.copies}" for row in rows],
        "shared loads, stores": [f"{row.loop.shared_loads}, {row.loop.shared_stores}" for row in rows],
        "bank conflicts": [_percent(row.loop.conflicts) for row in rows],
        "barriers": [str(row.loop.barriers) for row in rows],
        "vector arithmetic": [str(row.loop.vector) for row in rows],
        "accumulator moves, scratch": [f"{row.loop.moves}, {row.loop.scratch}" for row in rows],
        "registers, shared bytes": [f"{row.loop.registers}, {row.loop.shared_bytes}" for row in rows],
        "workgroups a unit, waves": [f"{row.loop.workgroups}, {row.loop.waves}" for row in rows],
        "clocks (model)": [f"{row.loop.cycles:.0f}" for row in rows],
        "matrix share (model)": [_percent(row.loop.matrix_share) for row in rows],
        "broken rules": [", ".join(row.loop.broken) or "none" for row in rows],
    }
    for name, cells in lines.items():
        made.add_row(name, *cells)
    return made


def _waits(loop: LoopReport) -> str:
    return "; ".join(", ".join(kind.replace("_", " ") for kind in kinds) or "nothing" for kinds in loop.inner_waits) or "-"
