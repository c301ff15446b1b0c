"""What rows of copies ask of the cache that all units share: rows that begin inside a request are two of them. No IR."""

from math import gcd

from treadle.machine.rates import RoleRates

REQUEST_BYTES = 64
"""What copies ask the cache for at once: two of them for a row that begins at one, more for others."""
SECTOR_BYTES = 32
"""Of a cache line, what is read at once."""


def request_factor(apart_bytes: int, rates: RoleRates) -> float:
    """How many times as long rows take that begin anywhere at multiples of so many bytes as rows that are whole requests."""
    crossing = 1 - gcd(apart_bytes, REQUEST_BYTES) / REQUEST_BYTES
    return 1 + crossing * (rates.cut_sector_factor if apart_bytes % SECTOR_BYTES else rates.cut_request_factor)
