"""When shared buffers are in use: intervals over the program order, whole loops where a value may travel along the back edge."""

from itertools import takewhile

from treadle.dialects import pipe, tile
from treadle.dialects.effects import HasEffects
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """First and last program point (inclusive) at which a buffer is in use."""

    start: int
    end: int

    def overlaps(self, other: "Interval") -> bool:
        """Whether both are in use at some point."""
        return self.start <= other.end and other.start <= self.end


def _numbered(kernel: tile.KernelOp) -> dict[Operation, Interval]:
    """Program points of every operation; one with regions spans them."""
    points: dict[Operation, Interval] = {}
    counter = 0

    def visit(op: Operation) -> None:
        nonlocal counter
        start = counter
        counter += 1
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    visit(inner)
        points[op] = Interval(start, counter)
        counter += 1

    for op in kernel.body.block.ops:
        visit(op)
    return points


def buffer_intervals(kernel: tile.KernelOp) -> dict[tile.AllocOp, Interval]:
    """The interval of every shared buffer, from its first access to its last.

    A buffer accessed in a loop that does not contain its allocation is in use during the whole loop: what one iteration leaves,
    the next may read.
    """
    points = _numbered(kernel)
    found: dict[tile.AllocOp, Interval] = {}
    for op in points:
        if not isinstance(op, HasEffects):
            continue
        for effect in op.effects():
            alloc = allocation(effect.resource)
            if alloc is not None:
                span = points[_spanning(op, alloc)]
                known = found.get(alloc)
                found[alloc] = span if known is None else Interval(min(known.start, span.start), max(known.end, span.end))
    for op in points:
        if isinstance(op, tile.AllocOp) and op not in found:
            found[op] = points[op]
    return found


def allocation(buffer: SSAValue) -> tile.AllocOp | None:
    """The allocation that a shared buffer is, or is a slot or part of; None for anything else."""
    op = buffer.owner
    while isinstance(op, pipe.SlotOp | pipe.PartOp):
        op = op.source.owner
    return op if isinstance(op, tile.AllocOp) else None


def _spanning(op: Operation, alloc: tile.AllocOp) -> Operation:
    """`op`, or the outermost loop or set of roles around it that does not contain `alloc`: roles run at the same time."""
    found, home = op, set(ancestors(alloc))
    for around in takewhile(lambda around: around not in home, ancestors(op)):
        if isinstance(around, scf.ForOp | scf.WhileOp | pipe.RolesOp):
            found = around
    return found
