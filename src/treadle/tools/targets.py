"""`treadle targets`: what can be compiled for, and how well its models know it."""

import json as json_text
from typing import Annotated, Any

import typer

from treadle.tools import report


def targets(json: Annotated[bool, typer.Option("--json", help="Print a record instead of a table.")] = False) -> int:
    """Show the architectures and products that programs can be compiled for; an architecture alone means its first product."""
    rows = _rows()
    if json:
        print(json_text.dumps(rows, indent=2))
        return 0
    made = report.table("targets", "target", "product", "units", "MHz", "GB/s", "models")
    for row in rows:
        name = f"{row['target']} ({row['architecture']})" if row["default"] else row["target"]
        models = "[green]measured[/]" if row["measured"] else "not measured"
        made.add_row(name, row["product"], str(row["compute_units"]), str(row["clock_mhz"]), str(row["memory_gbps"]), models)
    report.console().print(made)
    return 0


def _rows() -> list[dict[str, Any]]:
    from treadle.machine import known_products, known_targets

    return [
        {
            "target": f"{architecture}:{product.name}",
            "architecture": architecture,
            "default": number == 0,
            "product": product.description,
            "compute_units": product.compute_units,
            "clock_mhz": product.clock_mhz,
            "memory_gbps": product.memory_gbps,
            "measured": product.is_measured,
        }
        for architecture in known_targets()
        for number, product in enumerate(known_products(architecture))
    ]
