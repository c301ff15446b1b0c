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
    index = kernel.index
    looped = [axis for axis, step in axes if always or needs_loop(kernel, axis, step)]
    # All lengths are computed before the outermost loop: what may be any number is one unknown of the proof there, and many in a loop.
    ends = {axis: index.expression(kernel.axis_size(axis)) for axis in looped}
    return _nest(kernel, axes, ends, initial, body)


def _nest(
    kernel: KernelBuilder,
    axes: Sequence[tuple[int, int]],
    ends: Mapping[int, SSAValue],
    initial: Sequence[SSAValue],
    body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
) -> list[SSAValue]:
    """Loops over those of the axes that have an end."""
    if not axes:
        return list(body(initial))
    (axis, step), rest = axes[0], axes[1:]
    index = kernel.index
    if axis not in ends:
        kernel.offset[axis] = index.constant(0)
        return _nest(kernel, rest, ends, initial, body)
    lower, upper, stride = index.constant(0), ends[axis], index.constant(step)
    block = Block(arg_types=[builtin.IndexType(), *(v.type for v in initial)])
    loop = scf.ForOp(lower, upper, stride, list(initial), block)
    index.builder.insert(loop)
    place = kernel.enter(block)
    kernel.offset[axis] = block.args[0]
    results = _nest(kernel, rest, ends, block.args[1:], body)
    index.builder.insert(scf.YieldOp(*results))
    kernel.leave(place)
    return list(loop.results)
