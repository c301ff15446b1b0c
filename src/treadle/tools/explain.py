"""`treadle explain`: every decision and refusal of a compilation with its reason, kernel by kernel; or the regions of PyTorch's graphs."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from treadle import driver
from treadle.errors import READ_FILE, SCRIPT, USAGE, TreadleError
from treadle.tools import report
from treadle.tools.compile_options import (
    ChoicesOption,
    Fp8Option,
    LevelOption,
    PrecisionOption,
    TargetOption,
    TunedOption,
    UnprovenOption,
    compile_options,
)
from treadle.torch.reports import Report, clear_report, load
from treadle.torch.reports import report as made_report


def explain(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The program (FILE.mlir): functions on tensors, or kernels; or, of PyTorch's graphs, a saved report (FILE.json) or a "
            "script that compiles some (FILE.py), which is run.",
        ),
    ],
    target: TargetOption = "",
    function: Annotated[str | None, typer.Option(help="The function to explain, where the file has several.")] = None,
    stages: Annotated[int | None, typer.Option(min=0, help="Stages of pipelined loops: 1 for none, 0 for the compiler's choice.")] = None,
    option: ChoicesOption = None,
    f32_precision: PrecisionOption = None,
    fp8_accumulation: Fp8Option = None,
    tuned: TunedOption = True,
    level: LevelOption = None,
    allow_unproven: UnprovenOption = False,
) -> int:
    """Show what the compiler decided and refused for FILE, and why."""
    if file.suffix in (".json", ".py"):
        return _explain_regions(file)
    if not target:
        raise TreadleError(USAGE, message="Missing option '--target'.")
    options = compile_options(option, f32_precision, fp8_accumulation, tuned=tuned, allow_unproven=allow_unproven)
    options = replace(options, pipeline_stages=stages) if stages is not None else options
    remarks = driver.trace(file, target=target, options=options, function=function, until="schedule", level=level).remarks
    out = report.console()
    if not remarks:
        out.print("nothing was decided or refused")
        return 0
    out.print(report.remarks_table(remarks, title=f"{file.name} for {target}"))
    counts = {kind: sum(remark.kind == kind for remark in remarks) for kind in ("decision", "refusal", "note")}
    out.print(", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()))
    return 0


def _explain_regions(file: Path) -> int:
    """What was taken of PyTorch's graphs and what was left, by a saved report or by the script that compiles them."""
    found = load(file) if file.suffix == ".json" else _report_of(file)
    out = report.console()
    if found.regions:
        out.print(report.regions_table(found, title=file.name))
        out.print(found.head)
    else:
        out.print("no matrix product or convolution came to this backend (torch.compile(model, backend='treadle'))")
    return 0


def _report_of(script: Path) -> Report:
    """Run a script as Python does. Raises TR825 where it fails."""
    if not script.is_file():
        raise TreadleError(READ_FILE, path=script, reason="there is no such file")
    clear_report()
    before, sys.argv = sys.argv, [str(script)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise TreadleError(SCRIPT, path=script, reason=f"exit status {ended.code}") from None
    except Exception as problem:
        raise TreadleError(SCRIPT, path=script, reason=f"{type(problem).__name__}: {problem}") from problem
    finally:
        sys.argv = before
    return made_report()
