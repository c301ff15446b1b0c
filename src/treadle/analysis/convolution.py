"""Convolutions among contractions: one operand is read at windows, `out * stride + window * dilation`, and may have zeros around it.

Loops are what they are in every contraction: rows are those of image and result (batch, pixels), columns those of filter and result, and
the window is reduced with the input channels. The image is then a matrix whose elements repeat, seen through a folded view
(layout/windows.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.ir.core import AffineMap, BlockArgument, SSAValue
from treadle.ir.dialects import builtin, linalg, tensor
from treadle.layout.windows import FoldedAxis, Part, Windows
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass

if TYPE_CHECKING:
    from treadle.analysis.root_positions import Linear, Linears

PADDED = "treadle.padded"
"""Of the generic that decompose-tensor-ops makes of a `tensor.pad` for a convolution: the zeros before the source along each axis. The
rest of a generic stands for itself: it gathers the source where its place lies inside of it.
"""


def reads_windows(map_: AffineMap) -> bool:
    """Whether a map reads windows: each axis at a sum of loops with positive factors, no loop along two axes."""
    seen: set[int] = set()
    for expr in map_.results:
        used, zeros = expr.used_dims(), [0] * map_.num_dims
        units = [[int(d == e) for e in range(map_.num_dims)] for d in used]
        base = expr.eval(zeros, [])
        if not used or base < 0 or not seen.isdisjoint(used) or any(expr.eval(unit, []) <= base for unit in units):
            return False
        seen |= used
    return True


def padded_source(value: SSAValue) -> tuple[SSAValue, tuple[int, ...]] | None:
    """The tensor that has zeros around it, and how many before it along each axis; None for every other value."""
    op = value.owner
    if not isinstance(op, linalg.ops.GenericOp) or not isinstance(low := op.attributes.get(PADDED), builtin.DenseArrayBase):
        return None
    source = next((inner.tensor for inner in op.body.block.ops if isinstance(inner, tensor.ExtractOp)), None)
    return None if source is None else (source, tuple(int(v) for v in low.get_values()))


@dataclass(frozen=True, slots=True)
class Image:
    """An operand that is read at windows: the value that the root reads (`source`, at `reached`), and the argument that holds it, whose
    axes are read at `places`: below 0 and from the `sizes` on there are zeros. Strides in elements; sizes are None where no bound is
    needed. `has_zeros`: places beyond those bounds are read.
    """

    source: SSAValue
    reached: "Linears"
    argument: BlockArgument
    places: "Linears"
    strides: tuple[int, ...]
    sizes: tuple[int | None, ...]
    elements: Expr
    has_zeros: bool = False

    @property
    def is_padded(self) -> bool:
        """Whether there are zeros around it."""
        return self.source is not self.argument

    def axis_of(self, dim: int) -> int:
        """The axis that a loop walks; -1 where it walks none."""
        return next((axis for axis, place in enumerate(self.places) if place.coefficients[dim]), -1)


def image_of(
    value: SSAValue, reached: "Linears", places: "Linears", argument: BlockArgument, shape: Sequence[Expr], strides: Sequence[Expr]
) -> Image | None:
    """The image that a root reads at `places` of an argument; None where bounds or strides that a folded view needs are not known."""
    steps = tuple(step for stride in strides if (step := stride.as_int()) is not None)
    sizes: list[int | None] = []
    for place, size in zip(places, shape, strict=True):
        known = size.as_int() if _needs_bounds(place) else None
        if known is None and _needs_bounds(place):
            return None
        sizes.append(known)
    if len(steps) < len(strides) or min(steps, default=1) < 1:
        return None
    elements = constant(1)
    for size in shape:
        elements = elements * size
    return Image(value, reached, argument, places, steps, tuple(sizes), elements, value is not argument)


def _needs_bounds(place: "Linear") -> bool:
    return place.offset != 0 or len(place.dims) > 1 or any(place.coefficients[d] > 1 for d in place.dims)


def folding(image: Image, axes: Sequence[Sequence[int]], sizes: Sequence[Expr], rows: int = -1) -> Windows | None:
    """How a view whose dimensions are these loops (outer to inner) folds an image; None where each has one stride and no axis two loops.

    `sizes` of all loops: constants, but for the outermost of a dimension. `rows`: the dimension whose indices are pixels. Where all are
    of one image its first part tells images all the same: pixels beyond the last one are in none, not further on in this one.
    """
    folded = [not _is_even(image, dims, sizes) or any(_is_windowed(image, d, sizes) for d in dims) for dims in axes]
    walked = {image.axis_of(d) for dims, fold in zip(axes, folded, strict=True) if fold for d in dims}
    # Where no loop walks an axis, the one place that is read may be among the zeros.
    still = {axis for axis, size in enumerate(image.sizes) if size is not None and image.has_zeros}
    if not walked | still:
        return None
    used = sorted(walked | still)
    number = {axis: at for at, axis in enumerate(used)}

    def part(dim: int, is_first: bool) -> Part:
        axis, extent = image.axis_of(dim), sizes[dim].as_int()
        return Part(number[axis], 0 if extent is None and is_first else extent or 0, image.places[axis].coefficients[dim])

    parts: list[tuple[Part, ...]] = [
        tuple(part(d, d == dims[0]) for d in dims) if fold else () for dims, fold in zip(axes, folded, strict=True)
    ]
    places = [_folded_axis(image, axis) for axis in used]
    if rows >= 0 and parts[rows] and places[parts[rows][0].axis].high:
        parts[rows] = (Part(len(places), 0, 1), *parts[rows])
        places.append(FoldedAxis(_whole_pitch(image)))
    return Windows(tuple(places), tuple(parts))


def _whole_pitch(image: Image) -> int:
    """A distance that no two elements of an image have, in whole lines of memory of any element."""
    whole = max(stride * (size or 1) for stride, size in zip(image.strides, image.sizes, strict=True))
    return -(-whole // 128) * 128


def _is_windowed(image: Image, dim: int, sizes: Sequence[Expr]) -> bool:
    """Whether the axis that a loop walks is walked by another one too, or may have zeros around it."""
    axis = image.axis_of(dim)
    together = sum(sizes[d] != constant(1) for d in image.places[axis].dims)
    return axis >= 0 and ((image.has_zeros and image.sizes[axis] is not None) or together > 1)


def _is_even(image: Image, dims: Sequence[int], sizes: Sequence[Expr]) -> bool:
    """Whether loops are walked as one loop with one stride would be."""
    step = [image.strides[image.axis_of(d)] * image.places[image.axis_of(d)].coefficients[d] if image.axis_of(d) >= 0 else 0 for d in dims]
    return all(constant(step[at]) == sizes[dims[at + 1]] * step[at + 1] for at in range(len(dims) - 1))


def _folded_axis(image: Image, axis: int) -> FoldedAxis:
    size, offset = image.sizes[axis], image.places[axis].offset
    low = -offset if isinstance(offset, int) else 0
    return FoldedAxis(image.strides[axis], low, 0 if size is None else low + size)
