"""How many bytes elements, register tiles and shared buffers take."""

from math import prod

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Attribute, SSAValue
from treadle.ir.dialects import builtin


def element_bytes(element: Attribute) -> int:
    """Bytes of an element in memory; i1 takes one, index four."""
    match element:
        case builtin.IntegerType():
            return max(1, element.width.data // 8)
        case builtin.IndexType():
            return 4
        case _:
            width = getattr(element, "bitwidth", None)
            if not isinstance(width, int):
                raise InternalError(f"element type {element} has no width")
            return max(1, width // 8)


def tile_bytes(value: SSAValue) -> int:
    """Bytes of a register tile's elements."""
    kind = tile.tile_type(value)
    return prod(kind.get_shape()) * element_bytes(kind.element_type)


def buffer_bytes(buffer: SSAValue) -> int:
    """Bytes of a shared buffer, padding included."""
    return tile.shared_layout_of(buffer).size * element_bytes(tile.memref_type(buffer).element_type)
