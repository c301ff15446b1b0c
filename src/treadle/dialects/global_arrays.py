"""Which global arrays a kernel reads, and which it writes. Pure functions over the IR."""

from treadle.dialects.effects import HasEffects
from treadle.dialects.tile import ViewOp
from treadle.ir.core import Operation, SSAValue


def accessed_pointers(kernel: Operation) -> tuple[frozenset[SSAValue], frozenset[SSAValue]]:
    """The pointers that the operations of a kernel read through, and those that they write through."""
    found: dict[str, set[SSAValue]] = {"read": set(), "write": set()}
    for op in kernel.walk():
        for effect in op.effects() if isinstance(op, HasEffects) else ():
            if isinstance(effect.resource.owner, ViewOp):
                found[effect.access].add(effect.resource.owner.pointer)
    return frozenset(found["read"]), frozenset(found["write"])
