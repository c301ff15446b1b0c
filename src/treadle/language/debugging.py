"""What helps while a kernel is written: assertions on constants, printing while it is compiled and while it runs, breakpoints."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from treadle.language.source import Refusal
from treadle.language.values import VALUES, Array, Block, Condition, Index, Slot, Tile, text_of

if TYPE_CHECKING:
    from treadle.ir.core import SSAValue
    from treadle.language.compiler import FunctionCompiler


def static_assert(c: "FunctionCompiler", condition: object, message: object = "") -> None:
    """Refuse to compile where a condition on constants does not hold."""
    if isinstance(condition, VALUES):
        raise Refusal("an assertion about what only the running kernel knows", "assert constants; check arrays before the call")
    if not condition:
        raise Refusal(
            f"the assertion does not hold{f': {message}' if message else ''}", "call the kernel with arguments for which it holds"
        )


def static_print(c: "FunctionCompiler", *values: object) -> None:
    """Print while the kernel is compiled: constants as they are, and what tiles and indices are."""
    words = [text_of(value) if isinstance(value, VALUES) else str(value) for value in values]
    sys.stdout.write(" ".join(words) + "\n")


def device_print(c: "FunctionCompiler", *values: object, **named: object) -> None:
    """Print tiles, indices and conditions while the kernel runs, for each workgroup, behind a text that stands first. The simulator alone
    prints. Python's `print` means this.
    """
    label, shown = (values[0], values[1:]) if values and isinstance(values[0], str) else ("", values)
    _emit(c, label, {**{f"[{number}]": value for number, value in enumerate(shown)}, **named}, stops=False)


def breakpoint_(c: "FunctionCompiler", label: object = "") -> None:
    """Stop in Python's debugger for each workgroup that gets there, with all variables of the kernel as NumPy arrays in `values`. The
    simulator alone stops. Python's `breakpoint` means this.
    """
    if not isinstance(label, str):
        raise Refusal(f"a breakpoint called {text_of(label)}", "its name is a text")
    shown = {name: value for name, value in c.scope.items() if isinstance(value, Tile | Index | Condition)}
    _emit(c, label, shown, stops=True)


def debug_barrier(c: "FunctionCompiler") -> None:
    """Refused: the compiler inserts every barrier between threads that is needed, and proves that none is missing."""
    raise Refusal(
        "a barrier by hand",
        "leave it out: the compiler inserts every barrier between threads that is needed, and proves that none is missing",
    )


def _emit(c: "FunctionCompiler", label: str, values: Mapping[str, object], *, stops: bool) -> None:
    from treadle.dialects import tile

    names: list[str] = []
    found: list[SSAValue] = []
    for name, value in values.items():
        loaded = c.loaded(value) if isinstance(value, Block | Slot) else value
        if isinstance(loaded, Array):
            raise Refusal(f"printing {text_of(loaded)}", "print a block of it: x[0:8]")
        part = loaded if isinstance(loaded, Tile | Index | Condition) else c.emit.tile(loaded)
        names.append(name)
        found.append(part.value)
    c.emit.add(tile.PrintOp(label, names, found, stops=stops))
