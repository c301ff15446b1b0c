"""`treadle explain`: every decision and refusal of a compilation with its reason, kernel by kernel."""

from pathlib import Path
from typing import Annotated

import typer

from treadle import driver
from treadle.options import CompileOptions
from treadle.tools import report
from treadle.tools.targets import TargetOption


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE.mlir", help="The tensor program.")],
    target: TargetOption,
    function: Annotated[str | None, typer.Option(help="The function to explain, where the file has several.")] = None,
    stages: Annotated[int, typer.Option(min=0, help="Stages of pipelined loops: 1 for none, 0 for the compiler's choice.")] = 1,
) -> int:
    """Show what the compiler decided and refused for FILE.mlir, and why."""
    remarks = driver.trace(file, target=target, options=CompileOptions(stages=stages), function=function, until="schedule").remarks
    out = report.console()
    if not remarks:
        out.print("nothing was decided or refused")
        return 0
    out.print(report.remarks_table(remarks, title=f"{file.name} for {target}"))
    counts = {kind: sum(remark.kind == kind for remark in remarks) for kind in ("decision", "refusal", "note")}
    out.print(", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()))
    return 0
