"""`treadle explain`: every decision and refusal of a compilation with its reason, kernel by kernel."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from treadle import driver
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


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE.mlir", help="The program: functions on tensors, or kernels.")],
    target: TargetOption,
    function: Annotated[str | None, typer.Option(help="The function to explain, where the file has several.")] = None,
    stages: Annotated[int | None, typer.Option(min=0, help="Stages of pipelined loops: 1 for none, 0 for the compiler's choice.")] = None,
    option: ChoicesOption = None,
    f32_precision: PrecisionOption = None,
    fp8_accumulation: Fp8Option = None,
    tuned: TunedOption = True,
    level: LevelOption = None,
    allow_unproven: UnprovenOption = False,
) -> int:
    """Show what the compiler decided and refused for FILE.mlir, and why."""
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
