"""Strategies: objects that see an operation of a tensor program and the machine, and decide how it is to be rewritten.

A strategy writes nothing itself: what it decides is an attribute that the pass which asked for it puts on the operation, where the
program's text shows it and a user may write another one. Strategies are asked in order, the first answer counts. Those of other packages
are entry points of the group `treadle.strategies` (each an object, or a class to make one of), asked before the built-in ones.
"""

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from treadle.ir.core import Attribute
    from treadle.machine import TargetSpec
    from treadle.strategies.facts import OperationFacts

__all__ = ["GROUP", "Strategy", "register_strategy", "strategies_for", "unregister_strategy"]

GROUP = "treadle.strategies"


@runtime_checkable
class Strategy(Protocol):
    """`name` for remarks; `attribute`: the name of the attribute that it decides about, such as "treadle.split_reduction"."""

    @property
    def name(self) -> str:
        """For remarks."""
        ...

    @property
    def attribute(self) -> str:
        """What it decides about."""
        ...

    def decide(self, facts: "OperationFacts", spec: "TargetSpec") -> "Attribute | None":
        """The attribute's value for an operation; None where the strategy has no opinion."""
        ...


_REGISTERED: list[Strategy] = []


def register_strategy(strategy: Strategy) -> Strategy:
    """Ask `strategy` before all that were registered earlier, in this process."""
    _REGISTERED.insert(0, strategy)
    return strategy


def unregister_strategy(name: str) -> None:
    """Ask the strategies registered under a name no more."""
    _REGISTERED[:] = [strategy for strategy in _REGISTERED if strategy.name != name]


def _is_offered() -> bool:
    """Whether an installed package has entry points of the group.

    Read off the packages' folders: `importlib.metadata` takes longer to import, and to read all of them, than lowering a kernel.
    """
    found = (path / "entry_points.txt" for folder in sys.path for path in _packages(Path(folder or ".")))
    return any(_names_group(file) for file in found)


def _packages(folder: Path) -> list[Path]:
    """What describes the packages that are installed in a folder."""
    try:
        return [path for path in folder.iterdir() if path.suffix in (".dist-info", ".egg-info")]
    except OSError:
        return []


def _names_group(file: Path) -> bool:
    try:
        return GROUP.encode() in file.read_bytes()
    except OSError:
        return False


@cache
def _installed() -> tuple[Strategy, ...]:
    """The strategies of other packages. Raises TypeError for an entry point that is none."""
    if not _is_offered():
        return ()
    from importlib.metadata import entry_points

    found: list[Strategy] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        loaded = entry.load()
        strategy = loaded() if isinstance(loaded, type) else loaded
        if not isinstance(strategy, Strategy):
            raise TypeError(f"the entry point {entry.name} of {GROUP} is no strategy: it needs name, attribute and decide")
        found.append(strategy)
    return tuple(found)


def strategies_for(attribute: str) -> tuple[Strategy, ...]:
    """The strategies that decide about an attribute, in the order in which they are asked."""
    from treadle.strategies.split_sizes import SplitSizes

    builtin: Strategy = SplitSizes()
    known = [*_REGISTERED, *_installed(), builtin]
    return tuple(strategy for strategy in known if strategy.attribute == attribute)
