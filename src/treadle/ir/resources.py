"""`dense_resource` constants: their data stands behind the module, in hexadecimal, and takes the place of their names."""

from collections.abc import Mapping
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, DenseResourceAttr

from treadle.errors import RESOURCE, TreadleError
from treadle.ir.core import Operation
from treadle.ir.locations import location_of

_ALIGNMENT_BYTES = 4
"""A blob begins with its alignment, 32 bits."""


def _data(text: str) -> bytes | None:
    """The bytes of a blob's text behind its alignment; None where it is none."""
    try:
        return bytes.fromhex(text.removeprefix("0x"))[_ALIGNMENT_BYTES:] if text.startswith("0x") else None
    except ValueError:
        return None


def fill_resources(module: Operation, blobs: Mapping[str, str]) -> None:
    """Replace every `dense_resource` by `dense` with its data; raises TR105 at an operation whose data is missing or of another size."""
    for op in module.walk():
        for name, attribute in op.properties.items():
            if isinstance(attribute, DenseResourceAttr):
                op.properties[name] = _filled(op, attribute, blobs)


def _filled(op: Operation, attribute: DenseResourceAttr, blobs: Mapping[str, str]) -> DenseIntOrFPElementsAttr:
    key, kind = attribute.resource_handle.data, cast(Any, attribute.type)
    data = _data(blobs[key]) if key in blobs else b""
    size = getattr(kind.get_element_type(), "compile_time_size", None)
    if key not in blobs:
        raise TreadleError(RESOURCE, location_of(op), name=key, reason="no resource of this name stands behind the module")
    if data is None:
        raise TreadleError(RESOURCE, location_of(op), name=key, reason="it is not a string of hexadecimal digits after 0x")
    wanted = prod(kind.get_shape()) * size if size is not None else None
    if wanted is None or len(data) != wanted:
        raise TreadleError(RESOURCE, location_of(op), name=key, reason=f"it holds {len(data)} bytes, {kind} takes {wanted or 'other ones'}")
    return DenseIntOrFPElementsAttr(kind, BytesAttr(data))
