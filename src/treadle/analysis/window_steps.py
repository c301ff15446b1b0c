"""In which order the loop of a convolution takes the steps of its windows: all channels of one place after the other, or all places of the
window for one step of channels.

Neighbouring places of a window read nearly the same pixels. Between two of them lie all channels in the first order, of as many pixels as
all tiles at work read: where the cache that the units share does not hold these, each place reads them of the memory again. In the second
order one step of channels of these pixels lies between.
"""

from math import prod

from treadle.analysis.axis_traffic import bytes_touched
from treadle.analysis.contraction_axes import main_axis
from treadle.analysis.indexing import Contraction
from treadle.analysis.loop_nest import LoopNest
from treadle.machine.spec import TargetSpec
from treadle.plan.rasters import KEPT_SHARE
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class WindowSteps:
    """What a loop of whole steps along k is over: so many `places` of a window, outer, and so many `channels` at each, inner."""

    places: int
    channels: int


def window_steps(nest: LoopNest, k_axis: int, step: int) -> WindowSteps | None:
    """The steps of a convolution's loop; None where they have one order only, or are no whole steps of the channels."""
    kind, axis = nest.computation, nest.axes[k_axis]
    if k_axis < 0 or not isinstance(kind, Contraction) or len(axis.dims) < 2 or axis.factor != 1 or axis.block:
        return None
    image = next((a.image for a in nest.accesses if a.image is not None and a.input_number == kind.image), None)
    sizes = [nest.dim_sizes[dim].as_int() for dim in axis.dims]
    if image is None or None in sizes:
        return None
    *window, channels = (size or 1 for size in sizes)
    at = image.axis_of(axis.dims[-1])
    if image.strides[at] != 1 or image.places[at].dims != (axis.dims[-1],):
        return None
    places = prod(window)
    return WindowSteps(places, channels) if channels % step == 0 and places > 1 and channels > step else None


def outgrows_cache(nest: LoopNest, tile: tuple[int, int], spec: TargetSpec) -> bool:
    """Whether the part of a convolution's image that all tiles at work read is more than the cache keeps; False where only the runtime
    knows how large it is. `tile`: rows and columns of the result that a workgroup computes.
    """
    kind = nest.computation
    access = next(
        (a for a in nest.accesses if isinstance(kind, Contraction) and a.image is not None and a.input_number == kind.image), None
    )
    sizes = [nest.axes[axis].bound.as_int() if (axis := main_axis(nest, role)) >= 0 else 1 for role in ("m", "n")]
    if access is None or access.image is None or access.image.elements.as_int() is None or None in sizes:
        return False
    counts = [-(-(size or 1) // extent) for size, extent in zip(sizes, tile, strict=True)]
    pixels, across = counts if isinstance(kind, Contraction) and kind.image == kind.lhs else counts[::-1]
    at_work = min(1.0, spec.compute_units / (pixels * across))
    return at_work * bytes_touched(nest, access) > KEPT_SHARE * spec.product.l2_bytes
