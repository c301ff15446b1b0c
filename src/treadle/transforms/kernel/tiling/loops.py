"""Sequential loops over reduction axes with loop-carried tiles."""

from collections.abc import Callable, Mapping, Sequence

from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.transforms.kernel.tiling.builder import KernelBuilder


def needs_loop(kernel: KernelBuilder, axis: int, step: int) -> bool:
    """Whether an axis may take another number of steps than one."""
    size = kernel.axis_size(axis).as_int()
    return size is None or not 0 < size <= step


def reduction_loops(
    kernel: KernelBuilder,
    axes: Sequence[tuple[int, int]],
    initial: Sequence[SSAValue],
    body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
    *,
    always: bool = False,
) -> list[SSAValue]:
    """Nest a loop for each (axis, step), carrying tiles; `body` maps the carried tiles to the next ones. An axis of one step needs no
    loop.
    """
    looped = [axis for axis, step in axes if always or needs_loop(kernel, axis, step)]
    return _nest(kernel, axes, looped, {}, initial, body)


def _nest(
    kernel: KernelBuilder,
    axes: Sequence[tuple[int, int]],
    looped: Sequence[int],
    ends: Mapping[int, SSAValue],
    initial: Sequence[SSAValue],
    body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
) -> list[SSAValue]:
    """Loops over those of the axes that are `looped`. `ends`: of loops within another, where the runtime knows them."""
    if not axes:
        return list(body(initial))
    (axis, step), rest = axes[0], axes[1:]
    index, size = kernel.index, kernel.axis_size
    if axis not in looped:
        kernel.offset[axis] = index.constant(0)
        return _nest(kernel, rest, looped, ends, initial, body)
    lower, upper, stride = index.constant(0), ends.get(axis) or index.expression(size(axis)), index.constant(step)
    # What may be any number is one unknown of the proof before the loop, and one for each round within.
    ends = ends or {inner: index.expression(size(inner)) for inner, _ in rest if inner in looped and not size(inner).is_constant}
    block = Block(arg_types=[builtin.IndexType(), *(v.type for v in initial)])
    loop = scf.ForOp(lower, upper, stride, list(initial), block)
    index.builder.insert(loop)
    place = kernel.enter(block)
    kernel.offset[axis] = block.args[0]
    results = _nest(kernel, rest, looped, ends, block.args[1:], body)
    index.builder.insert(scf.YieldOp(*results))
    kernel.leave(place)
    return list(loop.results)
