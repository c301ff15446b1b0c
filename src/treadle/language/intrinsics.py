"""The functions of the language: `treadle.language.load`, `dot`, `sum` and so on. Names follow Triton's where the meaning is the same.

Outside of a kernel they raise an error, but for those that compute on plain numbers there too.
"""

import builtins
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from treadle.language import dtypes
from treadle.language.dtypes import DType
from treadle.language.source import Refusal
from treadle.language.values import VALUES, Block, Index, Tile, parts_of, text_of

if TYPE_CHECKING:
    from treadle.ir.core import SSAValue
    from treadle.language.compiler import FunctionCompiler
    from treadle.language.emitter import Emitter, Number


@dataclass
class Call:
    """What a kernel's body asks of its surroundings: `grid`: the number of workgroups along each axis; arrays that it reads and writes."""

    grid: "Sequence[SSAValue | int]" = ()
    read: set[int] = field(default_factory=set[int])
    written: set[int] = field(default_factory=set[int])


class Intrinsic:
    """A function of the language. `build(compiler, ..)` compiles a call; blocks of arrays arrive as tiles unless `takes_blocks`."""

    def __init__(self, build: Callable[..., Any], *, takes_blocks: bool = False) -> None:
        self.build, self.takes_blocks = build, takes_blocks
        self.name = build.__name__.rstrip("_")
        self.__doc__ = build.__doc__
        parameters = list(inspect.signature(build).parameters.values())[1:]
        self.signature = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Only kernels call it."""
        raise TypeError(f"tl.{self.name} is for kernels: call it in a function that @treadle.kernel compiles")

    def __repr__(self) -> str:
        return f"tl.{self.name}"


@dataclass(frozen=True)
class Bounds:
    """A loop of the kernel, with the body `unroll` times in each iteration. `is_cut`: into stages, by the compiler."""

    start: Index | int
    stop: Index | int
    step: Index | int
    groups: int | None = None
    gap: int | None = None
    unroll: int = 1
    is_cut: bool = False


_INT_MAX = 2**31 - 1


def extents(shape: object) -> tuple[int, ...]:
    """The shape of a tile. Raises Refusal for anything else."""
    parts = parts_of(shape)
    if not all(isinstance(part, int) and part > 0 for part in parts):
        raise Refusal(f"the shape {text_of(shape)} of a tile", "shapes of tiles are positive integers, known when the kernel is compiled")
    return tuple(part for part in parts if isinstance(part, int))


def element_type(value: object) -> DType:
    """An element type. Raises Refusal for anything else."""
    if not isinstance(value, DType):
        raise Refusal(f"{text_of(value)} is no element type", "use tl.float32, tl.float16, tl.bfloat16, tl.int32 or x.dtype")
    return value


# --- the grid and loops


def program_id(c: "FunctionCompiler", axis: int = 0) -> Index:
    """The number of this workgroup along an axis of the grid."""
    from treadle.dialects import tile

    if axis not in (0, 1, 2):
        raise Refusal(f"the grid's axis {text_of(axis)}", "axes are 0, 1 and 2")
    return c.emit.index_of(c.emit.insert(tile.ProgramIdOp(axis)))


def num_programs(c: "FunctionCompiler", axis: int = 0) -> Index | int:
    """How many workgroups the grid has along an axis."""
    if axis not in (0, 1, 2):
        raise Refusal(f"the grid's axis {text_of(axis)}", "axes are 0, 1 and 2")
    extent = c.call.grid[axis]
    return extent if isinstance(extent, int) else c.emit.index_of(extent)


def range_(
    c: "FunctionCompiler",
    start: object,
    stop: object = None,
    step: object = 1,
    groups: int | None = None,
    gap: int | None = None,
    unroll: int = 1,
    stages: str | None = None,
) -> Bounds:
    """The numbers of a loop that the kernel runs. In a loop with stages, `groups` groups of warps (2) run `gap` stages (1) apart; with
    `stages="auto"` the compiler cuts the loop into stages, and chooses both. `unroll`: steps of an iteration; those that make no whole
    iteration are a loop behind.
    """
    for name, asked in (("groups", groups), ("gap", gap), ("unroll", unroll)):
        if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool)):
            raise Refusal(f"{name} = {text_of(asked)}", "give an integer, known when the kernel is compiled")
    if stages not in (None, "auto"):
        raise Refusal(f"stages = {text_of(stages)}", 'write stages="auto", or cut the loop by tl.warp_pipeline_stage')
    if stages is not None and (groups is not None or gap is not None):
        raise Refusal("groups or a gap for stages that the compiler chooses", "leave them out, or cut the loop by tl.warp_pipeline_stage")
    if unroll < 1:
        raise Refusal(f"unroll = {unroll}", "give the number of steps of an iteration, 1 or more")
    if stop is None:
        start, stop = 0, start
    if isinstance(step, int) and step < 1:
        raise Refusal(f"a loop with the step {step}", "count upwards, and compute the other way round inside")
    first, end, by = (bound if isinstance(bound, int) else c.emit.index(bound) for bound in (start, stop, step))
    return Bounds(first, end, by, groups, gap, unroll, is_cut=stages is not None)


def unrolled(emit: "Emitter", over: Bounds) -> tuple[Bounds, Bounds]:
    """A loop with several steps in each iteration, and one of what is left."""

    def computed(symbol: str, a: Index | int, b: Index | int) -> Index:
        return cast(Index, emit.binary(symbol, a, b))

    start, stop, step = over.start, over.stop, over.step
    each = step * over.unroll if isinstance(step, int) else computed("*", step, over.unroll)
    middle: Index | int
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        middle = start + len(builtins.range(start, stop, step)) // over.unroll * step * over.unroll
    else:
        span = stop if start == 0 else computed("maximum", computed("-", stop, start), 0)
        middle = computed("*", computed("//", span, each), each)
        middle = middle if start == 0 else computed("+", start, middle)
    return replace(over, stop=middle, step=each), replace(over, start=middle, unroll=1)


def static_range(c: "FunctionCompiler", start: int, stop: int | None = None, step: int = 1) -> tuple[int, ...]:
    """The numbers of a loop that is unrolled."""
    bounds = (start, stop, step)
    if any(bound is not None and not isinstance(bound, int) for bound in bounds):
        raise Refusal("a bound that only the running kernel knows", "use range for a loop that the kernel runs")
    return tuple(builtins.range(start) if stop is None else builtins.range(start, stop, step))


def cdiv(c: "FunctionCompiler", a: object, b: object) -> object:
    """A / b, rounded up."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return c.emit.binary("//", c.emit.binary("-", c.emit.binary("+", a, b), 1), b)


