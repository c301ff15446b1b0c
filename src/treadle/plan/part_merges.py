"""What it takes to merge the parts of a reduction's tiles: by the last workgroup that arrives, in turn, or in a cluster. No IR."""

from treadle.machine.spec import TargetSpec
from treadle.plan.small_m import copied_clocks

ELEMENTS_AT_ONCE = 8192
"""Elements of parts that the last workgroup loads together: 64 registers a thread of four warps."""
WORD_BYTES = 4
"""Of an element that workgroups of a cluster read from each other."""
PAIR = 2
"""Clusters of so many fit all units: units come in pairs."""


def parts_at_once(count: int, elements: int) -> int:
    """How many parts of a tile of so many elements the last workgroup loads together, a power of two: loads of one part alone wait for one
    another.
    """
    wanted, room = 1 << (count - 1).bit_length(), max(1, ELEMENTS_AT_ONCE // elements)
    return min(wanted, 1 << (room.bit_length() - 1))


def last_clocks(count: int, elements: int, spec: TargetSpec) -> float:
    """An arrival with what is written before it, and the parts of a tile of so many elements, a turn of loads after another."""
    rates = spec.rates.arrivals
    return rates.arrival_clocks + count * elements / ELEMENTS_AT_ONCE * rates.turn_clocks


def turns_clocks(count: int, elements: int, spec: TargetSpec) -> float:
    """Turns at a tile of so many elements whose parts are all there at one time: each hears of the one before, loads the sum, stores it.

    Made of what an arrival and its loads take; not measured by itself.
    """
    return count * last_clocks(1, elements, spec)


def traffic_clocks(part_bytes: float, spec: TargetSpec) -> float:
    """What all parts together take on their way to the last workgroups, beside being written."""
    return spec.rates.arrivals.traffic_factor * copied_clocks(part_bytes, spec)


def cluster_clocks(elements: int, spec: TargetSpec) -> float:
    """The meetings of a cluster, and what each of its workgroups reads of the others: a tile's elements, whatever the number of parts."""
    rates = spec.rates.arrivals
    return rates.cluster_clocks + elements * WORD_BYTES / rates.peer_bytes_per_clock


def clustered_units(count: int, spec: TargetSpec) -> int:
    """Units that clusters of `count` workgroups cover at one time; what is left waits for them to end."""
    if count <= PAIR:
        return spec.compute_units
    return int(spec.compute_units * spec.rates.arrivals.clustered_share) // spec.max_cluster * spec.max_cluster
