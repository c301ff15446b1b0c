"""What the operations of `sync` and `pipe` may say, as checks that their verifiers share. All raise `Misuse` (TR416)."""

from collections.abc import Sequence

from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.misuse import Misuse
from treadle.machine import Queue, TargetSpec, known_spec

MAX_ARRIVALS = MAX_BYTES = (1 << 20) - 1
"""Arrivals and bytes that a phase of a transaction barrier counts (PTX ISA, "mbarrier": pending counts and tx-count)."""
NAMED_BARRIERS = range(1, 16)
"""Numbers of named barriers; 0 is the workgroup's."""
FENCE_PROXIES = ("async_shared", "async_global")
SCHEDULING_CLASSES = (
    "alu",
    "vector_alu",
    "scalar_alu",
    "matrix",
    "global",
    "global_load",
    "global_store",
    "shared",
    "shared_load",
    "shared_store",
    "transcendental",
)


def machine_of(op: Operation) -> TargetSpec | None:
    """The machine of the kernel that an operation is, or stands in; None where there is no kernel yet, or a row for it."""
    kernel = op if op.name == "tile.kernel" else _kernel_around(op)
    target = None if kernel is None else kernel.properties.get("target")
    return known_spec(target.data) if isinstance(target, builtin.StringAttr) else None


def _kernel_around(op: Operation) -> Operation | None:
    return next((around for around in ancestors(op) if around.name == "tile.kernel"), None)


def queue_named(spec: TargetSpec, name: str) -> Queue:
    """The machine's queue of that name."""
    queue = spec.queue(name)
    if queue is None:
        raise Misuse(f"{spec.name} has no queue '{name}'", f"its queues are {', '.join(known.name for known in spec.queues)}")
    return queue


def number_in_kernel(op: Operation, name: str, default: int) -> int | None:
    """An integer property of the kernel around an operation; None where there is no kernel yet."""
    kernel = _kernel_around(op)
    if kernel is None:
        return None
    value = kernel.properties.get(name)
    return value.value.data if isinstance(value, builtin.IntegerAttr) else default


def check_number(what: str, value: int, low: int, high: int, fix: str) -> None:
    """`value` lies between `low` and `high`, both included."""
    if not low <= value <= high:
        raise Misuse(f"{what} {value} is not between {low} and {high}", fix)


def check_one_of(what: str, value: str, known: Sequence[str]) -> None:
    """`value` is one of the words known."""
    if value not in known:
        raise Misuse(f"{what} '{value}' is not known", f"name one of {', '.join(known)}")


def check_is_straight(op: Operation, what: str, *, in_role: bool = False) -> None:
    """The operation stands in the kernel's own block: in no loop, branch or role (`in_role`: or in a role's own block)."""
    around = ("scf.for", "scf.if", "scf.while", *(() if in_role else ("pipe.roles",)))
    inside = next((outer.name for outer in ancestors(op) if outer.name in around), None)
    if inside is not None:
        raise Misuse(f"it stands inside {inside}, but {what}", "move it to the top level of the kernel, in front")


def check_ranks(op: Operation, ranks: Sequence[int], *, relative: bool = False) -> None:
    """Workgroups that an operation names, each once, are of the kernel's cluster. `relative`: each rank is combined with that of the
    executing one by exclusive or, so that there must be a power of two of them.
    """
    size = number_in_kernel(op, "cluster", 1)
    if size is None:
        return
    if not ranks or len(set(ranks)) != len(ranks) or any(not 0 <= rank < size for rank in ranks):
        raise Misuse(f"workgroups {list(ranks)} of a cluster of {size}", f"name different numbers from 0 to {size - 1}")
    if relative and size & (size - 1):
        raise Misuse(f"relative ranks in a cluster of {size}", "name workgroups by their own ranks, or use a cluster of 2, 4 or 8")


def check_parity(value: SSAValue) -> None:
    """A constant parity is 0 or 1. (What is computed is followed by verify-schedule.)"""
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, builtin.IntegerAttr):
        check_number("the parity", owner.value.value.data, 0, 1, "wait for parity 0 or 1: phases alternate, the first one's is 0")
