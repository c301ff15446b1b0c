"""Stages of a software-pipelined loop: which operation of the body belongs to which stage, in which order, over how many buffers.

Pure records, no IR. `plan_loop` either gives a `Schedule` that keeps the loop's sequential meaning, or the `Refusal` that says which rule
forbids it and which operation is at fault. In step t of a schedule, stage s works on iteration t - s; within a step the clusters run in
order. Source of the slices: backward slices from the roots (asynchronous copy or global load, write to shared memory, computation), every
operation in the first that holds it.

The modes:

    async-N     copy(i + N - 1), compute(i)                N buffers
    async-late  compute(i), copy(i + N - 1)                N buffers
    stream-2    read(i + 1), compute(i), write(i + 1)      one buffer, the data in flight in registers
    stream-3    compute(i), write(i + 1), read(i + 2)      one buffer

With `reads_ahead`, what the computation reads from staged buffers is a stage of its own, a step ahead of it, so that no computation waits
for what it reads, and a step meets the other threads once:

    async-N     copy(i + N - 1), fetch(i + 1), compute(i)               N - 1 buffers
    stream-4    write(i + 2), read(i + 3), fetch(i + 1), compute(i)     2 buffers
    stream-5    write(i + 2), read(i + 4), fetch(i + 1), compute(i)     2 buffers; two steps' loads in flight in registers
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from treadle.plan.loop_body import Body, Result
from treadle.records import dataclass

Mode = Literal["async", "async-late", "stream"]
Tail = Literal["peeled", "versioned", "guarded"]


@dataclass(frozen=True, slots=True)
class Request:
    """What set-pipeline asks for. `buffers`: slots of each staged buffer (0: as the mode has it). `tail`: see `plan/expansion.py`.

    `reads_ahead`: what is computed is read from staged buffers a step ahead. `unroll`: steps in a trip of the steady loop.
    """

    stages: int
    mode: Mode
    buffers: int = 0
    tail: Tail | None = None
    reads_ahead: bool = False
    unroll: int = 1

    @property
    def usual_buffers(self) -> int:
        """Slots of each staged buffer where nobody asks."""
        if self.mode == "stream":
            return 1
        return self.stages - 1 if self.reads_ahead else self.stages


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a loop is left as it is: the rule, the unit at fault (None: the loop), and a sentence."""

    rule: str
    unit: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """Units of one stage that run together, in program order."""

    name: str
    stage: int
    units: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """A legal schedule: clusters in the order of a step.

    `carried_stage[j]`: the stage in whose iteration a step holds carried value j. `slots[r]`: slots of resource r (1: as it is).
    `result_versions`, `carried_versions`: for how many steps a value is kept beyond the one that makes it (carried: that starts with it).
    """

    stages: int
    clusters: tuple[Cluster, ...]
    carried_stage: tuple[int, ...]
    slots: tuple[int, ...]
    result_versions: tuple[tuple[Result, int], ...]
    carried_versions: tuple[int, ...]
    tail: Tail

    def stage_of(self, unit: int) -> int | None:
        """The stage of a unit; None for free ones."""
        return next((cluster.stage for cluster in self.clusters if unit in cluster.units), None)


def _checked_units(body: Body) -> Refusal | None:
    for at, unit in enumerate(body.units):
        shared = [a for a in unit.accesses if body.resources[a.resource].is_shared]
        if unit.synchronises:
            return Refusal("synchronised", at, f"{unit.name} orders effects already")
        if unit.is_opaque:
            return Refusal("unknown-effects", at, f"the effects of {unit.name} are not known")
        if unit.loads and any(a.is_write for a in shared):
            return Refusal("read-and-write", at, f"{unit.name} reads global memory and writes shared memory, and cannot be taken apart")
        if unit.copies and (unit.loads or unit.is_final or any(not a.is_write for a in shared)):
            return Refusal("read-and-write", at, f"{unit.name} copies and does something else, and cannot be taken apart")
    return None


