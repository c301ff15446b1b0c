"""Convolutions whose channels are no whole steps of a slot: the loop of channels is made longer, and what lies behind the last one is zero.

Both operands are then images with zeros behind their channels, which descriptor copies give for nothing; what is summed besides is zero
times zero.
"""

from dataclasses import replace

from treadle.analysis.convolution import Image
from treadle.analysis.indexing import Contraction, StructuredOp
from treadle.analysis.loop_nest import Access, LoopNest, compose, identity
from treadle.analysis.shares import unshared
from treadle.dialects import dispatch
from treadle.ir.core import BlockArgument
from treadle.plan.expr import as_expr, constant, product


def in_channel_steps(nest: LoopNest, step: int) -> LoopNest | None:
    """The nest with whole steps of channels for each place of a window; None where it has them, or where an operand cannot be seen so."""
    reduced, kind = [axis for axis in nest.axes if axis.is_reduction], nest.computation
    if not isinstance(kind, Contraction) or kind.image < 0 or len(reduced) != 1 or len(reduced[0].dims) < 2:
        return None
    channel = reduced[0].dims[-1]
    count = nest.dim_sizes[channel].as_int()
    if count is None or count % step == 0:
        return None
    accesses: list[Access] = []
    for access in nest.accesses:
        if access.input_number not in (kind.lhs, kind.rhs):
            accesses.append(access)
            continue
        image = access.image or _whole(nest, nest.roots[access.root], access.input_number)
        if image is None or image.strides[axis := image.axis_of(channel)] < 1 or image.places[axis].dims != (channel,):
            return None
        sizes = tuple(count if number == axis else size for number, size in enumerate(image.sizes))
        accesses.append(replace(access, image=replace(image, sizes=sizes, has_zeros=True)))
    sizes = tuple(constant(-(-count // step) * step) if dim == channel else size for dim, size in enumerate(nest.dim_sizes))
    axes = tuple(replace(a, size=product([sizes[d] for d in a.dims])) if channel in a.dims else a for a in nest.axes)
    return replace(nest, accesses=tuple(accesses), dim_sizes=sizes, axes=axes)


def _whole(nest: LoopNest, root: StructuredOp, number: int) -> Image | None:
    """An operand that is an argument as an image without windows; None where it is none, or has strides that are not known."""
    value, kernel = unshared(root.inputs[number]), nest.kernel
    if not isinstance(value, BlockArgument):
        return None
    places = compose(root.input_maps[number], identity(root.rank), root.rank)
    rows = (dispatch.text_lists(row)[value.index] for row in (kernel.arg_shapes, kernel.arg_strides))
    shape, strides = ([as_expr(text) for text in row] for row in rows)
    steps = tuple(step for stride in strides if (step := stride.as_int()) is not None)
    if len(steps) < len(strides) or any(len(place.dims) > 1 for place in places):
        return None
    return Image(value, places, value, places, steps, (None,) * len(places), product(shape))
