"""Arrivals while a run goes on: whether what they hand on is done before them, and what relies on them comes behind them.

An arrival hands on what its own thread knows: what others of the workgroup did before a barrier, what its waits have retired.
"""

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.verify.arrivals import Arrivals, HandOver, arriving_warps, lanes_meet
from treadle.verify.clocks import Agent, Record, Restore, reached
from treadle.verify.events import Access, Event
from treadle.verify.findings import Finding, Place, Rule
from treadle.verify.reports import Reports


class HandOvers:
    """The arrivals of a run."""

    def __init__(self, arrivals: Arrivals, reports: Reports) -> None:
        self.known: dict[tile.CountInOp, HandOver] = {one.op: one for one in arrivals.hand_overs}
        self.position = arrivals.program.index
        self.reports = reports
        self._done: dict[tuple[int, Access], Record] = {}
        self._arrived: dict[tuple[Operation, int], tuple[Agent, Event, int]] = {}

    def check_counts(self) -> None:
        """Arrivals whose counters may not count the workgroups that arrive: they order nothing."""
        for op, known in self.known.items():
            counting = known.counting
            if counting.status == "wrong":
                message = "the workgroups that arrive at a counter are not as many as it counts"
                self.reports.keep(_finding("V5", message, op, "as many arrivals at each counter, for all sizes", counting.witness))
            elif counting.status == "open":
                self.reports.undecide(op, f"that as many workgroups arrive at each counter as it counts is not known: {counting.doubt}")

    def check_orders(self) -> None:
        """Arrivals that do not say what is relied on."""
        for op, known in self.known.items():
            if arriving_warps(op) == 1 and not lanes_meet(known):
                message = "the threads of the only warp do not meet between it and what it hands on"
                self.reports.keep(_finding("V3", message, op, "a barrier before it, and one behind it", ()))
            for word, sides, said in (("release", known.released - {op}, op.releases), ("acquire", known.acquired, op.acquires)):
                if said or not sides:
                    continue
                first = min(sides, key=lambda other: self.position[other])
                does = "tells nobody of" if word == "release" else "takes over nothing from other workgroups for"
                message = f'its order "{op.order.data}" {does} {first.name}'
                self.reports.keep(_finding("V3", message, op, f'the order "{word}", or "acq_rel"', ()))

    def saved(self) -> Restore:
        """What brings back what was done and who has arrived."""
        done, arrived = dict(self._done), dict(self._arrived)

        def restore() -> None:
            self._done, self._arrived = dict(done), dict(arrived)

        return restore

    def note(self, record: Record) -> None:
        """Something was done that an arrival may hand on: the last of each agent stands for those before. An arrival that was there first
        did not wait for it.
        """
        if not self.known:
            return
        self._done[record.agent.number, record.access] = record
        for op, known in self.known.items():
            there = self._arrived.get((op, record.agent.strand.team))
            if record.event.op in known.released and there is not None and there[0] is not record.agent:
                self._report_early(record, *there[:2])

    def arrive(self, agent: Agent, event: Event, now: int) -> None:
        """An arrival: everything that it releases is known to be done."""
        known = self.known.get(event.op) if isinstance(event.op, tile.CountInOp) else None
        if known is None:
            return
        self._arrived[event.op, agent.strand.team] = agent, event, now
        for record in self._done.values():
            if record.event.op not in known.released or (record.agent is agent and not record.access.queue):
                continue
            if agent.strand.roles >= 0 and record.agent.strand.team != agent.strand.team:
                continue  # another group of the role, which arrives for itself
            if not reached(agent.clock, record.component, record.value):
                self._report_early(record, agent, event)

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """An access that relies on an arrival comes behind it."""
        for op, known in self.known.items():
            if event.op not in known.acquired:
                continue
            there = self._arrived.get((op, agent.strand.team))
            if there is None or not reached(agent.clock, there[0].number, there[2]):
                self.reports.report(
                    "V3",
                    f"{event.op.name} touches {access.region.describe()} while {op.name} of its workgroup may still count",
                    agent,
                    event,
                    memory=access.region.describe(),
                    missing=f"a barrier after {op.name}, before the access",
                )

    def _report_early(self, record: Record, agent: Agent, event: Event) -> None:
        first, access = self.reports.place(record.agent, record.event, record.iteration), record.access
        does, where = "write" if access.is_write else "read", access.region.describe()
        queue = access.queue
        missing = f"a barrier after {record.event.op.name}, before {event.op.name}"
        if queue and not reached(record.agent.clock, record.component, record.value):
            missing = f'a wait of "{queue}" (not `read`) that retires {record.event.op.name}, before {event.op.name}'
        self.reports.report(
            "V3",
            f"{event.op.name} tells other workgroups of {where}, which {record.event.op.name} may still {does}",
            agent,
            event,
            first=first,
            memory=where,
            missing=missing,
            steps=(first.describe() + f": starts to {does} {where}", f"{agent.strand.name}: {event.op.name}: the last workgroup may go on"),
        )


def _finding(rule: Rule, message: str, op: tile.CountInOp, missing: str, steps: tuple[str, ...]) -> Finding:
    return Finding(rule, f"{op.name}: {message}", Place(op, 0, "a workgroup"), missing=missing, steps=steps)
