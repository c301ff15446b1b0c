"""Errors of kernels in Python: the place in the user's file, and the line with a mark below it."""

import ast
import linecache
from dataclasses import dataclass

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


class Refusal(Exception):  # noqa: N818 - it becomes the error of a line
    """What an operation objects to, before it is known on which line it stands."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem, self.hint = problem, hint
        super().__init__(problem)
