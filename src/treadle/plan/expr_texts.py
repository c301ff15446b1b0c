"""Expressions by their text, those that were printed too: what one pass writes into attributes, the next one reads."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from treadle.plan.expr import Expr

MOST_KNOWN: Final = 1 << 13
"""Texts that are remembered; one more, and all are forgotten."""
_known: dict[str, "Expr"] = {}

recalled = _known.get
"""The expression of a text; None for one that has not been printed or read lately."""


def remember(text: str, value: "Expr") -> None:
    """Let `recalled` answer `value` for a text, which must be what parsing gives."""
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[text] = value
