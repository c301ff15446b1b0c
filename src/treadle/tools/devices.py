"""`treadle devices`: where programs can run on this machine, and why not where they cannot."""

import json as json_text
from typing import Annotated

import typer

from treadle.runtime.device import survey
from treadle.tools import report


def devices(json: Annotated[bool, typer.Option("--json", help="Print a record instead of a table.")] = False) -> int:
    """Show the devices of this machine."""
    found = survey()
    if json:
        print(
            json_text.dumps(
                [{"device": d.kind, "target": d.target, "available": d.available, "description": d.description} for d in found], indent=2
            )
        )
        return 0
    made = report.table("devices", "device", "target", "available", "what it is, or why it is not there")
    for one in found:
        made.add_row(one.kind, one.target or "-", "[green]yes[/]" if one.available else "no", one.description)
    report.console().print(made)
    return 0
