"""Groups of warps that run one loop of stages some stages apart: what that leaves of the order of the program, and which barriers flush.

Pure. A loop has `stages` stages and a barrier, its *slot*, behind each. All `groups` run it, each `gap` stages behind the one before, so
that group q executes stage number p (counted through the iterations) in phase p + q * gap, and phases are what the barriers tell apart.
Something done in stage p by group q comes before something done in stage p + d by group r where p + q * gap < p + d + r * gap: where d is
more than the *lag* (q - r) * gap. What was done must also be complete: one of the slots that q meets in between has to flush.
"""

from collections.abc import Sequence
from itertools import combinations

from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """What is done in stage `first` is over before something `distance` stages later, by a group that is `lag` stages ahead of the doer."""

    first: int
    distance: int
    lag: int

    @property
    def is_kept(self) -> bool:
        """Whether the phases of the two follow one another."""
        return self.distance > self.lag

    def slots(self, stages: int) -> frozenset[int]:
        """The slots that the doer meets in between, by number."""
        return frozenset((self.first + n) % stages for n in range(min(self.distance - self.lag, stages)))


def flushing_slots(orders: Sequence[Order], stages: int) -> tuple[int, ...]:
    """The fewest slots that have to flush, so that each order (all are kept) has one of its own; of several choices the first.

    Found by trying all sets, smaller ones first: loops have few stages, and stages few orders that no other one implies.
    """
    windows = {order.slots(stages) for order in orders}
    needed = [window for window in windows if not any(other < window for other in windows)]
    for count in range(stages + 1):
        for chosen in combinations(range(stages), count):
            if all(window.intersection(chosen) for window in needed):
                return chosen
    return tuple(range(stages))


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of `slots` slots that iteration i fills, in stage `fill`, for iteration i + `ahead`, which reads its slot in stage `read`."""

    fill: int
    read: int
    ahead: int
    slots: int

    def distances(self, stages: int) -> tuple[int, int]:
        """Stages from a fill to the reading of it, and from that to the next fill of the slot."""
        return self.ahead * stages + self.read - self.fill, (self.slots - self.ahead) * stages + self.fill - self.read


_MOST_AHEAD = 8


def smallest_ring(ring: Ring, stages: int, lag: int) -> Ring:
    """The ring with the fewest iterations ahead, and then the fewest slots, that groups `lag` stages apart may share."""
    ahead = next(n for n in range(_MOST_AHEAD * max(1, lag)) if n * stages + ring.read - ring.fill > lag)
    slots = next(n for n in range(ahead, 2 * ahead + 2 * lag + 2) if (n - ahead) * stages + ring.fill - ring.read > lag)
    return Ring(ring.fill, ring.read, ahead, max(1, slots))


def widest_gap(ring: Ring, stages: int, groups: int) -> int:
    """The largest gap at which `groups` groups may share a ring; 0 for none."""
    return max(0, (min(ring.distances(stages)) - 1) // (groups - 1))