# --- memory


def load(c: "FunctionCompiler", block: object, mask: object = None, other: "Number" = 0, streaming: object = False) -> Tile:
    """The tile of a block of an array, with `other` for what lies outside of the array, and where `mask` is false. `x[m : m + 64]` alone
    means zeros there. `streaming`, a constant: nobody reads these elements again, so that caches need not keep them; results do not depend
    on it.
    """
    from treadle.language import blocks

    if not isinstance(block, Block):
        raise Refusal(f"{text_of(block)} is no block of an array", "write tl.load(x[m : m + 64, k : k + 64], other=..)")
    if not isinstance(streaming, bool):
        raise Refusal(f"streaming={text_of(streaming)}", "give True or False, or a tl.constexpr that is one of them")
    if mask is None:
        return blocks.load(c.emit, c.call, block, other, is_streaming=streaming)
    found = blocks.load(c.emit, c.call, block, 0 if block.tiles else other, is_streaming=streaming)
    return c.emit.where(c.loaded(mask), found, c.emit.full((), other, found.dtype))


def store(c: "FunctionCompiler", block: object, value: object, mask: object = None) -> None:
    """Write a tile to a block of an array, as `c[m : m + 64] = value` does. It ends with the array; there is no mask."""
    from treadle.language import blocks

    if mask is not None:
        hint = "blocks end with their array, and c[:rows] is an array that ends earlier; add to single elements with tl.atomic_add"
        raise Refusal("a store with a mask", hint)

    if not isinstance(block, Block):
        raise Refusal(f"{text_of(block)} is no block of an array", "write tl.store(c[m : m + 64, n : n + 64], value)")
    blocks.store(c.emit, c.call, block, c.loaded(value))


# --- tiles


def full(c: "FunctionCompiler", shape: object, value: object, dtype: object) -> Tile:
    """A tile of one value."""
    kind, sides = element_type(dtype), extents(shape)
    if isinstance(value, bool | int | float):
        return c.emit.full(sides, value, kind)
    return c.emit.broadcast(c.emit.cast(c.emit.tile(value), kind), sides)


def zeros(c: "FunctionCompiler", shape: object, dtype: object = dtypes.float32) -> Tile:
    """A tile of zeros."""
    return c.emit.full(extents(shape), 0, element_type(dtype))


def arange(c: "FunctionCompiler", start: object, stop: object = None) -> Tile:
    """start, start + 1, .. as a tile of int32; the number of elements is known when the kernel is compiled."""
    if stop is None:
        start, stop = 0, start
    if not isinstance(start, int) or not isinstance(stop, int) or stop <= start:
        raise Refusal("the ends of an arange are not known when the kernel is compiled", "write first + tl.arange(0, 64)")
    tile = c.emit.arange(stop - start)
    return c.emit.tile(c.emit.binary("+", tile, start)) if start else tile


