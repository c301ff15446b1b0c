"""`pipe.roles`: the warps meet, run the roles as agents of their own in teams, and all meet again."""

from collections.abc import Sequence

from treadle.dialects import pipe
from treadle.dialects.agents import roles_of
from treadle.sim.schedule.agents import Agent, Coroutine, Team
from treadle.sim.schedule.barriers import ConditionWait, Meeting, MeetingWait
from treadle.sim.schedule.clocks import Clock, join
from treadle.sim.schedule.code import Code, execute


def _groups(op: pipe.RolesOp, codes: Sequence[Code], warps: Sequence[Agent], known: Clock) -> list[Agent]:
    """The warps of all roles, dealt out in order; they start with what is `known` to all."""
    found: list[Agent] = []
    for role, code in zip(roles_of(op), codes, strict=True):
        for number in range(role.groups):
            title = role.name if role.groups == 1 else f"{role.name} {number}"
            team = Team(role.executing_warps, number, is_group=True)
            first = role.first_warp + number * role.warps
            for warp in range(team.size):
                parent = warps[first + warp]
                label = f"{title} warp {warp}" if team.size > 1 else title
                agent = Agent(parent.workgroup, label, parent.frame.copy(), team, warp, number)
                join(agent.clock, known)
                agent.coroutine = _run(code, agent)
                found.append(agent)
    return found


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
