"""The numbers that a workgroup reads for its block: scalar loads, within the bounds that the kernel states."""

from collections.abc import Callable

from treadle.analysis.group_runs import ListedRuns, Runs
from treadle.dialects import dispatch, tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import as_expr
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, Listed


def read_number(read: dispatch.Read, index: IndexBuilder, view: SSAValue) -> SSAValue:
    """The number that a workgroup reads from a view of the argument, where the symbols of its block stand now."""
    element = builtin.TensorType(tile.memref_type(view).element_type, [1])
    place = [index.expression(as_expr(text)) for text in read.place]
    found = index.insert(tile.LoadOp(view, place, [len(place) - 1], element))
    natural = index.insert(arith.MaxSIOp(index.insert(tile.ExtractOp(found)), index.constant(0)))
    return index.insert(arith.MinSIOp(natural, index.expression(as_expr(read.most))))


def place_in_runs(
    kernel: dispatch.KernelOp,
    index: IndexBuilder,
    view_of: Callable[[int], SSAValue],
    runs: Runs | ListedRuns,
    number: SSAValue,
    step: int,
) -> tuple[SSAValue, SSAValue]:
    """The group of the tile of that number (see `group_runs`), and its place among the group's tiles; one beyond them where it is none."""
    if isinstance(runs, ListedRuns):
        return _place_in_list(index, runs, number, step)
    start = kernel.reads[runs.start]

    def first_tile(group: SSAValue) -> SSAValue:
        index.symbols[runs.block] = group
        return index.add(index.divide(read_number(start, index, view_of(start.argument)), step), group)

    group = index.constant(0)
    first, span = first_tile(group), 1 << (runs.groups - 1).bit_length() >> 1
    while span:
        other = index.minimum(index.add(group, span), runs.groups - 1)
        begins = first_tile(other)
        reached = index.insert(arith.CmpiOp(begins, number, "sle"))
        group, first = (index.insert(arith.SelectOp(reached, *pair)) for pair in ((other, group), (begins, first)))
        span //= 2
    place = index.subtract(number, first)
    is_ahead = index.insert(arith.CmpiOp(place, index.constant(0), "slt"))  # of the first group
    return group, index.insert(arith.SelectOp(is_ahead, index.expression(runs.most // step + 1), place))


def _place_in_list(index: IndexBuilder, runs: ListedRuns, number: SSAValue, step: int) -> tuple[SSAValue, SSAValue]:
    """The same of groups whose sizes are known. What else depends on the group is chosen as its number is, bit by bit."""
    groups, firsts = zip(*runs.firsts(step), strict=True)
    beyond, bits = runs.numbers(step).as_int() or 0, list[SSAValue]()
    places = 1 << (len(groups) - 1).bit_length()
    half = places >> 1
    while half:
        middles = range(half, places, 2 * half)
        begins = index.chosen([firsts[at] if at < len(groups) else beyond for at in middles], bits)
        bits.append(index.insert(arith.CmpiOp(begins, number, "sle")))
        half //= 2
    index.listed[runs.block] = Listed(groups, tuple(bits))
    return index.chosen(groups, bits), index.subtract(number, index.chosen(firsts, bits))


def settle_reads(kernel: dispatch.KernelOp, index: IndexBuilder, view_of: Callable[[int], SSAValue]) -> None:
    """Let the symbols of what is read have their values, once those of blocks have theirs. `view_of`: the view of an argument."""
    for name, read in kernel.reads.items():
        index.symbols[name] = read_number(read, index, view_of(read.argument))
