"""Tiles in other shapes: reshapes, transposes, and tiles put together and taken apart."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from treadle.language.intrinsics import extents
from treadle.language.reductions import WHERE
from treadle.language.source import Refusal
from treadle.language.values import Tile, parts_of, text_of

if TYPE_CHECKING:
    from treadle.language.compiler import FunctionCompiler


def reshape(c: "FunctionCompiler", x: object, *shape: object) -> Tile:
    """The elements in row-major order in another shape, whose sides are powers of two (other sides stay where only 1 is added)."""
    from treadle.dialects import tile

    source = c.emit.tile(x)
    sides = extents(shape[0] if len(shape) == 1 else tuple(shape))
    if prod(sides) != prod(source.shape):
        raise Refusal(f"{text_of(source)} in the shape {list(sides)}", f"keep the number of its elements, {prod(source.shape)}")
    if sides == source.shape:
        return source
    longer = [axis for axis, side in enumerate(source.shape) if side > 1]
    if [source.shape[axis] for axis in longer] == [side for side in sides if side > 1]:
        places = iter(longer)
        return c.emit.permute(source, [next(places) if side > 1 else -1 for side in sides])
    if any(side & (side - 1) for side in (*source.shape, *sides)):
        raise Refusal(f"{text_of(source)} in the shape {list(sides)}", "let all sides be powers of two: threads hold such parts")
    return Tile(c.emit.insert(tile.ReshapeOp(source.value, sides)), sides, source.dtype)


def ravel(c: "FunctionCompiler", x: object) -> Tile:
    """The elements in row-major order along one axis."""
    return reshape(c, x, prod(c.emit.tile(x).shape))


def permute(c: "FunctionCompiler", x: object, *order: object) -> Tile:
    """The tile with its axes in another order."""
    tile = c.emit.tile(x)
    axes = parts_of(order[0]) if len(order) == 1 else order
    rank = len(tile.shape)
    if sorted(axes, key=repr) != sorted(range(rank), key=repr):
        raise Refusal(f"{list(axes)} is no order of the axes of {text_of(tile)}", f"name each of 0 to {rank - 1} once")
    return c.emit.permute(tile, [axis for axis in axes if isinstance(axis, int)])


def trans(c: "FunctionCompiler", x: object, *order: object) -> Tile:
    """The tile with its axes in another order; the last two exchanged where none is given."""
    rank = len(c.emit.tile(x).shape)
    if not order and rank < 2:
        raise Refusal(f"a transpose of {text_of(c.emit.tile(x))}", "it has no two axes to exchange: x[:, None] adds one")
    return permute(c, x, *(order or (*range(rank - 2), rank - 1, rank - 2)))


def expand_dims(c: "FunctionCompiler", x: object, axis: object) -> Tile:
    """The tile with a new axis of extent 1, or several."""
    tile = c.emit.tile(x)
    rank = len(tile.shape) + len(parts_of(axis))
    new = [at + rank if isinstance(at, int) and at < 0 else at for at in parts_of(axis)]
    if not all(isinstance(at, int) and 0 <= at < rank for at in new) or len(set(new)) < len(new):
        raise Refusal(f"a new axis {text_of(axis)} of {text_of(tile)}", f"name places among the {rank} axes of the result")
    places = iter(range(len(tile.shape)))
    return c.emit.permute(tile, [-1 if at in new else next(places) for at in range(rank)])


def broadcast(c: "FunctionCompiler", x: object, y: object) -> tuple[Tile, Tile]:
    """Two tiles in the shape that they have together."""
    from treadle.language.values import broadcast_shape

    left, right = c.emit.tile(x), c.emit.tile(y)
    shape = broadcast_shape(left.shape, right.shape)
    if shape is None:
        raise Refusal(f"{text_of(left)} and {text_of(right)} have no common shape", "dimensions must be equal or 1")
    return c.emit.broadcast(left, shape), c.emit.broadcast(right, shape)


def join(c: "FunctionCompiler", a: object, b: object) -> Tile:
    """Two tiles along a new last axis of extent 2."""
    left, right = broadcast(c, a, b)
    if left.dtype != right.dtype:
        raise Refusal(f"{text_of(left)} and {text_of(right)} joined", "convert one of them: x.to(y.dtype)")
    ends = [c.emit.permute(side, [*range(len(side.shape)), -1]) for side in (left, right)]
    return c.emit.where(c.emit.compare("==", c.emit.arange(2), 0), *ends)


def split(c: "FunctionCompiler", x: object) -> tuple[Tile, Tile]:
    """The two tiles that lie along the last axis, whose extent is 2."""
    source = c.emit.tile(x)
    if not source.shape or source.shape[-1] != 2:
        raise Refusal(f"{text_of(source)} split in two", "its last axis has extent 2: reshape it before")
    first, last = (_taken(c, source, combine) for combine in (_first, _last))
    return first, last


def cat(c: "FunctionCompiler", a: object, b: object, dim: object = 0) -> Tile:
    """Two tiles of one shape, one behind the other along an axis."""
    whole = join(c, a, b)
    rank = len(whole.shape) - 1
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise Refusal(f"an axis {text_of(dim)} of {text_of(c.emit.tile(a))}", f"axes are 0 to {rank - 1}")
    at = dim % rank
    order = [*range(at), rank, *range(at, rank)]
    sides = list(whole.shape[:rank])
    sides[at] *= 2
    return reshape(c, c.emit.permute(whole, order), tuple(sides))


def _taken(c: "FunctionCompiler", x: Tile, combine: Any) -> Tile:
    """One of the two elements along the last axis: a reduction that carries places along, and chooses by them."""
    from treadle.dialects import tile

    places = c.emit.broadcast(c.emit.arange(2), x.shape)
    op = tile.ReduceOp([x.value, places.value], len(x.shape) - 1, c.combine(combine, (x.dtype, places.dtype)))
    c.emit.add(op)
    kept: Sequence[int] = range(len(x.shape) - 1)
    return c.emit.permute(Tile(op.results[0], (*x.shape[:-1], 1), x.dtype), kept)


def _first(a: Any, i: Any, b: Any, j: Any) -> Any:
    return WHERE(i < j, a, b), WHERE(i < j, i, j)


def _last(a: Any, i: Any, b: Any, j: Any) -> Any:
    return WHERE(i > j, a, b), WHERE(i > j, i, j)
