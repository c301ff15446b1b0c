"""`pipe.roles`: the warps meet, run the roles as agents of their own in teams, and all meet again."""

from collections.abc import Sequence

from treadle.dialects import pipe, tile
from treadle.ir.core import Operation, Region
from treadle.sim.schedule.agents import Agent, Coroutine, Team
from treadle.sim.schedule.barriers import ConditionWait, Meeting, MeetingWait
from treadle.sim.schedule.clocks import Clock, join
from treadle.sim.schedule.code import Code, execute


def _groups(op: pipe.RolesOp, codes: Sequence[Code], warps: Sequence[Agent], known: Clock) -> list[Agent]:
    """The warps of all roles, dealt out in order; they start with what is `known` to all."""
    found: list[Agent] = []
    first = 0
    facts = zip(op.role_names(), op.role_warps(), op.role_groups(), op.roles, codes, strict=True)
    for name, warp_count, group_count, region, code in facts:
        for number in range(group_count):
            title = name if group_count == 1 else f"{name} {number}"
            team = Team(warp_count if works_in_all_warps(region) else 1, number, is_group=True)
            for warp in range(team.size):
                parent = warps[min(first + warp, len(warps) - 1)]
                label = f"{title} warp {warp}" if team.size > 1 else title
                agent = Agent(parent.workgroup, label, parent.frame.copy(), team, warp, number)
                join(agent.clock, known)
                agent.coroutine = _run(code, agent)
                found.append(agent)
            first += warp_count
    return found


def works_in_all_warps(region: Region) -> bool:
    """Whether a role holds what every warp does its part of; one that only issues has one warp a group that does so."""
    return any(_is_spread(op) for block in region.blocks for outer in block.ops for op in outer.walk())


def _is_spread(op: Operation) -> bool:
    if isinstance(op, tile.CopyOp):
        return op.path.data in tile.COPY_QUEUES
    spread = (tile.LocalLoadOp, tile.LocalStoreOp, tile.ContractOp, tile.LoadOp, tile.StoreOp)
    return isinstance(op, spread)


def _run(code: Code, agent: Agent) -> Coroutine:
    yield from execute(code, agent)
    agent.flush()


def run_roles(op: pipe.RolesOp, codes: Sequence[Code], agent: Agent) -> Coroutine:
    """One warp's way through the roles."""
    workgroup = agent.workgroup
    agent.flush()
    outer = workgroup.meeting
    start = MeetingWait(op, agent, outer, outer.arrive(agent.clock))
    while not start.ready():
        yield start
    start.finish()
    agent.executed[op] = agent.executed.get(op, 0) + 1
    key = (op, agent.executed[op])
    if key not in workgroup.roles:
        groups = _groups(op, codes, [a for a in workgroup.agents if not a.team.is_group], agent.clock)
        workgroup.roles[key] = groups
        workgroup.agents.extend(groups)
        workgroup.meeting = Meeting("sync.barrier", len(groups), agent.world.number())
    groups = workgroup.roles[key]

    def join_all() -> None:
        workgroup.meeting = outer
        for group in groups:
            join(agent.clock, group.clock)

    end = ConditionWait(op, lambda: all(group.ended for group in groups), join_all, "waits for the roles to end")
    while not end.ready():
        yield end
    end.finish()
