"""The numbers that a workgroup reads for its block: scalar loads, within the bounds that the kernel states."""

from collections.abc import Callable

from treadle.analysis.group_runs import ListedRuns, Runs
from treadle.dialects import dispatch, tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import as_expr
from treadle.transforms.kernel.tiling.index_math import MOST_CHOSEN, IndexBuilder, Listed


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
    """The same of groups whose sizes are known. What else depends on the group is chosen as its number is, by the bits of its place among
    the groups that have tiles, or looked up there.
    """
    groups, firsts = zip(*runs.firsts(step), strict=True)
    places, bits = 1 << (len(groups) - 1).bit_length(), list[SSAValue]()
    begins = [*firsts, *([runs.numbers(step).as_int() or 0] * (places - len(groups)))]
    # Many groups are looked up by their place, which the bits make up.
    place = index.constant(0) if len(groups) > MOST_CHOSEN else None
    half = places >> 1
    while half:
        middles = [begins[at] for at in range(half, places, 2 * half)]
        if place is None or len(middles) <= MOST_CHOSEN // 2:
            middle = index.chosen(middles, bits)
        else:
            middle = index.looked_up(begins, index.add(place, half))
        bits.append(index.insert(arith.CmpiOp(middle, number, "sle")))
        if place is not None:
            place = index.add(place, index.insert(arith.SelectOp(bits[-1], index.constant(half), index.constant(0))))
        half //= 2
    if place is not None and len(groups) < places:
        place = index.minimum(place, len(groups) - 1)  # no tile is behind the last group's, which proofs do not know of any number
    known = index.listed[runs.block] = Listed(groups, tuple(bits), place)
    return index.of_listed(groups, known), index.subtract(number, index.of_listed(firsts if place is None else begins, known))


def settle_reads(kernel: dispatch.KernelOp, index: IndexBuilder, view_of: Callable[[int], SSAValue]) -> None:
    """Let the symbols of what is read have their values, once those of blocks have theirs. `view_of`: the view of an argument."""
    for name, read in kernel.reads.items():
        index.symbols[name] = read_number(read, index, view_of(read.argument))
