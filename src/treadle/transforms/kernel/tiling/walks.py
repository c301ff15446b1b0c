"""Walks along long rows: tiles that begin at aligned addresses, several of them in flight, and masks at the ends alone.

A row that begins anywhere is walked from the aligned address before it: a head, whose first elements are masked, whole tiles that need no
mask, and a tail. Several whole tiles make one turn, whose loads all come before its arithmetic.
"""

from collections.abc import Callable, Sequence

from treadle.analysis.row_lines import RowLine, row_line
from treadle.dialects import tile
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.scope import Walk

Step = Callable[[Sequence[SSAValue]], Sequence[SSAValue]]
Together = Callable[[Sequence[SSAValue], int, Sequence[SSAValue]], Sequence[SSAValue]]
"""Maps carried tiles to the next ones over whole tiles of an axis, at these places along it."""


def set_walk(kernel: KernelBuilder, extents: Sequence[int], line: int, tiles: int) -> None:
    """Walk the longest reduced axis as a form's config asks; `line` and `tiles` as in `rows.Config`."""
    reduced = [i for i, axis in enumerate(kernel.nest.axes) if axis.is_reduction]
    if not reduced or not tiles:
        return
    axis = max(reduced, key=lambda i: extents[i])
    found = row_line(kernel.nest, axis) if line else None
    kernel.walks[axis] = Walk(None if found is None else RowLine(line, found.steps), tiles)


def _shift(kernel: KernelBuilder, line: RowLine) -> SSAValue:
    """Elements from the aligned address to the start of the row."""
    index, width = kernel.index, line.elements
    total = index.constant(0)
    for stride, place in line.steps:
        known = stride.as_int()
        if known is not None and known % width == 0:
            continue
        at = index.remainder(kernel.offset[place] if isinstance(place, int) else index.expression(place), index.constant(width))
        if known is not None:
            total = index.add(total, index.multiply(at, known % width))
            continue
        step = index.remainder(index.expression(stride), index.constant(width))
        total = index.add(total, index.insert(arith.MuliOp(at, step, result_type=builtin.IndexType())))
    return index.remainder(total, index.constant(width))


def walk(
    kernel: KernelBuilder, axis: int, step: int, end: SSAValue, initial: Sequence[SSAValue], body: Step, together: Together | None = None
) -> list[SSAValue]:
    """All tiles of `step` elements along an axis up to `end`, as its `Walk` says; `body` maps the carried tiles to the next ones."""
    how, index, size = kernel.walks[axis], kernel.index, kernel.axis_size(axis).as_int()
    slack, turn = how.slack, how.tiles * step
    begin = index.constant(0) if how.line is None else index.subtract(index.constant(0), _shift(kernel, how.line))
    if size is not None and 0 < size <= step - slack:
        return _masked(kernel, axis, begin, initial, body, (slack > 0, True))
    carried = list(initial)
    if how.line is not None:
        carried = _masked(kernel, axis, begin, carried, body, (True, True))
        begin = index.add(begin, index.constant(step))
    if size is None or size + slack >= turn:
        carried = _turns(kernel, axis, (begin, step, end), carried, body, together)
        room = index.insert(arith.MaxSIOp(index.subtract(end, begin), index.constant(0)))
        begin = index.add(begin, index.multiply(index.divide(room, index.constant(turn)), turn))
    if size is not None and how.line is None and size % turn == 0:
        return carried
    block = Block(arg_types=[builtin.IndexType(), *(v.type for v in carried)])
    loop = scf.ForOp(begin, end, index.constant(step), carried, block)
    index.builder.insert(loop)
    place = kernel.enter(block)
    index.builder.insert(scf.YieldOp(*_masked(kernel, axis, block.args[0], block.args[1:], body, (False, True))))
    kernel.leave(place)
    return list(loop.results)


def _turns(
    kernel: KernelBuilder,
    axis: int,
    places: tuple[SSAValue, int, SSAValue],
    initial: Sequence[SSAValue],
    body: Step,
    together: Together | None,
) -> list[SSAValue]:
    """The loop over turns of whole tiles; `places`: where it begins, the tiles' extent, where the axis ends."""
    (begin, step, end), index, tiles = places, kernel.index, kernel.walks[axis].tiles
    turn = tiles * step
    block = Block(arg_types=[builtin.IndexType(), *(v.type for v in initial)])
    loop = scf.ForOp(begin, index.subtract(end, turn - 1), index.constant(turn), list(initial), block)
    index.builder.insert(loop)
    place = kernel.enter(block)
    carried: Sequence[SSAValue] = block.args[1:]
    if together is not None:
        kernel.ends[axis] = (False, False)
        carried = together(carried, axis, [index.add(block.args[0], number * step) for number in range(tiles)])
        del kernel.ends[axis]
    for number in range(tiles if together is None else 0):
        carried = _masked(kernel, axis, index.add(block.args[0], number * step), carried, body, (False, False))
    index.builder.insert(scf.YieldOp(*carried))
    kernel.leave(place)
    _load_first(kernel, block)
    return list(loop.results)


def _masked(
    kernel: KernelBuilder, axis: int, at: SSAValue, carried: Sequence[SSAValue], body: Step, ends: tuple[bool, bool]
) -> list[SSAValue]:
    """One tile at a place, masked at these ends of the row."""
    kernel.ends[axis] = ends
    with kernel.at(axis, at):
        found = list(body(carried))
    del kernel.ends[axis]
    return found


def _load_first(kernel: KernelBuilder, block: Block) -> None:
    """Move the loads of inputs to the start of a block, with the index arithmetic that they need: nothing in it writes an input."""
    wanted: dict[Operation, None] = {}
    for op in block.ops:
        view = op.view.owner if isinstance(op, tile.LoadOp) else None
        if isinstance(view, tile.ViewOp) and view.pointer in kernel.inputs:
            wanted.update(dict.fromkeys((*_needed(op, block), op)))
    for op in wanted:
        op.detach()
    anchor = block.first_op
    for op in wanted:
        if anchor is not None:
            block.insert_op_before(op, anchor)


def _needed(op: Operation, block: Block) -> list[Operation]:
    """What an operation's operands are computed by in a block, in order."""
    wanted, found = [op], set[Operation]()
    while wanted:
        for operand in wanted.pop().operands:
            owner = operand.owner
            if isinstance(owner, Operation) and owner.parent is block and owner not in found:
                found.add(owner)
                wanted.append(owner)
    return [one for one in block.ops if one in found]
