"""Whether a contraction in the vector units had better read copies of its operands that lie along m and n. No IR.

Threads turn an operand that lies along k on its way to shared memory, element by element, and all of it again for every tile of the other
operand. A copy turns it once, and is copied in pieces of 16 bytes.
"""

from typing import Final

from treadle.plan.row_padding import RowPadding

CLEAR_GAIN: Final = 0.98
"""The copies and the contraction must be modelled to take at most so much of the time without copies: both are tiles of one model, which
differ in how operands come alone. 79 products that get copies took 0.949 of the time on an H200 (seeds 1 and 2, fifteen of them more, 1.09
at most); asked to save 5 % all would take 0.958.
"""
LEAST_SAVED_SECONDS: Final = 3e-6
"""And so much less: launches of small kernels vary by as much."""


def is_clear(found: RowPadding) -> bool:
    """Whether the copies are worth it, whatever models are off by."""
    return found.seconds <= min(CLEAR_GAIN * found.seconds_as_is, found.seconds_as_is - LEAST_SAVED_SECONDS)
