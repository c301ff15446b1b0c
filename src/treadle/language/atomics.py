"""Atomic updates of arrays: several workgroups may change one element at the same time."""

from typing import TYPE_CHECKING

from treadle.language import dtypes
from treadle.language.intrinsics import Intrinsic
from treadle.language.source import Refusal
from treadle.language.values import Block, Tile, broadcast_shape, text_of

if TYPE_CHECKING:
    from treadle.language.compiler import FunctionCompiler
    from treadle.language.emitter import Emitter

_ORDERED = {
    "atomic_cas": "compare and swap",
    "atomic_xchg": "exchange",
}


def _places(emit: "Emitter", block: Block) -> tuple[Tile, ...]:
    """Index tiles, one an axis of the array, of the block's shape."""
    if block.tiles:
        return block.tiles
    shape = block.shape or (1,)
    found: list[Tile] = []
    for axis, start in enumerate(block.starts):
        place = emit.tile(start)
        if axis in block.axes:
            along = block.axes.index(axis)
            numbers = emit.arange(shape[along])
            order = [0 if at == along else -1 for at in range(len(shape))]
            place = emit.tile(emit.binary("+", emit.permute(numbers, order), place))
        found.append(emit.broadcast(emit.cast(place, dtypes.int32), shape))
    return tuple(found)


def update(name: str, kind: str, text: str) -> Intrinsic:
    """The function of the language that updates by one kind of combination."""

    def build(c: "FunctionCompiler", block: object, value: object, mask: object = None, sem: object = None, scope: object = None) -> None:
        from treadle.dialects import tile

        if not isinstance(block, Block):
            raise Refusal(f"{text_of(block)} is no block of an array", f"write tl.{name}(out[m : m + 64], value), or out[places]")
        if sem not in (None, "relaxed", "acq_rel") or scope not in (None, "gpu"):
            raise Refusal(f"sem={text_of(sem)}, scope={text_of(scope)}", "updates are relaxed, and in one step for the whole device")
        emit, array = c.emit, block.array
        if array.dtype.bits < 16 or (array.dtype.kind == "int" and array.dtype.bits < 32):
            raise Refusal(f"atomic updates of {array.dtype}", "update f16, bf16, f32, f64, int32 or int64")
        if array.dtype.kind == "float" and kind in ("and", "or", "xor"):
            raise Refusal(f"tl.{name} of {array.dtype}", "bits are combined in int32 and int64")
        places = _places(emit, block)
        given = emit.cast(emit.tile(c.loaded(value), array.dtype), array.dtype)
        shape = places[0].shape
        if broadcast_shape(given.shape, shape) != shape:
            raise Refusal(f"{text_of(given)} updates a block of {list(block.shape or shape)}", "give both one shape")
        if mask is not None:
            holds = emit.broadcast(emit.tile(c.loaded(mask)), shape)
            places = (emit.where(holds, places[0], emit.full((), -1, dtypes.int32)), *places[1:])
        c.call.written.add(array.number)
        whole = emit.broadcast(given, shape)
        emit.add(tile.AtomicOp(kind, whole.value, array.view, [place.value for place in places]))

    build.__name__, build.__doc__ = name, text
    return Intrinsic(build, takes_blocks=True)


def ordered(name: str) -> Intrinsic:
    """A function that other languages have, and that has no place here: what it leaves depends on who comes first."""

    def build(c: "FunctionCompiler", *arguments: object, **named: object) -> None:
        hint = "use atomic_add, _max, _min, _and, _or or _xor, which come to the same in every order, or a second kernel behind this one"
        raise Refusal(f"tl.{name}: what a {_ORDERED[name]} leaves depends on which workgroup comes first", hint)

    build.__name__, build.__doc__ = name, f"Refused: what a {_ORDERED[name]} leaves depends on which workgroup comes first."
    return Intrinsic(build, takes_blocks=True)


_RULES = "Nothing is done outside of the array, or where `mask` is false. It returns nothing: what was there depends on the order."
UPDATES = (
    update("atomic_add", "add", f"Add a tile to a block of an array, or to gathered elements, in one step each. {_RULES}"),
    update("atomic_max", "max", f"Raise elements to those of a tile where these are larger, in one step each. {_RULES}"),
    update("atomic_min", "min", f"Lower elements to those of a tile where these are smaller, in one step each. {_RULES}"),
    update("atomic_and", "and", f"Keep the bits of integers that a tile has, in one step each. {_RULES}"),
    update("atomic_or", "or", f"Set the bits of integers that a tile has, in one step each. {_RULES}"),
    update("atomic_xor", "xor", f"Turn the bits of integers that a tile has, in one step each. {_RULES}"),
    *(ordered(name) for name in _ORDERED),
)
