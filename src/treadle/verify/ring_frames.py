"""Rings as they are seen from a counter: slot and phase of the use that it is at come first, then those of the next uses.

The slots of rings that go round with counters may be renamed (`ring_counters.py`): states that differ by that alone are the same. So a
state has, for each group of rings, how far counters are from the first one at work there, slots by how far they are ahead of it, and
parities of phases less those that its uses would wait for.
"""

from collections.abc import Sequence

from treadle.dialects import pipe
from treadle.verify.clocks import Agent
from treadle.verify.events import Access
from treadle.verify.program import Program
from treadle.verify.regions import Buffer, Region
from treadle.verify.ring_counters import Ring, RingCounters


class RingFrames:
    """How the rings of a run are seen at one moment, after `begin`."""

    def __init__(self, program: Program, rings: RingCounters) -> None:
        self._count = rings.count
        self._counters = [
            [(c.number, c.group) for c in rings.counters if _carries(program, strand.number, c.roles, c.region)]
            for strand in program.strands
        ]
        self._later = [
            [(c.start, c.group) for c in rings.counters if strand.trace < 0 or strand.roles < c.roles] for strand in program.strands
        ]
        self._buffers: dict[Buffer, Ring] = {}
        count = len(program.mbarriers)
        self._barriers: list[Ring | None] = [None] * (count * program.cluster)
        self._first = list(range(count * program.cluster))
        for ring in rings.rings:
            if ring.dimension >= 0:
                self._buffers[program.buffers[ring.alloc.results[0]]] = ring
                continue
            for first in range(program.mbarriers.base[ring.alloc] + ring.at, count * program.cluster, count):
                for at in range(first, first + ring.slots):
                    self._barriers[at], self._first[at] = ring, first
        self._orders: dict[tuple[tuple[int, int], ...], list[tuple[int, int]]] = {}
        self._bases: dict[int, int] = {}

    def begin(self, agents: Sequence[Agent]) -> tuple[int, ...]:
        """See them from the first agent at work on each: how far all others are from it."""
        bases = self._bases = {}
        found: list[int] = []
        for agent in agents:
            for counter, group in self._counters[agent.number]:
                if agent.is_done:  # nobody asks for the count any more
                    found.append(-1)
                    continue
                count = agent.counts[counter]
                found.append((count - bases.setdefault(group, count)) % self._count)
        for agent in agents:  # counters of later roles begin with constants, wherever those before are then
            for start, group in self._later[agent.number]:
                if group in bases:
                    found.append((start - bases[group]) % self._count)
        return tuple(found)

    def order(self) -> list[tuple[int, int]]:
        """The mbarriers, those of a ring in the order of its uses, and the parity that the phase of each use has more than a first one."""
        bases = self._bases
        key = tuple(bases.items())
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = [self._seen_at(at) for at in range(len(self._barriers))]
        return found

    def _seen_at(self, at: int) -> tuple[int, int]:
        ring, first = self._barriers[at], self._first[at]
        if ring is None:
            return at, 0
        use = self._bases.get(ring.group, 0) + at - first
        return first + use % ring.slots, use // ring.slots % 2

    def barrier(self, at: int) -> int:
        """The number of an mbarrier as it is seen."""
        ring, first = self._barriers[at], self._first[at]
        return at if ring is None else first + (at - first - self._bases.get(ring.group, 0)) % ring.slots

    def access(self, access: Access) -> int:
        """A number for an access, the same for those that are seen alike."""
        if access.turned < 0:
            return id(access)
        buffer = access.region.buffer
        ring = self._buffers.get(buffer) if isinstance(buffer, Buffer) else None
        slot = 0 if ring is None else self._slot(ring, access.region.slots[ring.dimension])
        return -1 - access.turned * self._count - slot

    def region(self, region: Region) -> object:
        """A region as it is seen."""
        ring = self._buffers.get(region.buffer) if isinstance(region.buffer, Buffer) else None
        if ring is None:
            return region
        at = ring.dimension
        return id(region.buffer), (*region.box[:at], self._slot(ring, region.box[at][0]), *region.box[at + 1 :])

    def _slot(self, ring: Ring, slot: int) -> int:
        return (slot - self._bases.get(ring.group, 0)) % ring.slots


def _carries(program: Program, strand: int, roles: int, region: int) -> bool:
    """Whether a strand runs a role."""
    found = program.strands[strand]
    op = program.ops[roles]
    if found.roles != roles or not isinstance(op, pipe.RolesOp):
        return False
    groups = op.role_groups()
    first = sum(groups[:region])
    return first <= found.trace < first + groups[region]
