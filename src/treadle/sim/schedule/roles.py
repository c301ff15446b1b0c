"""`pipe.roles`: the warps meet, groups of them run the roles as agents of their own, and all meet again."""

from collections.abc import Sequence

from treadle.dialects import pipe
from treadle.sim.schedule.agents import Agent, Coroutine
from treadle.sim.schedule.barriers import ConditionWait, Meeting, MeetingWait
from treadle.sim.schedule.clocks import join
from treadle.sim.schedule.code import Code, execute


def _groups(op: pipe.RolesOp, codes: Sequence[Code], warps: Sequence[Agent]) -> list[Agent]:
    """The groups of all roles, dealt out in order; each starts with the values of its first warp."""
    found: list[Agent] = []
    first = 0
    for name, warp_count, group_count, code in zip(op.role_names(), op.role_warps(), op.role_groups(), codes, strict=True):
        for number in range(group_count):
            parent = warps[min(first, len(warps) - 1)]
            title = name if group_count == 1 else f"{name} {number}"
            group = Agent(parent.workgroup, title, parent.frame.copy(), warp=None, warps=warp_count, group=number, leader=True)
            join(group.clock, parent.clock)
            group.coroutine = _run(code, group)
            found.append(group)
            first += warp_count
    return found


def _run(code: Code, group: Agent) -> Coroutine:
    yield from execute(code, group)
    group.flush()


def run_roles(op: pipe.RolesOp, codes: Sequence[Code], agent: Agent) -> Coroutine:
    """One warp's way through the roles."""
    workgroup = agent.workgroup
    agent.flush()
    outer = workgroup.team
    start = MeetingWait(op, agent, outer, outer.arrive(agent.clock))
    while not start.ready():
        yield start
    start.finish()
    agent.executed[op] = agent.executed.get(op, 0) + 1
    key = (op, agent.executed[op])
    if key not in workgroup.roles:
        groups = _groups(op, codes, [a for a in workgroup.agents if a.warp is not None])
        workgroup.roles[key] = groups
        workgroup.agents.extend(groups)
        workgroup.team = Meeting("sync.barrier", len(groups))
    groups = workgroup.roles[key]

    def join_all() -> None:
        workgroup.team = outer
        for group in groups:
            join(agent.clock, group.clock)

    end = ConditionWait(op, lambda: all(group.ended for group in groups), join_all, "waits for the roles to end")
    while not end.ready():
        yield end
    end.finish()
