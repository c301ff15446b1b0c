"""Arrivals and turns while a run goes on: whether what they hand on is done before them, and what relies on them comes behind them.

An arrival, or the end of a turn, hands on what its own thread knows: what others of the workgroup did before a barrier, what its waits have
retired.
"""

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.verify.arrivals import Arrivals, HandOver, arriving_warps, lanes_meet
from treadle.verify.clocks import Agent, Record, Restore, reached
from treadle.verify.events import Access, Event
from treadle.verify.findings import Finding, Place, Rule
from treadle.verify.reports import Reports

COUNTS = ("the workgroups that arrive at a counter are not as many as it counts", "as many arrivals at each counter, for all sizes")
TURNS = ("a workgroup may wait for ever", "turns from 0 to the count at each counter, in the order of the grid, for all sizes")
"""What is wrong with arrivals, and with turns; what is missing."""


class HandOvers:
    """The arrivals of a run."""

    def __init__(self, arrivals: Arrivals, reports: Reports) -> None:
        self.known: dict[Operation, HandOver] = {one.op: one for one in arrivals.hand_overs}
        self.ends: dict[Operation, HandOver] = {one.end: one for one in arrivals.hand_overs}
        self.loose = arrivals.loose
        self.position = arrivals.program.index
        self.reports = reports
        self._done: dict[tuple[int, Access], Record] = {}
        self._arrived: dict[tuple[Operation, int], tuple[Agent, Event, int]] = {}

    def check_counts(self) -> None:
        """Arrivals whose counters may not count the workgroups that arrive, and turns that may not come: they order nothing."""
        for op, message in self.loose:
            self.reports.keep(_finding("V5", message, op, "one tile.await_turn and one tile.pass_turn for each turn at a counter", ()))
        for known in self.known.values():
            op, counting, is_turn = known.op, known.counting, isinstance(known.op, tile.AwaitTurnOp)
            if counting.status == "wrong":
                message, missing = TURNS if is_turn else COUNTS
                self.reports.keep(_finding("V5", message, op, missing, counting.witness))
            elif counting.status == "open":
                asked = "that each turn at a counter comes" if is_turn else "that as many workgroups arrive at each counter as it counts"
                self.reports.undecide(op, f"{asked} is not known: {counting.doubt}")

    def check_orders(self) -> None:
        """Arrivals that do not say what is relied on."""
        for known in self.known.values():
            op, end = known.op, known.end
            if arriving_warps(op) == 1 and not lanes_meet(known):
                message = "the threads of the only warp do not meet between it and what it hands on"
                self.reports.keep(_finding("V3", message, op, "a barrier before it, and one behind it", ()))
            released, acquired = (sides - {op, end} for sides in (known.released, known.acquired))
            for word, sides, there, said in (("release", released, end, end.releases), ("acquire", acquired, op, op.acquires)):
                if said or not sides:
                    continue
                first = min(sides, key=lambda other: self.position[other])
                does = "tells nobody of" if word == "release" else "takes over nothing from other workgroups for"
                message = f'its order "{there.order.data}" {does} {first.name}'
                self.reports.keep(_finding("V3", message, there, f'the order "{word}"' + (', or "acq_rel"' if op is end else ""), ()))

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
        for op, known in self.ends.items():
            there = self._arrived.get((op, record.agent.strand.team))
            if record.event.op in known.released and there is not None and there[0] is not record.agent:
                self._report_early(record, *there[:2])

    def arrive(self, agent: Agent, event: Event, now: int) -> None:
        """An arrival: everything that it releases is known to be done."""
        if not isinstance(event.op, tile.OrderedCounterOp) or (event.op not in self.known and event.op not in self.ends):
            return
        self._arrived[event.op, agent.strand.team] = agent, event, now
        known = self.ends.get(event.op)
        if known is None:
            return  # the start of a turn, which hands on nothing
        for record in self._done.values():
            if record.event.op not in known.released or (record.agent is agent and not record.access.queue):
                continue
            if record.agent.strand.rank != agent.strand.rank:
                continue  # another workgroup of the cluster, which arrives for itself
            if agent.strand.roles >= 0 and record.agent.strand.team != agent.strand.team:
                continue  # another group of the role, which does so, too
            if not reached(agent.clock, record.component, record.value):
                self._report_early(record, agent, event)

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """An access that relies on an arrival comes behind it."""
        for op, known in self.known.items():
            if event.op not in known.acquired:
                continue
            does = "wait" if isinstance(op, tile.AwaitTurnOp) else "count"
            there = self._arrived.get((op, agent.strand.team))
            if there is None or not reached(agent.clock, there[0].number, there[2]):
                self.reports.report(
                    "V3",
                    f"{event.op.name} touches {access.region.describe()} while {op.name} of its workgroup may still {does}",
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
            steps=(first.describe() + f": starts to {does} {where}", f"{agent.strand.name}: {event.op.name}: another workgroup may go on"),
        )


def _finding(rule: Rule, message: str, op: tile.OrderedCounterOp, missing: str, steps: tuple[str, ...]) -> Finding:
    return Finding(rule, f"{op.name}: {message}", Place(op, 0, "a workgroup"), missing=missing, steps=steps)
