"""What accesses to a workgroup's memory have in common: bytes, elements of one warp. Kept from run to run."""

from typing import TYPE_CHECKING

from treadle.ir.core import SSAValue
from treadle.verify.clocks import Agent
from treadle.verify.events import Access
from treadle.verify.program import Program
from treadle.verify.regions import Buffer, Overlaps, Owners

if TYPE_CHECKING:
    from treadle.verify.arrivals import Tracked

Home = Buffer | SSAValue


class Geometry:
    """The geometry of a program's buffers and accesses. `tracked`: its global arrays that are held against one another, if it has any."""

    def __init__(self, program: Program) -> None:
        self.tracked: Tracked | None = None
        if program.tracked_pointers:
            from treadle.verify import arrivals

            self.tracked = arrivals.Tracked(program)
        self.overlaps = Overlaps()
        self.owners = Owners()
        buffers = list(program.buffers.values())
        self._neighbours: dict[Home, tuple[Home, ...]] = {
            one: tuple(other for other in buffers if one is other or _share_bytes(one, other)) for one in buffers
        }
        self._team_warps: dict[int, int] = {}
        for strand in program.strands:
            self._team_warps[strand.team] = self._team_warps.get(strand.team, 0) + strand.warps
        self._met: dict[tuple[int, Access, Access], bool] = {}
        self.has_async_machine = program.spec.async_matrix or program.spec.bulk_tensor is not None

    def neighbours(self, home: Home) -> tuple[Home, ...]:
        """A buffer and those that share bytes with it."""
        return self._neighbours.get(home, (home,))

    def parts_meet(self, earlier: Agent, before: Access, agent: Agent, access: Access) -> bool:
        """Whether accesses of two strands with a byte in common may be of different warps that both touch it."""
        one, other = before.part, access.part
        if one is None or other is None or earlier.strand.team != agent.strand.team:
            return True
        key = agent.strand.team, before, access
        found = self._met.get(key)
        if found is None:
            warps = self._team_warps[agent.strand.team]
            # Who holds what is not the layout's to say where it is one of another number of warps.
            found = self._met[key] = any(
                part.layout is not None and part.layout.num_warps != warps for part in (one, other)
            ) or self.owners.meet(before.region, one, before.is_write, access.region, other, access.is_write)
        return found


def _share_bytes(one: Buffer, other: Buffer) -> bool:
    if one.first is None or other.first is None:
        return False
    return one.first < other.first + other.size and other.first < one.first + one.size
