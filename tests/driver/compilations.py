"""A counter of compilations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.driver import lowering


def counter(patch: pytest.MonkeyPatch, folder: Path) -> Callable[[], int]:
    """How many programs have been lowered from here on; none is known from before, in a cache of its own in `folder`."""
    patch.setenv("TREADLE_CACHE_DIR", str(folder))
    made: list[object] = []
    real = lowering.lower

    def counted(*args: Any, **named: Any) -> Any:
        made.append(args)
        return real(*args, **named)

    patch.setattr(lowering, "lower", counted)
    return lambda: len(made)
