"""The entry point of the `treadle` command: registers the verbs and turns every failure into a message and an exit status."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from treadle import __version__
from treadle.errors import HOST_MEMORY, USAGE, TreadleError
from treadle.tools.diagnostics import EXIT_USER_ERROR, report_internal_error, report_user_error

VERBS = {
    "run": "treadle.tools.run:run",
    "compile": "treadle.tools.compile:compile_file",
    "opt": "treadle.tools.opt:opt",
    "explain": "treadle.tools.explain:explain",
    "verify": "treadle.tools.verify:verify",
    "audit": "treadle.tools.audit:audit",
    "devices": "treadle.tools.devices:devices",
    "targets": "treadle.tools.targets:targets",
    "bench": "treadle.tools.bench:bench",
    "tune": "treadle.tools.tune:tune",
    "calibrate": "treadle.tools.calibrate:calibrate",
    "timeline": "treadle.tools.timeline:timeline",
}
"""Module and function of each verb; a verb is imported when it is called, since no verb should wait for what the others need."""


class Verbs(TyperGroup):
    """The verbs as commands, in the order of `VERBS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module, _, function = VERBS[cmd_name].partition(":")
        verb = typer.Typer(add_completion=False)
        verb.command(cmd_name)(getattr(import_module(module), function))
        return typer.main.get_command(verb)


app = typer.Typer(
    name="treadle",
    cls=Verbs,
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


def invoke(arguments: list[str]) -> int:
    """Run the command on `arguments`; prints to stdout and stderr and returns the exit status."""
    try:
        status = app(arguments, prog_name="treadle", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except TreadleError as error:
        return report_user_error(error)
    except typer.TyperException as error:
        if not error.format_message():  # no verb: the help has been printed
            return EXIT_USER_ERROR
        return report_user_error(TreadleError(USAGE, message=error.format_message()))
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):  # the reader (head, less) has gone, of which typer makes an exit: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        reason = str(error) or "an allocation failed"
        return report_user_error(TreadleError(HOST_MEMORY, what="the program's arrays", reason=reason))
    except Exception as error:  # noqa: BLE001 - the last line before the user, who must not see a traceback
        return report_internal_error(error)


def main() -> None:
    """Run the command on the process's arguments."""
    sys.exit(invoke(sys.argv[1:]))
