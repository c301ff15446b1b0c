"""Formulas about executions of a kernel: texts in isl's notation in which symbols stand in braces."""

import re
from collections.abc import Iterable

from treadle.records import dataclass

Formula = str
NEVER_SHARED = "?"
"""Among what a symbol depends on: it may differ even between two agents at one point of the program."""
_PLACE = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A quantity. `depends`: the symbols that fix its value (none: the same in all executions); `meaning`: for messages.

    `facts` hold for every execution; `is_exact`: they say all there is to say.
    """

    name: str
    depends: frozenset[str]
    facts: tuple[Formula, ...] = ()
    is_exact: bool = True
    is_nonnegative: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Injection:
    """For any two executions: where all `when` are equal, all `then` are. All are formulas of `symbols`. Two of one `family` say it of one
    another's values, too.
    """

    symbols: frozenset[str]
    when: tuple[Formula, ...]
    then: tuple[Formula, ...]
    family: str = ""


def symbols_in(formula: Formula) -> set[str]:
    """The symbols of a formula."""
    return set(_PLACE.findall(formula))


def both(parts: Iterable[Formula]) -> Formula:
    """The conjunction."""
    return " and ".join(f"({part})" for part in parts) or "0 = 0"
