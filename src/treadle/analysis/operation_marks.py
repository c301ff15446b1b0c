"""Attributes by which tensor passes tell later ones, and a user tells the compiler, something of one operation."""

from treadle.analysis.indexing import classify
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin

ORIGIN = "treadle.origin"
"""Of a generic that was a named operation: its name without `linalg.`, for remarks and kernel names."""
F32_SPLIT = "treadle.f32_split"
"""Of a contraction of f32: the name in `plan/f32_split.SPLITS` by which its operands are split into parts, or "none"."""
F32_SPLIT_IN = "treadle.f32_split_in"
"""Of a contraction with `F32_SPLIT`: where its operands are split, in "memory" ahead of it or in its "kernel"."""
IN_MEMORY, IN_KERNEL = "memory", "kernel"
F32_PARTS = "treadle.f32_parts"
"""Of a contraction of the parts of f32 operands: the parts' type, "tf32" or "bf16"."""
PADDED_CHANNELS = "treadle.padded_channels"
"""Of a convolution: how many channels copies of its operands have that it reads, zeros behind its own; 0 for no copies."""
PADDED_ROWS = "treadle.padded_rows"
"""Of a contraction: how far the rows of copies of A and of B are apart that it reads, in elements; 0 for no copy."""
TURNED_OPERANDS = "treadle.turned_operands"
"""Of a contraction: how far the rows of copies of A and of B are apart that it reads, in elements, rows that lie along m and n where the
operands' own lie along k; 0 for no copy.
"""
ASSOCIATIVE = "treadle.associative"
"""Of a reduction whose body takes one element for each accumulator: its author says that it merges any two of them, in any order and
grouping; one number for each result, the identity of the merge."""


def origin_of(op: Operation) -> str:
    """The name of the named operation it was, else what the computation is (`contraction`, `reduction`, `elementwise`, `copy`, `fill`)."""
    attr = op.attributes.get(ORIGIN)
    if isinstance(attr, builtin.StringAttr):
        return attr.data
    found = classify(op)
    return type(found).__name__.lower() if found is not None else op.name.split(".")[-1]


def split_in_kernel(op: Operation) -> str:
    """The name of the split that a contraction's own kernel makes of its f32 operands; "" for any other operation."""
    name, place = op.attributes.get(F32_SPLIT), op.attributes.get(F32_SPLIT_IN)
    inside = isinstance(place, builtin.StringAttr) and place.data == IN_KERNEL
    return name.data if inside and isinstance(name, builtin.StringAttr) else ""
