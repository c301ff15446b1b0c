"""Which global arrays a kernel reads, and which it writes. Pure functions over the IR."""

from collections.abc import Iterable

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.tile import ViewOp
from treadle.ir.core import Operation, SSAValue


def accessed_pointers(kernel: Operation) -> tuple[frozenset[SSAValue], frozenset[SSAValue]]:
    """The pointers that the operations of a kernel read through, and those that they write through."""
    return pointers_of(effect for op in kernel.walk() if isinstance(op, HasEffects) for effect in op.effects())


def pointers_of(effects: Iterable[Effect]) -> tuple[frozenset[SSAValue], frozenset[SSAValue]]:
    """The same of these effects."""
    found: dict[str, set[SSAValue]] = {"read": set(), "write": set()}
    for effect in effects:
        if isinstance(effect.resource.owner, ViewOp):
            found[effect.access].add(effect.resource.owner.pointer)
    return frozenset(found["read"]), frozenset(found["write"])
