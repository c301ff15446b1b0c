"""What rows of copies ask of the cache that all units share, more where they begin inside a line, a request or a sector. No IR."""

from math import gcd

from treadle.machine.rates import RoleRates

LINE_BYTES = 128
"""Of a cache line."""
REQUEST_BYTES = 64
"""What copies ask the cache for at once: two of them for a row that begins at one, more for others."""
SECTOR_BYTES = 32
"""Of a cache line, what is read at once."""


def request_factor(apart_bytes: int, rates: RoleRates) -> float:
    """How many times as long rows of a line's length take that begin at multiples of so many bytes as whole lines do."""

    def inside(part_bytes: int) -> float:
        """The share of the rows that begin inside what lies at multiples of so many bytes."""
        return 1 - gcd(apart_bytes, part_bytes) / part_bytes

    cut_requests = inside(REQUEST_BYTES) * (rates.cut_sector_factor if apart_bytes % SECTOR_BYTES else rates.cut_request_factor)
    return 1 + inside(LINE_BYTES) * rates.cut_line_factor + cut_requests
