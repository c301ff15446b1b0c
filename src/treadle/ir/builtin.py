"""The builtin types and attributes by name, for `from treadle.ir.builtin import TensorType`, and typed tests for them."""

from collections.abc import Sequence
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
    "bf16",
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
    "is_array_of",
    "is_integer",
    "is_tensor",
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