def _tainted(body: Body) -> frozenset[int]:
    """Units that are final or depend on one: they belong to the computation."""
    found = {at for at, unit in enumerate(body.units) if unit.is_final}
    while True:
        more = {at for at, needed in enumerate(body.dependences) if at not in found and needed & found}
        if not more:
            return frozenset(found)
        found |= more


def _write_roots(body: Body, reads: frozenset[int], tainted: frozenset[int]) -> frozenset[int]:
    """Writes to shared memory of what a load brought, and all other writes to the same buffers."""
    shared = {
        at: {a.resource for a in unit.accesses if a.is_write and body.resources[a.resource].is_shared}
        for at, unit in enumerate(body.units)
        if at not in tainted and not unit.copies
    }
    roots = {at for at, written in shared.items() if written and body.closure([at]) & reads}
    staged = {resource for at in roots for resource in shared[at]}
    return frozenset(at for at, written in shared.items() if written & staged)


def _fetches(body: Body, writers: frozenset[int], tainted: frozenset[int]) -> frozenset[int]:
    """Reads of buffers that these units write, with all they need; what only the computation can do is not among them."""
    staged = {a.resource for at in writers for a in body.units[at].accesses if a.is_write and body.resources[a.resource].is_shared}
    return body.closure(
        at
        for at, unit in enumerate(body.units)
        if at not in tainted and at not in writers and any(not a.is_write and a.resource in staged for a in unit.accesses)
    )


Slices = tuple[tuple[str, int, frozenset[int]], ...]


def _slices(body: Body, request: Request) -> Slices | Refusal:
    """Clusters in the order of a step, as (name, stage, units); the computation takes what no other holds."""
    tainted = _tainted(body)
    reads = frozenset(at for at, unit in enumerate(body.units) if unit.loads and at not in tainted)
    copies = frozenset(at for at, unit in enumerate(body.units) if unit.copies)
    writes = _write_roots(body, reads, tainted)
    last = request.stages - 1
    every = frozenset(at for at, unit in enumerate(body.units) if not unit.is_free)
    if copies and writes:
        return Refusal("mixed-copies", min(writes), f"{body.units[min(writes)].name} stages data by threads beside asynchronous copies")
    if request.mode == "stream":
        if copies:
            return Refusal("mode", min(copies), "asynchronous copies cannot be split into a read and a write")
        if not reads:
            return Refusal("nothing-ahead", None, "no read of global memory can run ahead of the computation")
        feeding = body.closure(writes) & reads
        read = body.closure(feeding)
        write = body.closure(writes) - read
        direct = body.closure(reads - feeding) - read - write
        if request.reads_ahead:
            fetch = _fetches(body, write, tainted) - read - write
            compute = ("compute", last, every - read - write - direct - fetch)
            return (("write", last - 2, write), ("read", 0, read), ("direct", last - 1, direct), ("fetch", last - 1, fetch), compute)
        compute = ("compute", last, every - read - write - direct)
        if last == 1:
            return (("read", 0, read | direct), compute, ("write", 0, write))
        # What feeds the computation from registers is read one step ahead of it, not two: each step ahead costs registers.
        return (compute, ("write", 1, write), ("direct", last - 1, direct), ("read", 0, read))
    roots = copies - tainted
    if not copies:
        return Refusal("mode", None, "the loop has no asynchronous copies")
    if not roots:
        return Refusal("recurrence", min(copies), f"{body.units[min(copies)].name} depends on the computation")
    copy = body.closure(roots)
    if request.reads_ahead:
        fetch = _fetches(body, copy, tainted) - copy
        return (("copy", 0, copy), ("fetch", last - 1, fetch), ("compute", last, every - copy - fetch))
    parts = (("copy", 0, copy), ("compute", last, every - copy))
    return parts if request.mode == "async" else parts[::-1]


