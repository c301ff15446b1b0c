"""A large dense constant of one value holds that value once, whatever its shape.

Upstream writes it out for every element, and unpacks them all wherever it asks whether they are equal: minutes and gigabytes for a weight's
worth of zeros. `get_values` and `iter_values` of such an attribute give one value.
"""

from math import prod
from typing import Any

from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr

COMPACT_FROM = 1 << 16
"""Elements: smaller ones are written out as upstream does, so that attributes of operations read as they are."""

_from_list = DenseIntOrFPElementsAttr.from_list
_is_splat = DenseIntOrFPElementsAttr.is_splat


def _compact_from_list(type: Any, data: Any) -> DenseIntOrFPElementsAttr:
    if len(data) != 1 or prod(type.get_shape()) < COMPACT_FROM:
        return _from_list(type, data)
    element = type.get_element_type()
    numbers = [element.get_normalized_value(data[0])] if hasattr(element, "get_normalized_value") else data
    return DenseIntOrFPElementsAttr(type, BytesAttr(element.pack(numbers)))


def _compact_is_splat(self: DenseIntOrFPElementsAttr) -> bool:
    """Whether all elements are one value, bit for bit; a constant without elements has none."""
    data, size = self.data.data, self.type.element_type.compile_time_size
    return bool(data) and data == data[:size] * (len(data) // size)


DenseIntOrFPElementsAttr.from_list = staticmethod(_compact_from_list)  # pyright: ignore[reportAttributeAccessIssue]
DenseIntOrFPElementsAttr.is_splat = _compact_is_splat
