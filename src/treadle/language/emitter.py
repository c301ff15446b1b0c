"""Operations on the values of a kernel: what Python's operators and the functions of the language become at tile level."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from treadle.dialects import tile
from treadle.errors import SourceLocation
from treadle.ir.core import Attribute, Block, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.locations import make_location
from treadle.language import dtypes
from treadle.language.dtypes import DType
from treadle.language.source import Refusal
from treadle.language.values import Condition, Index, Tile, broadcast_shape, text_of
from treadle.layout.tile_layout import NEW_DIM

INDEX = builtin.IndexType()
Number = bool | int | float

_INDEX_OPS: dict[str, type[Operation]] = {
    "+": arith.AddiOp,
    "-": arith.SubiOp,
    "*": arith.MuliOp,
    "//": arith.DivUIOp,
    "%": arith.RemUIOp,
    "minimum": arith.MinSIOp,
    "maximum": arith.MaxSIOp,
}
_INT_OPS: dict[str, type[Operation]] = {
    "+": arith.AddiOp,
    "-": arith.SubiOp,
    "*": arith.MuliOp,
    "//": arith.FloorDivSIOp,
    "%": arith.RemSIOp,
    "&": arith.AndIOp,
    "|": arith.OrIOp,
    "^": arith.XOrIOp,
    "<<": arith.ShLIOp,
    ">>": arith.ShRSIOp,
    "minimum": arith.MinSIOp,
    "maximum": arith.MaxSIOp,
}
_FLOAT_OPS: dict[str, type[Operation]] = {
    "+": arith.AddfOp,
    "-": arith.SubfOp,
    "*": arith.MulfOp,
    "/": arith.DivfOp,
    "%": arith.RemfOp,
    "**": math.PowFOp,
    "minimum": arith.MinimumfOp,
    "maximum": arith.MaximumfOp,
}
_COMPARISONS = {
    "==": ("eq", "oeq"),
    "!=": ("ne", "une"),
    "<": ("slt", "olt"),
    "<=": ("sle", "ole"),
    ">": ("sgt", "ogt"),
    ">=": ("sge", "oge"),
}
_MATH: dict[str, type[Operation]] = {
    name: getattr(math, f"{op}Op")
    for name, op in {
        "expm1": "ExpM1",
        "log1p": "Log1p",
        "log10": "Log10",
        "tan": "Tan",
        "asin": "Asin",
        "acos": "Acos",
        "atan": "Atan",
        "sinh": "Sinh",
        "cosh": "Cosh",
        "cbrt": "Cbrt",
        "round": "Round",
        "rint": "RoundEven",
        "trunc": "Trunc",
        "exp": "Exp",
        "exp2": "Exp2",
        "log": "Log",
        "log2": "Log2",
        "sqrt": "Sqrt",
        "rsqrt": "Rsqrt",
        "sin": "Sin",
        "cos": "Cos",
        "tanh": "Tanh",
        "erf": "Erf",
        "floor": "Floor",
        "ceil": "Ceil",
    }.items()
}


class Emitter:
    """Appends operations at a movable place; each gets the location of the line that is being compiled.

    `scalars`: within the region of a reduction, whose values are elements: tiles without dimensions are scalars there.
    """

    def __init__(self, block: Block, *, scalars: bool = False) -> None:
        self._builder = Builder(InsertPoint.at_end(block))
        self._first, self._scalars = block, scalars
        self.location: SourceLocation | None = None

    def insert(self, op: Operation) -> SSAValue:
        """Append an operation of one result and return that."""
        self.add(op)
        return op.results[0]

    def add(self, op: Operation) -> None:
        """Append an operation."""
        if self.location is not None:
            op.location = make_location(self.location)
        self._builder.insert(op)

    @property
    def is_outermost(self) -> bool:
        """Whether operations are appended to the block that it began with, in no loop or branch."""
        return self._builder.insertion_point.block is self._first

    @contextmanager
    def inside(self, block: Block) -> Generator[None]:
        """Within: append to another block."""
        place = self._builder.insertion_point
        self._builder.insertion_point = InsertPoint.at_end(block)
        yield
        self._builder.insertion_point = place

    # indices

    def index(self, value: object) -> Index:
        """An index of an integer. Raises Refusal for anything else."""
        match value:
            case Index():
                return value
            case bool():
                pass
            case Tile(shape=()) if value.dtype.kind == "int" and value.dtype.bits >= 32:
                return self.index_of(self.insert(tile.ExtractOp(value.value)))
            case int():
                constant = self.insert(arith.ConstantOp(builtin.IntegerAttr(value, INDEX)))
                return Index(constant, constant)
            case _:
                pass
        raise Refusal(f"{text_of(value)} is no index", "indices are integers, sizes, program ids, loop variables and arithmetic on them")

    def index_of(self, value: SSAValue) -> Index:
        """An index that is computed here."""
        return Index(value, value)

    def _index_binary(self, symbol: str, a: Index | int, b: Index | int) -> Index:
        if symbol in ("+", "-") and isinstance(a, Index) and isinstance(b, int):
            shift = a.shift + (b if symbol == "+" else -b)
            return Index(self.insert(arith.AddiOp(a.base, self.index(shift).value, result_type=INDEX)) if shift else a.base, a.base, shift)
        if symbol == "+" and isinstance(a, int) and isinstance(b, Index):
            return self._index_binary("+", b, a)
        if symbol in ("//", "%") and isinstance(b, int) and b <= 0:
            raise Refusal(f"an index is divided by {b}", "divide indices by positive numbers")
        if symbol not in _INDEX_OPS:
            raise Refusal(f"indices have no operator {symbol}", "indices have + - * // %, comparisons, tl.minimum, tl.maximum and tl.cdiv")
        op, left, right = _INDEX_OPS[symbol], self.index(a).value, self.index(b).value
        make = op(left, right, result_type=INDEX) if op in (arith.AddiOp, arith.SubiOp, arith.MuliOp) else op(left, right)  # pyright: ignore[reportCallIssue]
        return self.index_of(self.insert(make))

    # tiles

    def _kind(self, dtype: DType, shape: Sequence[int]) -> Attribute:
        return dtype.ir if self._scalars else builtin.TensorType(dtype.ir, list(shape) or [1])

    def full(self, shape: Sequence[int], value: Number, dtype: DType) -> Tile:
        """A tile whose elements are one number."""
        if self._scalars:
            return Tile(self.insert(arith.ConstantOp(element_attribute(value, dtype))), (), dtype)
        kind: Any = builtin.TensorType(dtype.ir, list(shape) or [1])
        elements = builtin.DenseIntOrFPElementsAttr.from_list(kind, [float(value) if dtype.kind == "float" else int(value)])
        return Tile(self.insert(arith.ConstantOp(elements)), tuple(shape), dtype)

    def arange(self, extent: int) -> Tile:
        """0, 1, .. as a tile of int32."""
        return Tile(self.insert(tile.IotaOp(0, builtin.TensorType(builtin.i32, [extent]))), (extent,), dtypes.int32)

    def tile(self, value: object, dtype: DType | None = None) -> Tile:
        """A tile of a tile, an index or a number (of type `dtype`). Raises Refusal for anything else."""
        match value:
            case Tile():
                return value
            case Index():
                return Tile(self.insert(tile.SplatOp(value.value, builtin.TensorType(builtin.i32, [1]))), (), dtypes.int32)
            case Condition():
                return Tile(self.insert(tile.SplatOp(value.value, builtin.TensorType(builtin.i1, [1]))), (), dtypes.int1)
            case bool() | int() | float():
                natural = dtypes.float32 if isinstance(value, float) else dtypes.int1 if isinstance(value, bool) else dtypes.int32
                return self.full((), value, dtype or natural)
            case _:
                raise Refusal(f"{text_of(value)} is no tile", "use tiles, indices and numbers here")

    def reshape_units(self, value: Tile, shape: Sequence[int]) -> Tile:
        """A tile of another rank, whose further dimensions in front have extent 1."""
        have = len(value.shape)
        if have == len(shape):
            return value
        order = [NEW_DIM] * (len(shape) - max(have, 1)) + list(range(max(have, 1)))
        moved = value.value if order == [0] else self.insert(tile.PermuteOp(value.value, order))
        return Tile(moved, (1,) * (len(shape) - have) + value.shape, value.dtype)

    def broadcast(self, value: Tile, shape: Sequence[int]) -> Tile:
        """A tile extended to a shape by NumPy's rule. Raises Refusal where it does not fit."""
        if broadcast_shape(value.shape, shape) != tuple(shape):
            raise Refusal(
                f"{text_of(value)} does not extend to {list(shape)}", "only dimensions of extent 1 are repeated: x[:, None] adds one"
            )
        wide = self.reshape_units(value, shape)
        if wide.shape == tuple(shape):
            return wide
        kind = builtin.TensorType(value.dtype.ir, list(shape))
        return Tile(self.insert(tile.BroadcastOp(wide.value, kind)), tuple(shape), value.dtype)

    def permute(self, value: Tile, order: Sequence[int]) -> Tile:
        """Dimensions in another order; `NEW_DIM` stands for a new one of extent 1, dimensions of extent 1 may be left out."""
        shape = tuple(1 if axis == NEW_DIM else value.shape[axis] for axis in order)
        if not value.shape:
            return Tile(
                self.insert(tile.PermuteOp(value.value, (0, *[NEW_DIM] * (len(order) - 1)))) if len(order) > 1 else value.value,
                shape,
                value.dtype,
            )
        if not order:
            return Tile(value.value if len(value.shape) == 1 else self.insert(tile.PermuteOp(value.value, (0,))), (), value.dtype)
        return Tile(self.insert(tile.PermuteOp(value.value, order)), shape, value.dtype)

    def cast(self, value: Tile, dtype: DType) -> Tile:
        """The values in another element type."""
        if value.dtype == dtype:
            return value
        source, target = value.dtype, dtype
        op: type[Operation]
        if source.kind == target.kind == "float":
            if source.bits == target.bits:  # f16 and bf16, or two kinds of 8-bit floats
                return self.cast(self.cast(value, dtypes.float32), dtype)
            op = arith.ExtFOp if source.bits < target.bits else arith.TruncFOp
        elif target.kind == "float":
            op = arith.UIToFPOp if source.kind == "bool" else arith.SIToFPOp
        elif source.kind == "float":
            if target.kind == "bool":
                return self.compare("!=", value, 0.0)
            op = arith.FPToSIOp
        elif target.kind == "bool":
            return self.compare("!=", value, 0)
        else:
            op = arith.ExtUIOp if source.kind == "bool" else arith.ExtSIOp if source.bits < target.bits else arith.TruncIOp
        return Tile(self.insert(op(value.value, self._kind(dtype, value.shape))), value.shape, dtype)  # pyright: ignore[reportCallIssue]

    def unsigned_cast(self, value: Tile, dtype: DType) -> Tile:
        """Integers in a wider type, read as unsigned."""
        return Tile(self.insert(arith.ExtUIOp(value.value, self._kind(dtype, value.shape))), value.shape, dtype)  # pyright: ignore[reportArgumentType]

    def shift_right(self, value: Tile, bits: int) -> Tile:
        """Integers shifted to the right by a number, zeros moving in."""
        by = self.full(value.shape, bits, value.dtype)
        return Tile(self.insert(arith.ShRUIOp(value.value, by.value)), value.shape, value.dtype)

    def fused(self, a: object, b: object, c: object) -> Tile:
        """The product of two, added to a third, with one rounding, on floats."""
        left, right = self._together(a, b, "*")
        added, _ = self._together(c, left, "+")
        if left.dtype.kind != "float" or added.dtype != left.dtype:
            raise Refusal(f"fma of {left.dtype} and {added.dtype}", "give floats of one type")
        shape = broadcast_shape(left.shape, added.shape)
        if shape is None:
            raise Refusal(f"{text_of(left)} and {text_of(added)} have no common shape", "dimensions must be equal or 1")
        x, y, z = (self.broadcast(value, shape).value for value in (left, right, added))
        return Tile(self.insert(math.FmaOp(x, y, z)), shape, left.dtype)

    def _together(self, a: object, b: object, symbol: str) -> tuple[Tile, Tile]:
        """Two operands in one type and shape. A number takes the other operand's type, where it has a fraction a float's."""
        left = a if isinstance(a, Tile) else None
        right = b if isinstance(b, Tile) else None
        left = left or self.tile(a, _type_of_number(a, right))
        right = right or self.tile(b, _type_of_number(b, left))
        dtype = dtypes.common(left.dtype, right.dtype)
        if dtype is None:
            raise Refusal(f"{left.dtype} and {right.dtype} do not meet in {symbol}", "convert one of them: x.to(tl.float32)")
        if symbol == "/" and dtype.kind != "float":
            dtype = dtypes.float32
        if symbol in ("+", "-", "*", "//", "%", "<<", ">>") and dtype.kind == "bool":
            dtype = dtypes.int32
        shape = broadcast_shape(left.shape, right.shape)
        if shape is None:
            raise Refusal(
                f"{text_of(left)} and {text_of(right)} have no common shape",
                "dimensions must be equal or 1: x[:, None] and x[None, :] add one",
            )
        return self.broadcast(self.cast(left, dtype), shape), self.broadcast(self.cast(right, dtype), shape)

    def binary(self, symbol: str, a: object, b: object) -> object:
        """A binary operator, or `minimum` or `maximum`, on any values. Raises Refusal where it has no meaning."""
        if isinstance(a, Index | int) and isinstance(b, Index | int) and not (isinstance(a, bool) or isinstance(b, bool)):
            return self._index_binary(symbol, a, b)
        if isinstance(a, Condition) and isinstance(b, Condition) and symbol in ("&", "|"):
            op = arith.AndIOp if symbol == "&" else arith.OrIOp
            return Condition(self.insert(op(a.value, b.value)))
        left, right = self._together(a, b, symbol)
        table = _FLOAT_OPS if left.dtype.kind == "float" else _INT_OPS
        if symbol == "//" and left.dtype.kind == "float":
            return self.unary("floor", self.binary("/", left, right))
        if symbol not in table:
            raise Refusal(f"tiles of {left.dtype} have no operator {symbol}", f"tiles of {left.dtype} have {' '.join(table)}")
        return Tile(self.insert(table[symbol](left.value, right.value)), left.shape, left.dtype)  # pyright: ignore[reportCallIssue]

    def compare(self, symbol: str, a: object, b: object) -> Tile:
        """A comparison of tiles, elementwise; one with NaN is false but for !=."""
        left, right = self._together(a, b, symbol)
        integer, floating = _COMPARISONS[symbol]
        op = (
            arith.CmpfOp(left.value, right.value, floating)
            if left.dtype.kind == "float"
            else arith.CmpiOp(left.value, right.value, integer)
        )
        return Tile(self.insert(op), left.shape, dtypes.int1)

    def comparison(self, symbol: str, a: object, b: object) -> Condition | Tile:
        """A comparison: of indices a condition, of anything with a tile in it a tile."""
        if isinstance(a, Index | int) and isinstance(b, Index | int):
            return Condition(self.insert(arith.CmpiOp(self.index(a).value, self.index(b).value, _COMPARISONS[symbol][0])))
        return self.compare(symbol, a, b)

    def negate(self, value: object) -> object:
        """The unary minus."""
        if isinstance(value, Tile) and value.dtype.kind == "float":
            return Tile(self.insert(arith.NegfOp(value.value)), value.shape, value.dtype)
        return self.binary("-", 0, value)

    def invert(self, value: object) -> object:
        """`not` of a condition, `~` of a tile of integers or truth values."""
        if isinstance(value, Condition):
            true = self.insert(arith.ConstantOp(builtin.IntegerAttr(1, builtin.i1)))
            return Condition(self.insert(arith.XOrIOp(value.value, true)))
        if isinstance(value, Tile) and value.dtype.kind != "float":
            return self.binary("^", value, self.full((), -1 if value.dtype.kind == "int" else 1, value.dtype))
        raise Refusal(f"{text_of(value)} has no inverse bits", "use a tile of integers or of comparisons")

    def unary(self, name: str, value: object) -> Tile:
        """A function of `math`, elementwise; 16-bit floats are computed in float32, integers become float32."""
        source = self.tile(value, dtypes.float32)
        wide = source if source.dtype.kind == "float" and source.dtype.bits >= 32 else self.cast(source, dtypes.float32)
        result = Tile(self.insert(_MATH[name](wide.value)), wide.shape, wide.dtype)  # pyright: ignore[reportCallIssue]
        return self.cast(result, source.dtype) if source.dtype.kind == "float" else result

    def absolute(self, value: object) -> Tile:
        """The absolute value, elementwise."""
        source = self.tile(value)
        op = math.AbsFOp if source.dtype.kind == "float" else math.AbsIOp
        return Tile(self.insert(op(source.value)), source.shape, source.dtype)

    def where(self, condition: object, a: object, b: object) -> Tile:
        """Elements of `a` where the condition holds, else of `b`."""
        chosen = self.tile(condition)
        if chosen.dtype.kind != "bool":
            chosen = self.compare("!=", chosen, 0)
        left, right = self._together(a, b, "where")
        shape = broadcast_shape(chosen.shape, left.shape)
        if shape is None:
            raise Refusal(f"{text_of(chosen)} and {text_of(left)} have no common shape", "dimensions must be equal or 1")
        chosen, left, right = (self.broadcast(value, shape) for value in (chosen, left, right))
        return Tile(self.insert(arith.SelectOp(chosen.value, left.value, right.value)), shape, left.dtype)


def _type_of_number(value: object, other: Tile | None) -> DType | None:
    """The type that a number takes beside a tile: that tile's, unless it has a fraction and the tile holds integers."""
    if other is None or not isinstance(value, bool | int | float):
        return None
    return None if isinstance(value, float) and other.dtype.kind != "float" else other.dtype if not isinstance(value, bool) else dtypes.int1


def element_attribute(value: Number, dtype: DType) -> builtin.FloatAttr | builtin.IntegerAttr:
    """A number as an attribute of an element type."""
    kind: Any = dtype.ir
    return builtin.FloatAttr(float(value), kind) if dtype.kind == "float" else builtin.IntegerAttr(int(value), kind)
