"""As what results of regions are shown, and the text of it in a region's name: code out of PyTorch's cache has nothing but the name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

Shown = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""Sizes and strides of the results that are shown otherwise than their program computes them, by their numbers."""
NONE: Final[Shown] = MappingProxyType({})


def text_of(shown: Shown) -> str:
    """`0s2x64x9s576x1x64`, one behind the other with `_` between: part of a name that may be one of Python's."""
    return "_".join("s".join([str(number), *("x".join(map(str, part)) for part in view)]) for number, view in shown.items())


def of_text(text: str) -> Shown:
    """The opposite of `text_of`."""
    found: dict[int, Any] = {}
    for each in filter(None, text.split("_")):
        number, *view = each.split("s")
        found[int(number)] = tuple(tuple(map(int, part.split("x"))) for part in view)
    return found
