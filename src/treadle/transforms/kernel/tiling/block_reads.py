"""The numbers that a workgroup reads for its block: scalar loads, within the bounds that the kernel states."""

from collections.abc import Callable

from treadle.dialects import dispatch, tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import as_expr
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


def read_number(read: dispatch.Read, index: IndexBuilder, view: SSAValue) -> SSAValue:
    """The number that a workgroup reads from a view of the argument, where the symbols of its block stand now."""
    element = builtin.TensorType(tile.memref_type(view).element_type, [1])
    place = [index.expression(as_expr(text)) for text in read.place]
    found = index.insert(tile.LoadOp(view, place, [len(place) - 1], element))
    natural = index.insert(arith.MaxSIOp(index.insert(tile.ExtractOp(found)), index.constant(0)))
    return index.insert(arith.MinSIOp(natural, index.expression(as_expr(read.most))))


def settle_reads(kernel: dispatch.KernelOp, index: IndexBuilder, view_of: Callable[[int], SSAValue]) -> None:
    """Let the symbols of what is read have their values, once those of blocks have theirs. `view_of`: the view of an argument."""
    for name, read in kernel.reads.items():
        index.symbols[name] = read_number(read, index, view_of(read.argument))
