"""What accesses to a workgroup's memory have in common: bytes, elements of one warp. Kept from run to run."""

from typing import TYPE_CHECKING

from treadle.ir.core import SSAValue
from treadle.verify.clocks import Agent
from treadle.verify.events import Access
from treadle.verify.program import Program
from treadle.verify.regions import Buffer, Overlaps, Owners, Warps

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
        self._group_warps = {
            (strand.team, strand.group): sum(s.warps for s in program.strands if (s.team, s.group) == (strand.team, strand.group))
            for strand in program.strands
        }
        self._met: dict[tuple[int, Access, Access, Warps | None], bool] = {}
        self.has_async_machine = program.spec.async_matrix or program.spec.bulk_tensor is not None

    def neighbours(self, home: Home) -> tuple[Home, ...]:
        """A buffer and those that share bytes with it."""
        return self._neighbours.get(home, (home,))

    def parts_meet(self, earlier: Agent, before: Access, agent: Agent, access: Access) -> bool:
        """Whether accesses of two strands with a byte in common may be of different warps that both touch it."""
        one, other = before.part, access.part
        if one is None or other is None or earlier.strand.team != agent.strand.team:
            return True
        between = self._between(earlier, agent)
        key = agent.strand.team, before, access, between
        found = self._met.get(key)
        if found is None:
            warps = self._team_warps[agent.strand.team]
            # Who holds what is not the layout's to say where it is one of another number of warps.
            found = self._met[key] = any(
                part.layout is not None and part.layout.num_warps != warps for part in (one, other)
            ) or self.owners.meet(before.region, one, before.is_write, access.region, other, access.is_write, between)
        return found

    def _between(self, earlier: Agent, agent: Agent) -> Warps | None:
        """The warps that two strands of a team stand for; None where each stands for all. Groups have an even share each, in order."""
        team = agent.strand.team
        if self._group_warps[team, agent.strand.group] == self._team_warps[team]:
            return None
        found: list[range] = []
        for strand in (earlier.strand, agent.strand):
            each = self._group_warps[team, strand.group]
            found.append(range(strand.group * each, (strand.group + 1) * each))
        return found[0], found[1]


def _share_bytes(one: Buffer, other: Buffer) -> bool:
    if one.first is None or other.first is None:
        return False
    return one.first < other.first + other.size and other.first < one.first + one.size
