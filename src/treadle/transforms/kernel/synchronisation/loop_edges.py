"""What the edges of loops do to the state of insert-sync: slots move with the iterations, results in flight take new names."""

from collections.abc import Callable, Iterable, Sequence

from treadle.analysis.shared_accesses import SharedAccess, shared_accesses
from treadle.analysis.slot_motion import STILL, Motions
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.structured_flow import StructuredFlow, is_inside, yielded
from treadle.dialects import sync, tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.transforms.kernel.synchronisation.in_flight import Flow
from treadle.transforms.kernel.synchronisation.operations import phase_access


class LoopEdges(StructuredFlow[Flow]):
    """A walk over a kernel whose state are `Flow`s; it says nothing about operations yet."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.values = SlotValues()
        self.accesses = {op: shared_accesses(op, self.values) for op in kernel.walk()}
        self.motions = Motions(self.values, self._moving)

    def join(self, one: Flow, other: Flow) -> Flow:
        """Both paths."""
        return one.join(other)

    def enter(self, loop: scf.ForOp, state: Flow) -> Flow:
        """Relative to what the loop moves."""
        motion, velocities = self.motions.of(loop)

        def enter(access: SharedAccess) -> SharedAccess:
            return access.moved(lambda n, slot: motion.enter(slot, velocities.get((access.alloc, n), STILL)))

        return state.moved(enter, self._renamed(loop, tuple(loop.iter_args), tuple(loop.body.block.args[1:])))

    def around(self, loop: scf.ForOp, state: Flow) -> Flow:
        """One iteration back."""
        motion, _ = self.motions.of(loop)
        block = loop.body.block
        return state.moved(
            lambda a: a.moved(lambda _, slot: motion.around(slot)), self._renamed(loop, yielded(block), tuple(block.args[1:]))
        )

    def leave(self, loop: scf.ForOp, state: Flow) -> Flow:
        """By the names of the loop's results."""
        motion, _ = self.motions.of(loop)
        renamed = self._renamed(loop, tuple(loop.body.block.args[1:]), tuple(loop.results))
        return state.moved(lambda a: a.moved(lambda _, slot: motion.leave(slot)), renamed)

    def surely_runs(self, loop: scf.ForOp) -> bool:
        """Where the trip count is known."""
        return (self.values.trips(loop).constant or 0) > 0

    @staticmethod
    def _renamed(
        loop: scf.ForOp, sources: Sequence[SSAValue], targets: Sequence[SSAValue]
    ) -> Callable[[frozenset[SSAValue]], frozenset[SSAValue]]:
        """Names of results that stay in flight: carried values take new ones, those of the body alone end."""

        def rename(names: frozenset[SSAValue]) -> frozenset[SSAValue]:
            moved = {t for s, t in zip(sources, targets, strict=True) if s in names}
            return frozenset(moved | {n for n in names if not is_inside(n, loop)})

        return rename

    def _moving(self, op: Operation) -> Iterable[SharedAccess]:
        """The accesses of an operation whose slots loops move, phases of barriers among them."""
        yield from self.accesses.get(op, ())
        if isinstance(op, sync.WaitPhaseOp | sync.MbarrierExpectOp):
            yield phase_access(op, op.barrier, self.values, is_write=False)
