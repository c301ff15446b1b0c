"""How wide the accesses of a kernel that computes element by element are, where rows begin or end anywhere. No IR.

Accesses of less than a word move fewer bytes than a warp's instruction can. Where results may be stored in wider groups, of which one may
lie across the end of a row, what is read comes in the same groups: as it is aligned, or shifted into place.
"""

from collections.abc import Sequence
from typing import Final

from treadle.records import dataclass

WORD_BYTES: Final = 4
"""Narrower accesses are worth a shift: neighbouring lanes that access a word each move whole lines as they do."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Elements that an access may move at once: `whole`, where no group lies across an end; `aligned`, where groups may, of addresses that
    are multiples of them; `shifted`, at any address (0: not possible).
    """

    element_bytes: int
    whole: int
    aligned: int
    shifted: int = 0

    @property
    def widest(self) -> int:
        """However that is done."""
        return max(self.whole, self.aligned, self.shifted)


def elements_together(loads: Sequence[Widths], stores: Sequence[Widths]) -> int:
    """Elements that all accesses of a kernel are to move at once; 0 where each had better be as wide as it can without that."""
    every = (*loads, *stores)
    found = min((each.widest for each in every), default=0)
    narrow = [each for each in every if each.whole < found and each.whole * each.element_bytes < WORD_BYTES]
    moved = [found * each.element_bytes for each in loads if max(each.whole, each.aligned) < found]
    return found if stores and narrow and all(count >= WORD_BYTES for count in moved) else 0
