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


def known_to_all(clocks: list[Clock]) -> Clock:
    """What every one of some clocks knows."""
    first, *others = clocks
    return {component: min([value, *[clock.get(component, 0) for clock in others]]) for component, value in first.items()}


def not_over(components: Components, records: list[Record], known: Clock, *, fences: bool) -> list[Record]:
    """Those of `records` that are not `known` to be over; `fences`: and to be fenced, where the async proxy may come."""
    get = known.get
    return [
        r for r in records if get(r.component, 0) < r.value or (fences and needs_fence(r.access) and not is_fenced(components, r, known))
    ]