class _Order:
    """Time of units within a schedule: (stage, place within the step)."""

    def __init__(self, body: Body, slices: Slices) -> None:
        self.body = body
        self.clusters = tuple(Cluster(name, stage, tuple(sorted(units))) for name, stage, units in slices if units)
        self.stage: dict[int, int] = {}
        self.place: dict[int, int] = {}
        for cluster in self.clusters:
            for unit in cluster.units:
                self.stage[unit], self.place[unit] = cluster.stage, len(self.place)

    def before(self, first: int, second: int, distance: int = 0) -> bool:
        """Whether `first` of an iteration runs before `second` of the iteration `distance` later."""
        return (self.stage[first], self.place[first]) < (self.stage[second] + distance, self.place[second])

    def broken_use(self) -> Refusal | None:
        """A unit that would run before what it uses."""
        for user in self.stage:
            for made, _ in self.body.units[user].uses:
                if made in self.stage and self.stage[made] >= self.stage[user] and not self.before(made, user):
                    names = self.body.units[user].name, self.body.units[made].name
                    return Refusal("order", user, f"{names[0]} would run before {names[1]}, whose result it uses")
        return None

    def _conflicts(self, resource: int) -> Iterator[tuple[int, int]]:
        accesses = self.body.accesses_of(resource)
        for at, (first, one) in enumerate(accesses):
            for second, other in accesses[at + 1 :]:
                if first != second and (one.is_write or other.is_write):
                    yield first, second

    def broken_access(self, resource: int, slots: int) -> tuple[int, int] | None:
        """Two accesses that would change order with that many slots, None where none do."""
        for first, second in self._conflicts(resource):
            if not self.before(first, second):
                return first, second
            if not self.before(second, first, slots):
                return second, first
        return None

    def fewest_slots(self, resource: int) -> int | tuple[int, int]:
        """The fewest slots with which all accesses keep their order, else two that cannot."""
        broken = self.broken_access(resource, 1)
        for slots in range(1, len(self.clusters) + max(self.stage.values(), default=0) + 2):
            broken = self.broken_access(resource, slots)
            if broken is None:
                return slots
        return broken or (0, 0)


def _unstackable(body: Body, resource: int) -> Refusal | None:
    """Why a buffer cannot be given slots: each iteration must find there just what it wrote itself."""
    buffer, accesses = body.resources[resource], body.accesses_of(resource)
    if buffer.escapes:
        return Refusal("escape", accesses[0][0], f"{buffer.name} is also used outside the loop, or through a view")
    if not buffer.can_stack:
        return Refusal("alignment", accesses[0][0], f"slots of {buffer.name} would break the alignment its accesses need")
    writes = [(at, a) for at, a in accesses if a.is_write]
    for reader, read in accesses:
        if read.is_write:
            continue
        for writer, write in writes:
            if writer >= reader:
                return Refusal("carried-memory", reader, f"{body.units[reader].name} reads what the iteration before left in {buffer.name}")
            if write.condition is not None and write.condition != read.condition:
                text = f"{body.units[writer].name} does not always write {buffer.name}; what is read may be older than the iteration"
                return Refusal("conditional-write", writer, text)
    return None


def _choose_slots(body: Body, request: Request, order: _Order) -> tuple[int, ...] | Refusal:
    found: list[int] = []
    for resource, facts in enumerate(body.resources):
        users = [at for at, _ in body.accesses_of(resource)]
        fewest = order.fewest_slots(resource)
        if isinstance(fewest, tuple) or (fewest > 1 and not facts.is_shared):
            pair = fewest if isinstance(fewest, tuple) else order.broken_access(resource, 1) or (users[0], users[0])
            first, second = (body.units[at].name for at in pair)
            return Refusal("order", pair[1], f"{second} would run before {first}, on which it depends through {facts.name}")
        staged = len({order.stage[at] for at in users}) > 1
        slots = fewest
        if staged:
            wanted = request.buffers or request.usual_buffers
            if request.buffers and wanted < fewest:
                return Refusal("buffers", users[0], f"{facts.name} needs {fewest} slots, not {wanted}")
            slots = max(fewest, wanted) if facts.is_shared else 1
        if slots > 1 and (refusal := _unstackable(body, resource)) is not None:
            return refusal
        found.append(slots)
    return tuple(found)


