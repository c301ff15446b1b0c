"""Named passes on a file: every pass of the compiler is found, made from its text, run, and the module printed."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from treadle import transforms
from treadle.driver.sources import read_source
from treadle.ir.core import Operation
from treadle.ir.passes import Pass, parse_passes, pass_options, run_passes
from treadle.ir.text import parse_module, print_module

Observer = Callable[[str, str], None]


@lru_cache(maxsize=1)
def all_passes() -> dict[str, type[Pass]]:
    """Every pass of the compiler by name; the modules of `treadle.transforms` are imported to find them, and with them all dialects."""
    for module in pkgutil.walk_packages(transforms.__path__, transforms.__name__ + "."):
        import_module(module.name)
    import_module("treadle.ir.simplify")
    import_module("treadle.verify.verify_schedule")
    kinds = [kind for kind in _subclasses(Pass) if hasattr(kind, "name") and not inspect.isabstract(kind)]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)}


def _subclasses(kind: type[Pass]) -> Iterator[type[Pass]]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def run_file(file: Path, passes: str, after: Observer | None = None) -> str:
    """The text of the module in `file` after the passes; `after(name, text)` sees it after each.

    Raises TreadleError for the file's text, for unknown passes and options, and for what a pass refuses.
    """
    chosen = parse_passes(passes, all_passes())
    source = read_source(file)
    module = parse_module(source.text, source.file)

    def observe(name: str, op: Operation) -> None:
        if after is not None:
            after(name, print_module(op))

    run_passes(module, chosen, after=observe)
    return print_module(module)


def describe_passes() -> str:
    """One line a pass: its name, options with their defaults, and the first line of its module's docstring."""
    lines: list[str] = []
    for name, kind in all_passes().items():
        options = ", ".join(
            field.name if field.default is MISSING else f"{field.name}={field.default}" for field, _, _ in pass_options(kind).values()
        )
        summary = (import_module(kind.__module__).__doc__ or "").partition("\n")[0].removeprefix(f"{name}: ")
        lines.append(f"{name}{'{' + options + '}' if options else ''}\n    {summary}\n")
    return "".join(lines)
