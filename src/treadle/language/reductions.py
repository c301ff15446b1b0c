"""Reductions of tiles along an axis: sums, extrema and where they stand, and any function of two elements."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from treadle.language import dtypes
from treadle.language.intrinsics import Intrinsic, maximum, minimum, where
from treadle.language.source import Refusal
from treadle.language.values import Tile, parts_of, text_of

if TYPE_CHECKING:
    from treadle.language.compiler import FunctionCompiler

MAXIMUM, MINIMUM, WHERE = Intrinsic(maximum), Intrinsic(minimum), Intrinsic(where)


def _axis(value: Tile, axis: object) -> int:
    if not isinstance(axis, int) or not -len(value.shape) <= axis < len(value.shape):
        raise Refusal(f"{text_of(value)} has no axis {axis}", f"axes of this tile are 0 to {len(value.shape) - 1}")
    return axis % len(value.shape)


def _reduced(
    c: "FunctionCompiler", inputs: Sequence[Tile], axis: object, combine: Callable[..., Any], *, keep_dims: bool
) -> tuple[Tile, ...]:
    from treadle.dialects import tile

    first = inputs[0]
    if axis is None:
        if len(first.shape) == 1:
            axis = 0
        else:
            for last in reversed(range(len(first.shape))):
                inputs = _reduced(c, inputs, last, combine, keep_dims=keep_dims)
            return tuple(inputs)
    along = _axis(first, axis)
    if any(x.shape != first.shape for x in inputs):
        raise Refusal(f"tiles of {[list(x.shape) for x in inputs]} reduced together", "reduce tiles of one shape")
    op = tile.ReduceOp([x.value for x in inputs], along, c.combine(combine, [x.dtype for x in inputs]))
    c.emit.add(op)
    shape = (*first.shape[:along], 1, *first.shape[along + 1 :])
    results = [Tile(value, shape, x.dtype) for value, x in zip(op.results, inputs, strict=True)]
    kept = [other for other in range(len(shape)) if other != along]
    return tuple(x if keep_dims else c.emit.permute(x, kept) for x in results)


def reduce(c: "FunctionCompiler", x: object, axis: object, combine_fn: Callable[..., Any], keep_dims: bool = False) -> object:
    """Elements along an axis combined by a Python function of a left and a right value, associative and commutative.

    `x` may be a tuple of tiles of one shape, reduced together: the function takes the left values, then the
    right ones, and returns a tuple.
    """
    inputs = [c.emit.tile(c.loaded(part)) for part in parts_of(x)]
    results = _reduced(c, inputs, axis, combine_fn, keep_dims=keep_dims)
    return results if isinstance(x, tuple) else results[0]


def sum_of(a: Any, b: Any) -> Any:
    """The combiner of sums."""
    return a + b


def product_of(a: Any, b: Any) -> Any:
    """The combiner of products."""
    return a * b


def maximum_of(a: Any, b: Any) -> Any:
    """The combiner of maxima."""
    return MAXIMUM(a, b)


def minimum_of(a: Any, b: Any) -> Any:
    """The combiner of minima."""
    return MINIMUM(a, b)


def first_maximum(a: Any, i: Any, b: Any, j: Any) -> Any:
    """The larger value with its place; of equal ones the first, of NaNs too, which go before all numbers."""
    takes_left = (a > b) | ((a == b) & (i < j)) | (a != a) & ((b == b) | (i < j))
    return WHERE(takes_left, a, b), WHERE(takes_left, i, j)


def first_minimum(a: Any, i: Any, b: Any, j: Any) -> Any:
    """The smaller value with its place; of equal ones the first, of NaNs too, which go before all numbers."""
    takes_left = (a < b) | ((a == b) & (i < j)) | (a != a) & ((b == b) | (i < j))
    return WHERE(takes_left, a, b), WHERE(takes_left, i, j)


def single(name: str, text: str, combine: Callable[..., Any]) -> Intrinsic:
    """The reduction of one tile by a combiner."""

    def build(c: "FunctionCompiler", x: object, axis: object = None, keep_dims: bool = False) -> Tile:
        source = c.emit.tile(x)
        if source.dtype.kind == "bool" or (source.dtype.kind == "int" and source.dtype.bits < 32):
            source = c.emit.cast(source, dtypes.int32)
        wide = c.emit.cast(source, dtypes.float32) if source.dtype.kind == "float" and source.dtype.bits < 32 else source
        (result,) = _reduced(c, (wide,), axis, combine, keep_dims=keep_dims)
        return c.emit.cast(result, source.dtype)

    build.__name__, build.__doc__ = name, text
    return Intrinsic(build)


def place(name: str, text: str, combine: Callable[..., Any]) -> Intrinsic:
    """Where the combiner of values and places ends along an axis."""

    def build(c: "FunctionCompiler", x: object, axis: int, keep_dims: bool = False) -> Tile:
        source = c.emit.tile(x)
        along = _axis(source, axis)
        order = [0 if other == along else -1 for other in range(len(source.shape))]
        places = c.emit.broadcast(c.emit.permute(c.emit.arange(source.shape[along]), order), source.shape)
        return _reduced(c, (source, places), axis, combine, keep_dims=keep_dims)[1]

    build.__name__, build.__doc__ = name, text
    return Intrinsic(build)
