"""How many bytes an element takes in memory."""

from treadle.errors import InternalError
from treadle.ir.core import Attribute
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
