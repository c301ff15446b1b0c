"""The attribute `error_bits = b` of `arith` and `math` operations: a relative error of 2^-b in the result does no harm.

set-precision writes it, the passes and emitters after it read it. An operation without it gives what it can in the type of its result.
"""

from typing import Final

from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin

ATTRIBUTE: Final = "error_bits"

EXACT: Final = 25
"""Every bit counts; never written."""

FULL: Final = 21
"""An f32 that is a result: four units in the last place."""

NARROW: Final = 16
"""What a rounding to 16 bits or fewer asks for is at most this."""


def error_bits(op: Operation) -> int:
    """The bits of an operation, `EXACT` where it has none."""
    attribute = op.attributes.get(ATTRIBUTE)
    return attribute.value.data if isinstance(attribute, builtin.IntegerAttr) else EXACT


def set_error_bits(op: Operation, bits: int) -> None:
    """Write the attribute; nothing for `EXACT`."""
    if bits < EXACT:
        op.attributes[ATTRIBUTE] = builtin.IntegerAttr(bits, builtin.i64)


def has_flag(op: Operation, flag: arith.FastMathFlag) -> bool:
    """Whether an operation's `fastmath` flags hold one."""
    flags = op.properties.get("fastmath")
    return isinstance(flags, arith.FastMathFlagsAttr) and flag in flags.data
