"""Which of a kernel's choices is taken: the best, or one behind it (attribute `candidate` of `dispatch.kernel`)."""

from treadle.dialects import dispatch
from treadle.ir.builtin import attr_number
from treadle.ir.dialects import builtin

CANDIDATE = "candidate"


def candidate_of(kernel: dispatch.KernelOp) -> int:
    """The number of the candidate that is asked for, 0 for the best."""
    number = attr_number(kernel.attributes[CANDIDATE]) if CANDIDATE in kernel.attributes else 0
    return number if isinstance(number, int) else 0


def ask_for_candidate(kernel: dispatch.KernelOp, number: int) -> None:
    """Ask for a candidate."""
    kernel.attributes[CANDIDATE] = builtin.IntegerAttr(number, builtin.i64)
