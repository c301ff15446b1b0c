"""Which part of a view an operation on a tile reaches."""

from collections.abc import Sequence

from treadle.dialects.effects import Slice
from treadle.ir.core import SSAValue, VerifyException


def verify_tile_dims(dims: tuple[int, ...], tile_shape: Sequence[int], rank: int) -> None:
    """Raises `VerifyException` where `dims` do not name a dimension of the view for each of the tile's."""
    if len(dims) != len(tile_shape):
        raise VerifyException(f"dims {list(dims)} must name one dimension of the view for each of the tile's {len(tile_shape)}")
    if len(set(dims)) != len(dims) or any(not 0 <= d < rank for d in dims):
        raise VerifyException(f"dims {list(dims)} must be distinct dimensions below {rank}")


def view_slice(offsets: Sequence[SSAValue], dims: Sequence[int], shape: Sequence[int]) -> Slice:
    """The box of a view that a tile of `shape` covers, whose dimensions are `dims` of the view's."""
    extents = [1] * len(offsets)
    for dim, extent in zip(dims, shape, strict=True):
        extents[dim] = extent
    return Slice(tuple(offsets), tuple(extents))