def _carried_stages(body: Body, order: _Order, last: int) -> tuple[int, ...] | Refusal:
    """The stage of every carried value: that of the unit that makes it, else the earliest that needs it."""
    fixed = [entry.result is not None and not body.units[entry.result[0]].is_free for entry in body.yields]
    stage = [order.stage[entry.result[0]] if known and entry.result else last for entry, known in zip(body.yields, fixed, strict=True)]
    users: list[list[int]] = [[at for at in order.stage if j in body.units[at].carried] for j in range(len(stage))]
    heirs = [[k for k, entry in enumerate(body.yields) if entry.carried == j] for j in range(len(stage))]
    for _ in range(len(stage) + 1):
        for j, known in enumerate(fixed):
            if not known:
                stage[j] = min([stage[j], *(order.stage[at] for at in users[j]), *(stage[k] for k in heirs[j])])
    for j, entry in enumerate(body.yields):
        for user in users[j]:
            if stage[j] > order.stage[user]:
                text = f"{body.units[user].name} needs what the iteration before computes last"
                return Refusal("recurrence", user, text)
        if entry.carried is not None and stage[entry.carried] > stage[j]:
            return Refusal("recurrence", None, "carried values change places between stages")
    return tuple(stage)


def _versions(body: Body, order: _Order, carried_stage: Sequence[int]) -> tuple[dict[Result, int], list[int]]:
    """For how many steps results and carried values are kept."""
    results: dict[Result, int] = {}
    carried = [0] * len(carried_stage)
    for user, stage in order.stage.items():
        for result in body.units[user].uses:
            if result[0] in order.stage and (steps := stage - order.stage[result[0]]):
                results[result] = max(results.get(result, 0), steps)
        for j in body.units[user].carried:
            carried[j] = max(carried[j], stage - carried_stage[j])
    for k, entry in enumerate(body.yields):
        if entry.carried is not None:
            carried[entry.carried] = max(carried[entry.carried], carried_stage[k] - carried_stage[entry.carried])
    return results, carried


def default_tail(*, is_counted: bool) -> Tail:
    """How a pipelined loop ends: without branches in the steady state, so that the number of groups in flight is the same in every step.

    Where the trip count is not known (`is_counted` False), the sequential loop stays for those shorter than the pipeline.
    """
    return "peeled" if is_counted else "versioned"


def _has_depth(request: Request) -> bool:
    """Whether the mode has such a number of stages."""
    if request.reads_ahead:
        return request.stages in (4, 5) if request.mode == "stream" else request.mode == "async" and request.stages >= 3
    return request.stages >= 2 and (request.mode != "stream" or request.stages <= 3)


def plan_loop(body: Body, request: Request, *, is_counted: bool = True) -> Schedule | Refusal:
    """The schedule that `request` asks for, or why there is none. `is_counted`: the trip count is known."""
    if not _has_depth(request):
        ahead = ", read ahead" if request.reads_ahead else ""
        return Refusal("depth", None, f"{request.stages} stages in mode {request.mode}{ahead}")
    if (refusal := _checked_units(body)) is not None:
        return refusal
    slices = _slices(body, request)
    if isinstance(slices, Refusal):
        return slices
    if request.reads_ahead and not any(units for name, _, units in slices if name == "fetch"):
        return Refusal("nothing-ahead", None, "no read of a staged buffer can run ahead of the computation")
    compute = next(units for name, _, units in slices if name == "compute")
    if not any(body.units[at].computes for at in compute):
        return Refusal("no-compute", None, "no computation to overlap with")
    order = _Order(body, slices)
    if (refusal := order.broken_use()) is not None:
        return refusal
    carried_stage = _carried_stages(body, order, request.stages - 1)
    if isinstance(carried_stage, Refusal):
        return carried_stage
    slots = _choose_slots(body, request, order)
    if isinstance(slots, Refusal):
        return slots
    results, carried = _versions(body, order, carried_stage)
    for (unit, _), _ in results.items():
        if not body.units[unit].is_portable:
            return Refusal("not-portable", unit, f"the result of {body.units[unit].name} cannot be kept from step to step")
    tail = request.tail or default_tail(is_counted=is_counted)
    return Schedule(request.stages, order.clusters, carried_stage, slots, tuple(sorted(results.items())), tuple(carried), tail)
