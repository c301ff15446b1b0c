"""What the edges of loops do to the state of insert-sync: slots move with the iterations, results in flight take new names."""

from collections.abc import Callable, Iterable, Sequence

from treadle.analysis.shared_accesses import SharedAccess, shared_accesses
from treadle.analysis.slot_motion import STILL, Motions
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.structured_flow import StructuredFlow, is_inside, yielded
from treadle.analysis.synchronisation.handed_on import HandedOn
from treadle.analysis.synchronisation.in_flight import AccessTable, Flow, Issued
from treadle.analysis.synchronisation.operations import phase_access
from treadle.dialects import sync, tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf


class Edge:
    """One edge of a loop: what accesses and values are behind it."""

    def __init__(
        self,
        table: AccessTable,
        loop: scf.ForOp,
        slots: Callable[[SharedAccess], SharedAccess],
        sources: Sequence[SSAValue],
        targets: Sequence[SSAValue],
    ) -> None:
        self._table, self._loop, self._slots = table, loop, slots
        self._renamed = list(zip(sources, targets, strict=True))
        self._numbers: dict[int, int] = {}
        self._items: dict[Issued, Issued] = {}

    def flow(self, state: Flow) -> Flow:
        """A state, seen from behind it."""
        return state.moved(self._access, self._item) if state.issued or state.unordered else state

    def _access(self, number: int) -> int:
        if number not in self._numbers:
            self._numbers[number] = self._table.number(self._slots(self._table[number]))
        return self._numbers[number]

    def _item(self, item: Issued) -> Issued:
        """Names of results that stay in flight: carried values take new ones, those of the body alone end."""
        if item not in self._items:
            names = {t for s, t in self._renamed if s in item.names} | {n for n in item.names if not is_inside(n, self._loop)}
            accesses = tuple(map(self._access, item.accesses))
            self._items[item] = self._table.issued(item.op, item.queue, accesses, frozenset(names))
        return self._items[item]


class LoopEdges(StructuredFlow[Flow]):
    """A walk over a kernel whose state are `Flow`s; it says nothing about operations yet."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.values = SlotValues()
        self.handed_on = HandedOn(kernel)
        self._accesses: dict[Operation, tuple[SharedAccess, ...]] = {}
        self.table = AccessTable()
        self._motions = Motions(self.values, self._moving)
        self._edges: dict[Operation, tuple[Edge, Edge, Edge]] = {}

    def accesses(self, op: Operation) -> tuple[SharedAccess, ...]:
        """The accesses of an operation to shared memory, and to what workgroups hand on."""
        if op not in self._accesses:
            self._accesses[op] = (*shared_accesses(op, self.values), *self.handed_on.accesses(op))
        return self._accesses[op]

    def join(self, one: Flow, other: Flow) -> Flow:
        """Both paths."""
        return one.join(other)

    def enter(self, loop: scf.ForOp, state: Flow) -> Flow:
        """Relative to what the loop moves."""
        return self._edges_of(loop)[0].flow(state)

    def around(self, loop: scf.ForOp, state: Flow) -> Flow:
        """One iteration back."""
        return self._edges_of(loop)[1].flow(state)

    def leave(self, loop: scf.ForOp, state: Flow) -> Flow:
        """By the names of the loop's results."""
        return self._edges_of(loop)[2].flow(state)

    def surely_runs(self, loop: scf.ForOp) -> bool:
        """Where the trip count is known."""
        return (self.values.trips(loop).constant or 0) > 0

    def _edges_of(self, loop: scf.ForOp) -> tuple[Edge, Edge, Edge]:
        """Into a loop, around it, and out of it."""
        if loop in self._edges:
            return self._edges[loop]
        motion, velocities = self._motions.of(loop)
        block, table = loop.body.block, self.table
        carried = block.args[1:]

        def enter(access: SharedAccess) -> SharedAccess:
            return access.moved(lambda n, slot: motion.enter(slot, velocities.get((access.alloc, n), STILL)))

        def around(access: SharedAccess) -> SharedAccess:
            return access.moved(lambda _, slot: motion.around(slot))

        def leave(access: SharedAccess) -> SharedAccess:
            return access.moved(lambda _, slot: motion.leave(slot))

        self._edges[loop] = (
            Edge(table, loop, enter, loop.iter_args, carried),
            Edge(table, loop, around, yielded(block), carried),
            Edge(table, loop, leave, carried, loop.results),
        )
        return self._edges[loop]

    def _moving(self, op: Operation) -> Iterable[SharedAccess]:
        """The accesses of an operation whose slots loops move, phases of barriers among them."""
        yield from self.accesses(op)
        if isinstance(op, sync.WaitPhaseOp | sync.MbarrierExpectOp):
            yield phase_access(op, op.barrier, self.values, is_write=False)
