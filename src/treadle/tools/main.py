"""The entry point of the `treadle` command: registers the verbs and turns every failure into a message and an exit status."""

import os
import sys
from typing import Annotated

import typer

from treadle import __version__
from treadle.errors import USAGE, TreadleError
from treadle.tools import bench as bench_verb
from treadle.tools import compile as compile_verb
from treadle.tools import devices as devices_verb
from treadle.tools import explain as explain_verb
from treadle.tools import opt as opt_verb
from treadle.tools import run as run_verb
from treadle.tools import verify as verify_verb
from treadle.tools.diagnostics import report_internal_error, report_user_error

app = typer.Typer(
    name="treadle",
    help="Compile tensor programs (MLIR) to GPU kernels, and run them.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"treadle {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")] = False,
) -> None:
    """Compile tensor programs (MLIR) to GPU kernels, and run them."""


app.command("run")(run_verb.run)
app.command("compile")(compile_verb.compile_file)
app.command("opt")(opt_verb.opt)
app.command("explain")(explain_verb.explain)
app.command("verify")(verify_verb.verify)
app.command("devices")(devices_verb.devices)
app.command("bench")(bench_verb.bench)


def invoke(arguments: list[str]) -> int:
    """Run the command on `arguments`; prints to stdout and stderr and returns the exit status."""
    try:
        status = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except TreadleError as error:
        return report_user_error(error)
    except typer.TyperException as error:
        return report_user_error(TreadleError(USAGE, message=error.format_message()))
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):  # the reader (head, less) has gone, of which typer makes an exit: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last line before the user, who must not see a traceback
        return report_internal_error(error)


def main() -> None:
    """Run the command on the process's arguments."""
    sys.exit(invoke(sys.argv[1:]))
