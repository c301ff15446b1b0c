"""What an access that is not ordered after another, or not fenced, says to the user."""

from treadle.verify.clocks import Agent, Record, reached
from treadle.verify.events import Access, Event
from treadle.verify.reports import Reports


def report_race(
    reports: Reports, record: Record, agent: Agent, event: Event, access: Access, *, of: str = "", witness: tuple[str, ...] = ()
) -> None:
    """An access that may come before an earlier one is over. `of`: whose memory it is. `witness`: executions that meet."""
    first, second = reports.place(record.agent, record.event, record.iteration), reports.place(agent, event)
    earlier = record.access
    in_flight = bool(earlier.queue) and not reached(record.agent.clock, record.component, record.value)
    rule = "V3" if not in_flight or earlier.in_local_order else "V2" if access.is_write else "V1"
    where = access.region.describe() + of
    verb = "overwrites" if access.is_write else "reads"
    does = "write" if earlier.is_write else "read"
    by = "" if record.agent is agent else " of another agent"
    message = f"{event.op.name} {verb} {where} while {record.event.op.name}{by} may still {does} it"
    if in_flight and earlier.in_local_order:
        missing = f'a barrier that is not bare (it flushes "{earlier.queue}") after the first, before the second'
    elif in_flight and earlier.queue != "mbarrier":
        missing = f'a wait of "{earlier.queue}" by {record.agent.strand.name} that retires the first'
        missing += ", before the second" if record.agent is agent else ", then a barrier or arrival that the second follows"
    elif earlier.queue == "mbarrier":
        missing = f"a wait of {agent.strand.name} for the phase that the first completes, before the second"
    else:
        missing = f"a barrier or arrival of {record.agent.strand.name} after the first, which {agent.strand.name} waits for"
    steps = [first.describe() + f": starts to {does} {earlier.region.describe()}"]
    if agent.last_sync is not None:
        steps.append(f"{reports.place(agent, agent.last_sync).describe()}: passed, which says nothing about step 1")
    steps.append(second.describe() + f": {verb} {where} while step 1 is in flight")
    reports.report(rule, message, agent, event, first=first, memory=where, missing=missing, steps=(*steps, *witness))


def report_fence(
    reports: Reports, record: Record, agent: Agent, event: Event, access: Access, *, of: str = "", witness: tuple[str, ...] = ()
) -> None:
    """An access through the async proxy that may not see what was written through the generic one."""
    proxy = "async_shared" if access.effect is None else "async_global"
    first, second = reports.place(record.agent, record.event, record.iteration), reports.place(agent, event)
    where = access.region.describe() + of
    reports.report(
        "V4",
        f"{event.op.name} accesses {where} through the async proxy, which may not see what {record.event.op.name} wrote",
        agent,
        event,
        first=first,
        memory=where,
        missing=f'sync.fence "{proxy}" by {record.agent.strand.name} after the first, ordered before the second',
        steps=(
            first.describe() + ": writes through the generic proxy",
            second.describe() + ": goes past the generic proxy and finds the old bytes",
            *witness,
        ),
    )