def dot(c: "FunctionCompiler", a: Tile, b: Tile, acc: Tile | None = None) -> Tile:
    """The matrix product of two tiles, added to `acc`: [m, k] times [k, n].

    Floats are summed in float32 (float64 in theirs), integers in int32.
    """
    from treadle.dialects import tile

    if not isinstance(a, Tile) or not isinstance(b, Tile) or len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise Refusal(f"a product of {text_of(a)} and {text_of(b)}", "multiply [m, k] by [k, n]; .T transposes")
    sums = a.dtype if a.dtype == dtypes.float64 else dtypes.float32 if a.dtype.kind == "float" else dtypes.int32
    shape = (a.shape[0], b.shape[1])
    start = c.emit.full(shape, 0, sums) if acc is None else acc
    if not isinstance(start, Tile) or (start.shape, start.dtype) != (shape, sums):
        raise Refusal(f"the accumulator is {text_of(start)}", f"this product is added to a tile of {sums}{list(shape)}")
    if a.dtype != b.dtype and not (a.dtype.bits == b.dtype.bits == 8 and a.dtype.kind == b.dtype.kind):
        raise Refusal(f"a product of {a.dtype} and {b.dtype}", "convert one operand: a.to(b.dtype)")
    return Tile(c.emit.insert(tile.ContractOp(a.value, b.value, start.value)), shape, sums)


def to(c: "FunctionCompiler", x: object, dtype: object) -> Tile:
    """The tile in another element type."""
    return c.emit.cast(c.emit.tile(x), element_type(dtype))


def broadcast_to(c: "FunctionCompiler", x: object, shape: object) -> Tile:
    """The tile, its axes of extent 1 repeated."""
    return c.emit.broadcast(c.emit.tile(x), extents(shape))


def index(c: "FunctionCompiler", x: object) -> Index:
    """An integer from memory as an index, the same for the whole workgroup: `first = tl.index(offsets[group])`. It is not negative."""
    return c.emit.index(c.loaded(x))


def clamp(c: "FunctionCompiler", x: object, low: object, high: object) -> object:
    """Elements brought between two bounds; NaN stays."""
    return minimum(c, maximum(c, x, low), high)


def fma(c: "FunctionCompiler", x: object, y: object, z: object) -> Tile:
    """X * y + z with one rounding, elementwise."""
    return c.emit.fused(x, y, z)


def pow_(c: "FunctionCompiler", x: object, y: object) -> object:
    """X to the power of y, elementwise."""
    return c.emit.binary("**", x, y)


def umulhi(c: "FunctionCompiler", x: object, y: object) -> Tile:
    """The upper 32 bits of the product of unsigned 32-bit integers, elementwise."""
    wide = [c.emit.unsigned_cast(c.emit.cast(c.emit.tile(side), dtypes.int32), dtypes.int64) for side in (x, y)]
    return c.emit.cast(c.emit.shift_right(c.emit.tile(c.emit.binary("*", *wide)), 32), dtypes.int32)


def swizzle2d(c: "FunctionCompiler", i: object, j: object, size_i: object, size_j: object, size_g: object) -> tuple[object, object]:
    """Places of a grid of size_i by size_j, gone through row by row, so that they are gone through in bands of size_g rows, column by
    column: neighbours share rows and columns, which stay in the cache.
    """
    do = c.emit.binary
    number = do("+", do("*", i, size_j), j)
    per_band = do("*", size_g, size_j)
    first = do("*", do("//", number, per_band), size_g)
    rows = do("minimum", do("-", size_i, first), size_g)
    within = do("%", number, per_band)
    return do("+", first, do("%", within, rows)), do("//", within, rows)


def where(c: "FunctionCompiler", condition: object, a: object, b: object) -> Tile:
    """Elements of `a` where the condition holds, else of `b`."""
    return c.emit.where(condition, a, b)


def minimum(c: "FunctionCompiler", a: object, b: object) -> object:
    """The smaller of two, elementwise; NaN where one is NaN."""
    return c.emit.binary("minimum", a, b) if isinstance(a, VALUES) or isinstance(b, VALUES) else builtins.min(a, b)  # pyright: ignore


def maximum(c: "FunctionCompiler", a: object, b: object) -> object:
    """The larger of two, elementwise; NaN where one is NaN."""
    return c.emit.binary("maximum", a, b) if isinstance(a, VALUES) or isinstance(b, VALUES) else builtins.max(a, b)  # pyright: ignore


def abs_(c: "FunctionCompiler", x: Any) -> Any:
    """The absolute value, elementwise."""
    return c.emit.absolute(x) if isinstance(x, VALUES) else builtins.abs(x)  # pyright: ignore[reportArgumentType]


def function(name: str, text: str) -> Intrinsic:
    """A function of `math` that works on tiles, and on numbers."""

    def build(c: "FunctionCompiler", x: object) -> object:
        if isinstance(x, VALUES):
            return c.emit.unary(name, x)
        return getattr(math, name)(x) if hasattr(math, name) else c.emit.unary(name, x)

    build.__name__, build.__doc__ = name, f"{text}, elementwise."
    return Intrinsic(build)


def sigmoid(c: "FunctionCompiler", x: object) -> object:
    """1 / (1 + exp(-x)), elementwise."""
    return c.emit.binary("/", 1.0, c.emit.binary("+", 1.0, c.emit.unary("exp", c.emit.negate(c.emit.tile(x)))))
