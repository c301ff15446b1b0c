"""The `--target` option that several verbs share."""

from typing import Annotated

import typer

TargetOption = Annotated[str, typer.Option("--target", help="sm_90a, gfx942, gfx950, gfx1100, gfx1201, or sim.")]
