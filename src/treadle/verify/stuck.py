"""What is said where nobody can go on."""

from treadle.verify.clocks import Agent
from treadle.verify.counting_barriers import CountingBarriers
from treadle.verify.workgroups import Barriers


def report_stuck(barriers: Barriers) -> None:
    """Who waits for what, when nobody can go on."""
    waiting = [agent for agent in barriers.cluster.active if not agent.is_done]
    steps = [f"{agent.strand.name}: {_awaited(barriers, agent)}" for agent in waiting]
    ended = [agent.strand.name for agent in barriers.cluster.active if agent.is_done]
    if ended:
        steps.append(f"{', '.join(ended)}: ended")
    agent = next((a for a in waiting if a.waiting is not None), waiting[0])
    event = agent.waiting
    if event is None:  # waits for others to come to the roles
        other = next((a for w in barriers.cluster.workgroups for a in w.main if a.waiting is not None), None)
        event = other.waiting if other is not None else None
    if event is None:
        return
    barriers.reports.report_last(
        f"nothing can go on: {_awaited(barriers, agent)}",
        agent,
        event,
        tuple(steps),
    )


def _awaited(barriers: Barriers, agent: Agent) -> str:
    event = agent.waiting
    if agent.blocked == "phase" and event is not None and isinstance(barriers, CountingBarriers):
        barrier = barriers.barrier_of(agent, event)
        phases, name = barriers.phases[barrier], barriers.name(barrier)
        left = f"{phases.arrived} of {phases.needed} arrivals, {phases.delivered} of {phases.announced} bytes"
        return f"waits for phase {agent.target - 1} of {name} (has {left})"
    if agent.blocked == "named" and event is not None:
        return f"waits at named barrier {event.queue} ({barriers.named[agent.strand.rank, event.queue].warps} of {event.number} warps)"
    if agent.blocked == "roles":
        return "waits for the other warps before pipe.roles"
    return f"waits at a {agent.blocked or 'barrier'} for others that never come to it"
