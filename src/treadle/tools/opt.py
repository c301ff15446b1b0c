"""`treadle opt`: run passes on a file and print the module, as mlir-opt does."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from treadle.errors import USAGE, TreadleError
from treadle.tools import pass_runner


def opt(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.mlir", help="A module of any level.")] = None,
    passes: Annotated[str, typer.Option(metavar='"NAME{OPT=V},..."', help="The passes, in order; none only parses and prints.")] = "",
    print_after_all: Annotated[bool, typer.Option("--print-after-all", help="Print the module after every pass, on stderr.")] = False,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes and their options instead.")] = False,
) -> int:
    """Run passes on FILE.mlir and print the result."""
    if list_passes:
        sys.stdout.write(pass_runner.describe_passes())
        return 0
    if file is None:
        raise TreadleError(USAGE, message="opt takes the file to work on")
    observe = _print_after if print_after_all else None
    sys.stdout.write(pass_runner.run_file(file, passes, observe))
    return 0


def _print_after(name: str, text: str) -> None:
    sys.stderr.write(f"// -----// IR Dump After {name} //----- //\n{text}\n")
