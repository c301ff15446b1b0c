"""Linear algebra over GF(2) on integers: a vector is an int, a set bit a one.

Coordinates of any rank are packed into one int, `AXIS_BITS` bits an axis, so that XOR of packed coordinates is XOR along every axis.
"""

from collections.abc import Iterable, Sequence

AXIS_BITS = 32
_AXIS_MASK = (1 << AXIS_BITS) - 1

Coordinates = tuple[int, ...]


def pack(coordinates: Sequence[int]) -> int:
    """One int for a coordinate vector; axis `d` occupies bits `[32d, 32d + 32)`."""
    key = 0
    for axis, value in enumerate(coordinates):
        key |= value << (AXIS_BITS * axis)
    return key


def unpack(key: int, rank: int) -> Coordinates:
    """The coordinate vector that `pack` made `key` from."""
    return tuple((key >> (AXIS_BITS * axis)) & _AXIS_MASK for axis in range(rank))


def odd_part(value: int) -> int:
    """`value` without its factors of two."""
    return value // power_of_two_part(value)


def power_of_two_part(value: int) -> int:
    """The largest power of two that divides `value`, which is positive."""
    return value & -value


def log2_exact(value: int) -> int:
    """The exponent of a power of two; a negative number for anything else."""
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else -1


def set_bits(mask: int) -> Iterable[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def parity(mask: int) -> int:
    """One when an odd number of bits is set."""
    return mask.bit_count() & 1


def combine(bases: Sequence[int], index: int) -> int:
    """XOR of the bases chosen by the set bits of `index`."""
    result = 0
    for bit in set_bits(index):
        result ^= bases[bit]
    return result


class Span:
    """The space spanned by vectors, with the combination of inputs that gives each member (Gauss-Jordan elimination).

    Vectors that depend on earlier ones, zeros included, take no part in combinations.
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, tuple[int, int]] = {}  # leading bit -> (vector, mask of the inputs that combine to it)
        self._count = 0
        for vector in vectors:
            self.add(vector)

    @property
    def rank(self) -> int:
        """The dimension of the space."""
        return len(self._rows)

    def _reduce(self, vector: int) -> tuple[int, int]:
        """What is left of `vector`, and the inputs that were taken from it."""
        used, rest, done = 0, vector, 0
        while rest & ~done:
            lead = (rest & ~done).bit_length() - 1
            row = self._rows.get(lead)
            if row is None:
                done |= 1 << lead
            else:
                rest ^= row[0]
                used ^= row[1]
        return rest, used

    def add(self, vector: int) -> bool:
        """Add one input vector; False when it was in the span already."""
        index = self._count
        self._count += 1
        rest, used = self._reduce(vector)
        if not rest:
            return False
        self._rows[rest.bit_length() - 1] = (rest, used ^ (1 << index))
        return True

    def split(self, vector: int) -> tuple[int, int]:
        """`(mask, rest)`: `vector` is the XOR of the inputs in `mask` and of `rest`, which is zero for members of the span."""
        rest, used = self._reduce(vector)
        return used, rest

    def __contains__(self, vector: int) -> bool:
        """Whether `vector` is in the span."""
        return self._reduce(vector)[0] == 0
