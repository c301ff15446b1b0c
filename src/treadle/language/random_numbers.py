"""Random numbers by counter: Philox-4x32 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011), which needs no state.

Numbers depend on the seed and on the offset alone, so that a kernel may compute them again instead of storing them.
"""

import math
from typing import TYPE_CHECKING, Any

from treadle.language import dtypes
from treadle.language.source import Refusal
from treadle.language.values import Index, Tile, text_of

if TYPE_CHECKING:
    from treadle.language.compiler import FunctionCompiler
    from treadle.language.emitter import Emitter

_ROUNDS = 10
_KEYS = (0x9E3779B9, 0xBB67AE85)
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_WORD = 1 << 32


def _signed(word: int) -> int:
    return word - _WORD if word >= _WORD // 2 else word


def _unsigned_product(emit: "Emitter", a: Tile, factor: int) -> tuple[Tile, Tile]:
    """The upper and the lower words of the product of unsigned words."""
    wide = emit.unsigned_cast(a, dtypes.int64)
    product = emit.tile(emit.binary("*", wide, factor))
    return emit.cast(emit.shift_right(product, 32), dtypes.int32), emit.cast(product, dtypes.int32)


def _key(c: "FunctionCompiler", seed: object) -> tuple[object, object]:
    """The two words of a seed."""
    if isinstance(seed, int) and not isinstance(seed, bool):
        return seed % _WORD, seed // _WORD % _WORD
    if isinstance(seed, Index):
        return c.emit.tile(seed), 0
    if isinstance(seed, Tile) and seed.shape == () and seed.dtype.kind == "int":
        if seed.dtype.bits == 64:
            return c.emit.cast(seed, dtypes.int32), c.emit.cast(c.emit.shift_right(seed, 32), dtypes.int32)
        return c.emit.cast(seed, dtypes.int32), 0
    raise Refusal(f"the seed {text_of(seed)}", "a seed is an integer, the same for the whole workgroup")


def philox(c: "FunctionCompiler", seed: object, offset: object, n_rounds: int = _ROUNDS) -> tuple[Tile, Tile, Tile, Tile]:
    """Four tiles of random words (int32) for a seed and a tile of offsets, by Philox-4x32."""
    emit = c.emit
    place = emit.tile(offset)
    if place.dtype.kind != "int":
        raise Refusal(f"random numbers at {text_of(place)}", "offsets are integers: start + tl.arange(0, 64)")
    low = emit.cast(place, dtypes.int32)
    high = emit.cast(emit.shift_right(place, 32), dtypes.int32) if place.dtype.bits == 64 else emit.full(place.shape, 0, dtypes.int32)
    zero = emit.full(place.shape, 0, dtypes.int32)
    words = [low, high, zero, zero]
    keys: list[Any] = [emit.full((), _signed(key), dtypes.int32) if isinstance(key, int) else key for key in _key(c, seed)]
    for _ in range(n_rounds):
        up0, down0 = _unsigned_product(emit, words[0], _FACTORS[0])
        up2, down2 = _unsigned_product(emit, words[2], _FACTORS[1])
        first = emit.binary("^", emit.binary("^", up2, words[1]), keys[0])
        third = emit.binary("^", emit.binary("^", up0, words[3]), keys[1])
        words = [emit.tile(first), down2, emit.tile(third), down0]
        keys = [emit.binary("+", key, _signed(step)) for key, step in zip(keys, _KEYS, strict=True)]
    return words[0], words[1], words[2], words[3]


def _uniform(emit: "Emitter", word: Tile) -> Tile:
    """A word as a number of [0, 1): its upper 24 bits, which float32 holds exactly."""
    upper = emit.shift_right(word, 8)
    return emit.tile(emit.binary("*", emit.cast(upper, dtypes.float32), 2.0**-24))


def randint4x(c: "FunctionCompiler", seed: object, offset: object, n_rounds: int = _ROUNDS) -> tuple[Tile, Tile, Tile, Tile]:
    """Four tiles of random int32, at a quarter of the cost each."""
    return philox(c, seed, offset, n_rounds)


def randint(c: "FunctionCompiler", seed: object, offset: object, n_rounds: int = _ROUNDS) -> Tile:
    """A tile of random int32, one for each offset."""
    return philox(c, seed, offset, n_rounds)[0]


def rand4x(c: "FunctionCompiler", seed: object, offset: object, n_rounds: int = _ROUNDS) -> tuple[Tile, ...]:
    """Four tiles of float32, uniform in [0, 1), at a quarter of the cost each."""
    return tuple(_uniform(c.emit, word) for word in philox(c, seed, offset, n_rounds))


def rand(c: "FunctionCompiler", seed: object, offset: object, n_rounds: int = _ROUNDS) -> Tile:
    """A tile of float32, uniform in [0, 1), one for each offset."""
    return _uniform(c.emit, philox(c, seed, offset, n_rounds)[0])


def randn(c: "FunctionCompiler", seed: object, offset: object, n_rounds: int = _ROUNDS) -> Tile:
    """A tile of float32 from the standard normal distribution, one for each offset (Box and Muller, 1958)."""
    emit = c.emit
    first, second = (_uniform(emit, word) for word in philox(c, seed, offset, n_rounds)[:2])
    positive = emit.binary("+", first, 2.0**-25)  # in (0, 1): its logarithm is finite
    radius = emit.unary("sqrt", emit.binary("*", emit.unary("log", positive), -2.0))
    return emit.tile(emit.binary("*", radius, emit.unary("cos", emit.binary("*", second, 2.0 * math.pi))))
