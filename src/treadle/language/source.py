"""The text of kernels in Python, and errors at its places: the line, with a mark below it."""

import ast
import inspect
import linecache
import textwrap
from dataclasses import dataclass
from types import FunctionType

from treadle.errors import KERNEL_LANGUAGE, SourceLocation, TreadleError


@dataclass(frozen=True, slots=True)
class Source:
    """A function's text in its file. `first`: the number of the text's first line, `indent`: what was cut off its lines."""

    file: str
    first: int = 1
    indent: int = 0

    def location(self, node: ast.AST) -> SourceLocation:
        """Where a node stands; columns count from 1."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return SourceLocation(self.file, self.first + line - 1, column + self.indent + 1)

    def error(self, node: ast.AST, problem: str, hint: str) -> TreadleError:
        """TR109 at a node, with its line and a mark below it."""
        place = self.location(node)
        line = linecache.getline(self.file, place.line).rstrip("\n")
        end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", None) == getattr(node, "lineno", 0) else None
        width = max(1, (len(line) if end is None else end + self.indent) - place.column + 1)
        shown = f"\n    {line}\n    {' ' * (place.column - 1)}{'^' * width}" if line else ""
        return TreadleError(KERNEL_LANGUAGE, place, problem=problem, shown=shown, hint=hint)


class Refusal(Exception):
    """What an operation objects to, before it is known on which line it stands."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem, self.hint = problem, hint
        super().__init__(problem)


def source_of(function: FunctionType) -> tuple[Source, ast.FunctionDef]:
    """A function's text and its tree. Raises TR109 where Python has no text of it."""
    file = inspect.getsourcefile(function) or "<function>"
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        hint = "write the kernel in a file (or a notebook's cell): its text is what is compiled"
        raise Source(file).error(ast.Pass(), f"the text of '{function.__name__}' is not to be had: {error}", hint) from error
    text = "".join(lines)
    plain = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip()) if plain != text else 0
    source = Source(file, first, indent)
    node = ast.parse(plain).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise source.error(node, "this is no function", "decorate a function that is written with def")
    return source, node
