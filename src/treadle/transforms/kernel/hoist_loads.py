"""hoist-loads: what every trip of a loop would load again is loaded once, ahead of it.

Level: tile. Reads: innermost loops that contract, the effects of the kernel. Writes: places of `tile.load`. Leaves alone: loads at
places that move; loads of memory that the kernel writes; loops that synchronise; loops of roles, whose groups load for each other.

Such loads are the scales of a block of a scaled contraction. In a pipelined loop each step would have its own, and the last steps, which
stand behind the loop, would wait for theirs among their matrix instructions.
"""

from collections.abc import Iterator

from treadle.analysis.overlapped_loops import overlaps_unasked
from treadle.dialects import pipe, tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before, written


def invariant_loads(loop: scf.ForOp, changed: frozenset[SSAValue]) -> Iterator[tile.LoadOp]:
    """The loads of a loop's body that load the same in every trip, in order. `changed`: the pointers that the kernel writes through."""
    inside = {loop.body.block, *(block for op in loop.body.walk() for region in op.regions for block in region.blocks)}
    for op in loop.body.block.ops:
        view = op.view.owner if isinstance(op, tile.LoadOp) else None
        if not isinstance(op, tile.LoadOp) or not isinstance(view, tile.ViewOp) or view.pointer in changed:
            continue
        if all((value.owner.parent if isinstance(value.owner, Operation) else value.owner) not in inside for value in op.operands):
            yield op


def _loops(kernel: tile.KernelOp) -> list[scf.ForOp]:
    """Innermost loops that contract and do not synchronise."""
    loops = [op for op in kernel.body.walk() if isinstance(op, scf.ForOp)]
    bodies = [(loop, list(loop.body.walk())) for loop in loops]
    return [
        loop
        for loop, body in bodies
        if any(isinstance(op, tile.ContractOp) for op in body)
        and not any(isinstance(op, scf.ForOp) or op.name.startswith("sync.") for op in body)
    ]


@register_pass
@dataclass(frozen=True)
class HoistLoadsPass(KernelPass):
    """Moves loads that do not change in a loop ahead of it. `unasked`: only where loops overlap unasked."""

    name = "hoist-loads"
    unasked: bool = False

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Move the loads of one kernel."""
        if any(isinstance(op, pipe.RolesOp) for op in kernel.body.walk()):
            return
        changed = written(kernel)
        for loop in _loops(kernel):
            if self.unasked and not overlaps_unasked(loop, spec):
                continue
            for load in list(invariant_loads(loop, changed)):
                load.detach()
                insert_before(loop, load)
