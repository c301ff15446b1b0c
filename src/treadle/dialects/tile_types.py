"""Types of the `tile` dialect in Python: reading them off values, making them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from treadle.dialects.tile_attributes import SharedLayoutAttr, SharedSpaceAttr, TileLayoutAttr
from treadle.ir.core import (
    Attribute,
    Operation,
    SSAValue,
    VerifyException,
)
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout

DYNAMIC = builtin.DYNAMIC_INDEX
INDEX = builtin.IndexType()
BULK_TENSOR = "bulk_tensor"
"""The path of copies by descriptor; a machine's row names the other one that it may have."""


def i64_array(values: Sequence[int]) -> builtin.DenseArrayBase:
    """A dense i64 array attribute."""
    return builtin.DenseArrayBase.from_list(builtin.i64, list(values))


def ints(attribute: Attribute) -> tuple[int, ...]:
    """The values of a dense integer array attribute."""
    if not isinstance(attribute, builtin.DenseArrayBase):
        raise VerifyException(f"expected array<i64: ..>, got {attribute}")
    kind = cast("object", attribute.elt_type)  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(kind, builtin.IntegerType):
        return tuple(int(v) for v in attribute.get_values())
    return _unpacked(cast("builtin.IntegerType", kind).width.data, attribute.data.data)


@lru_cache(4096)
def _unpacked(bits: int, data: bytes) -> tuple[int, ...]:
    """The numbers of a dense array; a kernel's accesses say the same few again and again."""
    kind = builtin.IntegerType(bits)
    return kind.unpack(data, len(data) // kind.compile_time_size)


def is_tile(value: SSAValue) -> bool:
    """Whether a value is a register tile."""
    return isinstance(value.type, builtin.TensorType)


def tile_type(value: SSAValue | Operation) -> builtin.TensorType[Attribute]:
    """The tensor type of a register tile."""
    value_type = (value if isinstance(value, SSAValue) else SSAValue.get(value)).type
    if not isinstance(value_type, builtin.TensorType):
        raise VerifyException(f"expected a register tile (tensor), got {value_type}")
    return cast("builtin.TensorType[Attribute]", value_type)


def memref_type(value: SSAValue | Operation) -> builtin.MemRefType[Attribute]:
    """The memref type of a view or shared buffer."""
    value_type = (value if isinstance(value, SSAValue) else SSAValue.get(value)).type
    if not isinstance(value_type, builtin.MemRefType):
        raise VerifyException(f"expected a view or shared buffer (memref), got {value_type}")
    return cast("builtin.MemRefType[Attribute]", value_type)


def layout_of(value: SSAValue | Operation) -> TileLayout | None:
    """The distributed layout of a register tile, None before assign-layouts."""
    encoding = tile_type(value).encoding
    return encoding.data if isinstance(encoding, TileLayoutAttr) else None


def shared_layout_of(value: SSAValue | Operation) -> SharedLayout:
    """The layout of a shared buffer."""
    layout = memref_type(value).layout
    if not isinstance(layout, SharedLayoutAttr):
        raise VerifyException(f"expected a shared buffer with #tile.shared_layout, got {memref_type(value)}")
    return layout.data


def tile_of(shape: Sequence[int], element: Attribute, layout: TileLayout | None = None) -> builtin.TensorType[Attribute]:
    """The type of a register tile."""
    return _tile_of(tuple(shape), element, layout)


@lru_cache(maxsize=512)
def _tile_of(shape: tuple[int, ...], element: Attribute, layout: TileLayout | None) -> builtin.TensorType[Attribute]:
    return builtin.TensorType(element, shape, TileLayoutAttr(layout) if layout is not None else builtin.NoneAttr())


def shared_buffer_type(shape: Sequence[int], element: Attribute, layout: SharedLayout) -> builtin.MemRefType[Attribute]:
    """The type of a shared buffer."""
    return _shared_buffer_type(tuple(shape), element, layout)


@lru_cache(maxsize=512)
def _shared_buffer_type(shape: tuple[int, ...], element: Attribute, layout: SharedLayout) -> builtin.MemRefType[Attribute]:
    return builtin.MemRefType(element, shape, SharedLayoutAttr(layout), SharedSpaceAttr())


def view_strides(view: SSAValue | Operation) -> tuple[int | None, ...]:
    """Static strides of a view in elements, None where they are dynamic."""
    layout = memref_type(view).layout
    if not isinstance(layout, builtin.StridedLayoutAttr):
        raise VerifyException(f"expected a strided view, got {memref_type(view)}")
    strides = layout.get_strides()
    return tuple(None if s is None or s == DYNAMIC else s for s in strides)
