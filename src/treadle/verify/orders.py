"""When one access happened before another, and when the async proxy sees what it wrote."""

from treadle.verify.clocks import Agent, Clock, Components, Record, reached
from treadle.verify.events import Access


def is_ordered(record: Record, agent: Agent, access: Access) -> bool:
    """Whether a record happened before an access that the agent makes now."""
    if record.agent is agent and (not record.access.queue or (record.access.in_local_order and access.in_local_order)):
        return True
    return reached(agent.clock, record.component, record.value)


def needs_fence(access: Access) -> bool:
    """Whether the async proxy sees what an access did only after a fence."""
    return access.is_write and not access.is_async


def fence_token(components: Components, record: Record) -> tuple[int, int] | None:
    """What says that the writer fenced a generic write after it was done; None where it does not know yet that it is done."""
    if record.done < 0:
        retired = record.agent.retired.get(record.access.queue, ())
        record.done = next((time for count, time in retired if count >= record.value), -1)
        if record.done < 0:
            return None
    return components.fence(record.agent.number, is_global=record.access.effect is not None), record.done


def is_fenced(components: Components, record: Record, clock: Clock) -> bool:
    """Whether the writer fenced a generic write after it was done, and whoever has the clock knows."""
    token = fence_token(components, record)
    return token is not None and reached(clock, *token)


def is_over(components: Components, record: Record, clocks: list[Clock], *, fences: bool) -> bool:
    """Whether all clocks know that an access is over; `fences`: and that it was fenced, where the async proxy may come."""
    component, value = record.component, record.value
    for clock in clocks:
        if component >= len(clock) or clock[component] < value:
            return False
    if fences and needs_fence(record.access):
        return all(is_fenced(components, record, clock) for clock in clocks)
    return True
