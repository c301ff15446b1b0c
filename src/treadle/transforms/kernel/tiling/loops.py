"""Sequential loops over reduction axes with loop-carried tiles."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

from treadle.dialects import pipe
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.plan.expr import as_expr
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.walks import Together, walk

MOST_BLOCKS: Final = 4096
"""That are looked at one by one."""


def needs_loop(kernel: KernelBuilder, axis: int, step: int) -> bool:
    """Whether an axis may take another number of steps than one."""
    size, slack = kernel.walked_size(axis).as_int(), kernel.walks[axis].slack if axis in kernel.walks else 0
    return size is None or not 0 < size <= step - slack


def least_extent(kernel: KernelBuilder, axis: int) -> int:
    """The smallest extent of an axis in any block; 0 where the runtime's sizes have a part in it, or blocks are too many to look at."""
    size, blocks = kernel.walked_size(axis), kernel.kernel.blocks
    extents = {name: as_expr(blocks[name]).as_int() for name in size.symbols() if name in blocks}
    counts = [count for count in extents.values() if count is not None]
    if len(counts) < len(size.symbols()) or prod(counts) > MOST_BLOCKS:
        return 0
    places = product(*(range(count) for count in counts))
    return min((size.evaluate(dict(zip(extents, place, strict=True))) for place in places), default=0)


def reduction_loops(
    kernel: KernelBuilder,
    axes: Sequence[tuple[int, int]],
    initial: Sequence[SSAValue],
    body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
    *,
    always: bool = False,
    together: Together | None = None,
) -> list[SSAValue]:
    """Nest a loop for each (axis, step), carrying tiles; `body` maps the carried tiles to the next ones. An axis of one step needs no
    loop. `together`: what maps carried tiles over several tiles of an axis at once, where that takes less than one after the other.
    """
    looped = [axis for axis, step in axes if always or needs_loop(kernel, axis, step)]
    return _nest(kernel, axes, looped, {}, initial, body, together)


def _nest(
    kernel: KernelBuilder,
    axes: Sequence[tuple[int, int]],
    looped: Sequence[int],
    ends: Mapping[int, SSAValue],
    initial: Sequence[SSAValue],
    body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
    together: Together | None,
) -> list[SSAValue]:
    """Loops over those of the axes that are `looped`. `ends`: of loops within another, where the runtime knows them."""
    if not axes:
        return list(body(initial))
    (axis, step), rest = axes[0], axes[1:]
    index, size = kernel.index, kernel.walked_size
    first = index.expression(kernel.shares[axis][0]) if axis in kernel.shares else index.constant(0)
    if axis in kernel.walks:
        end = ends.get(axis) or index.expression(size(axis))
        return walk(
            kernel,
            axis,
            step,
            end,
            initial,
            lambda carried: _nest(kernel, rest, looped, ends, carried, body, together),
            None if rest else together,
        )
    if axis not in looped:
        kernel.offset[axis] = first
        return _nest(kernel, rest, looped, ends, initial, body, together)
    lower, upper, stride = index.constant(0), ends.get(axis) or index.expression(size(axis)), index.constant(step)
    where, kernel.steps_where = kernel.steps_where, None
    if where is not None:
        upper = index.insert(arith.SelectOp(where, upper, lower))
    # What may be any number is one unknown of the proof before the loop, and one for each round within.
    ends = ends or {inner: index.expression(size(inner)) for inner, _ in rest if inner in looped and not size(inner).is_constant}
    block = Block(arg_types=[builtin.IndexType(), *(v.type for v in initial)])
    loop = scf.ForOp(lower, upper, stride, list(initial), block)
    if where is None and index.static(upper) is None and (least := least_extent(kernel, axis)) > 0:
        loop.attributes[pipe.LEAST_STEPS] = builtin.IntegerAttr(-(-least // step), builtin.i64)
    index.builder.insert(loop)
    place = kernel.enter(block)
    kernel.offset[axis] = kernel.place_along(axis, index.add(first, block.args[0]))
    results = _nest(kernel, rest, looped, ends, block.args[1:], body, together)
    index.builder.insert(scf.YieldOp(*results))
    kernel.leave(place)
    return list(loop.results)
