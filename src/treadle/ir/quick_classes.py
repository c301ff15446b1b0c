"""Upstream's dataclasses are made by our decorator, and so are those of the attributes of every dialect.

Upstream has two hundred, which take a tenth of the compiler's import when the standard decorator compiles six methods for each. They are
the same classes; where upstream is imported before the compiler, they stay as they are.
"""

import dataclasses
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from treadle import records

standard = dataclasses.dataclass
_OURS = frozenset(("eq", "frozen", "init", "kw_only", "repr"))


def _dataclass(kind: Any = None, /, **how: Any) -> Any:
    """`dataclasses.dataclass`; what ours does not know the standard one does."""
    asked = {name: value for name, value in how.items() if name in _OURS or value}
    made = cast("Any", records.dataclass if asked.keys() <= _OURS else standard)
    return made(kind, **asked)


@contextmanager
def quick_classes() -> Generator[None]:
    """Modules imported within get our decorator where they import the standard one."""
    dataclasses.dataclass = _dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = standard


with quick_classes():
    # Formats first: dialects are imported by all others.
    for _name in ("lazy_formats", "compact_splats", "linear_lexer", "quick_operations", "dialects", "context"):
        import_module(f"treadle.ir.{_name}")
