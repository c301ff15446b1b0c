"""Loops and branches in which nothing is done that has to be ordered, and of which nothing else depends: they need not be followed.

Such a loop ends, whatever its bounds are, for its step is a constant above zero; what it stores goes to arrays that nobody reads.
"""

from collections.abc import Callable, Set

from treadle.dialects import sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.ancestry import operands_of
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.scalars import constant_value

_ORDERED = ("sync.", "pipe.")
_FOLLOWED = ("scf.for", "scf.if")
_COMPUTED = ("arith.", "math.", "affine.", "tile.", "scf.yield")


def idle_operations(
    ops: list[Operation], is_tracked: Callable[[Operation], bool], deciding: Callable[[Set[Operation]], Set[SSAValue]]
) -> tuple[frozenset[Operation], Set[SSAValue]]:
    """The idle loops and branches among operations (those within idle ones too), and what decides about all others.

    `is_tracked`: whether what an operation accesses, or a queued result that it uses, has to be ordered. `deciding`: the values that slots,
    parities, bounds and branches are computed from where these loops and branches are idle.
    """
    busy: set[Operation] = set()
    for op in ops:
        if op.name.startswith(_ORDERED):
            _note(busy, op)
    for op in ops:  # of those that stand in loops and branches alone of which nothing is known yet
        if op in busy or (op.name not in _FOLLOWED and op.parent_op() in busy):
            continue
        if not _is_idle(op, is_tracked):
            _note(busy, op)
    idle = {op for op in ops if op.name in _FOLLOWED and op not in busy}
    while True:
        values = deciding(idle)
        used = {op for op in idle if any(result in values for result in op.results)}
        if not used:
            return frozenset(idle), values
        idle -= used  # what is within them may still be idle, unless it decides about their results


def _note(busy: set[Operation], op: Operation) -> None:
    around: Operation | None = op
    while around is not None and around not in busy:
        busy.add(around)
        around = around.parent_op()


def _is_idle(op: Operation, is_tracked: Callable[[Operation], bool]) -> bool:
    if is_tracked(op):
        return False
    if any(is_shared(value.type) or isinstance(value.type, sync.MbarrierType) for value in (*operands_of(op), *op.results)):
        return False
    match op:
        case scf.ForOp():
            owner = op.step.owner
            step = constant_value(owner) if isinstance(owner, Operation) and owner.name == "arith.constant" else None
            return step is not None and step > 0
        case scf.IfOp() | tile.ReduceOp():
            return True
        case _:
            return not op.regions and op.name.startswith(_COMPUTED)
