"""The builtin types and attributes by name, for `from treadle.ir.builtin import TensorType`, and typed tests for them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeGuard, TypeVar, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    ComplexType,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    ShapedType,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    VectorType,
    bf16,
    f8E4M3FN,
    f8E4M3FNUZ,
    f8E5M2,
    f8E5M2FNUZ,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute

__all__ = [
    "DYNAMIC_INDEX",
    "AffineMapAttr",
    "AnyFloat",
    "ArrayAttr",
    "BFloat16Type",
    "ComplexType",
    "DenseArrayBase",
    "DenseIntOrFPElementsAttr",
    "DictionaryAttr",
    "Float8E4M3FNType",
    "Float8E4M3FNUZType",
    "Float8E5M2FNUZType",
    "Float8E5M2Type",
    "Float16Type",
    "Float32Type",
    "Float64Type",
    "FloatAttr",
    "FunctionType",
    "IndexType",
    "IntegerAttr",
    "IntegerType",
    "MemRefType",
    "ModuleOp",
    "ShapedType",
    "StringAttr",
    "SymbolRefAttr",
    "TensorType",
    "UnitAttr",
    "VectorType",
    "array_ints",
    "attr_number",
    "bf16",
    "element_of",
    "f8E4M3FN",
    "f8E4M3FNUZ",
    "f8E5M2",
    "f8E5M2FNUZ",
    "f16",
    "f32",
    "f64",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "integer_width",
    "is_array_of",
    "is_integer",
    "is_tensor",
    "number_attr",
    "splat",
    "tensor_types",
]

A = TypeVar("A", bound=Attribute)


def is_tensor(kind: Attribute) -> TypeGuard[TensorType[Attribute]]:
    """Whether `kind` is a ranked tensor type."""
    return isinstance(kind, TensorType)


def is_integer(kind: Attribute) -> TypeGuard[IntegerType]:
    """Whether `kind` is an integer type (not index)."""
    return isinstance(kind, IntegerType)


def is_array_of(attribute: Attribute | None, kind: type[A]) -> TypeGuard[ArrayAttr[A]]:
    """Whether `attribute` is an array whose entries are all of `kind`."""
    if not isinstance(attribute, ArrayAttr):
        return False
    return all(isinstance(entry, kind) for entry in cast("ArrayAttr[Attribute]", attribute).data)


def tensor_types(kinds: Sequence[Attribute]) -> list[Attribute]:
    """The ranked tensor types among `kinds`."""
    return [kind for kind in kinds if is_tensor(kind)]


def array_ints(attribute: Attribute | None) -> tuple[int, ...]:
    """The values of an `array<i64: ..>` attribute; TypeError for any other attribute."""
    if not isinstance(attribute, DenseArrayBase):
        raise TypeError(f"expected array<i64: ..>, got {attribute}")
    return tuple(int(v) for v in cast("DenseArrayBase[IntegerType]", attribute).get_values())


def integer_width(kind: Attribute) -> int | None:
    """Bits of an integer type, None for any other type (index included)."""
    return kind.width.data if is_integer(kind) else None


def element_of(kind: Attribute) -> Attribute:
    """The element type of a tensor type; TypeError for any other type."""
    if not is_tensor(kind):
        raise TypeError(f"expected a tensor type, got {kind}")
    return kind.element_type


@lru_cache(maxsize=256)
def type_name(kind: Attribute) -> str:
    """A type as it is written: names are what the plans go by, and printing takes long."""
    return str(kind)


def number_attr(value: float, kind: Attribute) -> Attribute:
    """The attribute of a number in an integer, index or float type."""
    if isinstance(kind, IntegerType | IndexType):
        return IntegerAttr(int(value), cast("IntegerType | IndexType", kind))
    return FloatAttr(float(value), cast(AnyFloat, kind))


def attr_number(attribute: Attribute) -> float | int | None:
    """The number that an IntegerAttr or FloatAttr holds, None for any other attribute."""
    if isinstance(attribute, IntegerAttr | FloatAttr):
        return cast("IntegerAttr[IntegerType] | FloatAttr[AnyFloat]", attribute).value.data
    return None


def splat(value: float, element: Attribute, shape: Sequence[int]) -> DenseIntOrFPElementsAttr:
    """`dense<value>` of a tensor type with this element type and static shape."""
    kind = cast("TensorType[IntegerType]", TensorType(element, list(shape)))
    return DenseIntOrFPElementsAttr.from_list(kind, [cast(int, value)])
