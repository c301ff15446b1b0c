"""LLVM types as strings, typed values, and constants printed exactly.

A type is LLVM's own spelling: `i32`, `half`, `bfloat`, `float`, `double`, `ptr`, `ptr addrspace(3)`, `<4 x float>`, `{ float, i32 }`,
`[128 x i8]`. Floating constants are printed in hexadecimal so that no digit is lost.
"""

import math
import struct
from functools import lru_cache
from typing import Final

from treadle.errors import InternalError

I1: Final = "i1"
I8: Final = "i8"
I16: Final = "i16"
I32: Final = "i32"
I64: Final = "i64"
F16: Final = "half"
BF16: Final = "bfloat"
F32: Final = "float"
F64: Final = "double"
PTR: Final = "ptr"
VOID: Final = "void"

_FLOAT_BITS = {F16: 16, BF16: 16, F32: 32, F64: 64}


class Value:
    """An SSA value or constant: its type, its text (`%v3`, `7`, `true`, `@g`) and, for an integer constant, the signed number."""

    __slots__ = ("number", "text", "type")

    def __init__(self, type: str, text: str, number: int | None = None) -> None:
        self.type = type
        self.text = text
        self.number = number

    def __repr__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def typed(self) -> str:
        """Type and text, as operands of most instructions are written."""
        return f"{self.type} {self.text}"


def pointer(address_space: int = 0) -> str:
    """The pointer type of an address space."""
    return f"ptr addrspace({address_space})" if address_space else "ptr"


def vector(length: int, element: str) -> str:
    """`<length x element>`."""
    return f"<{length} x {element}>"


def array(length: int, element: str) -> str:
    """`[length x element]`."""
    return f"[{length} x {element}]"


def structure(elements: list[str] | tuple[str, ...]) -> str:
    """`{ a, b, .. }`."""
    return f"{{ {', '.join(elements)} }}"


@lru_cache(maxsize=1024)
def vector_shape(type: str) -> tuple[int, str] | None:
    """(length, element type) of a vector type; None for any other type."""
    if not type.startswith("<"):
        return None
    length, element = type[1:-1].split(" x ", 1)
    return int(length), element


@lru_cache(maxsize=1024)
def struct_elements(type: str) -> tuple[str, ...]:
    """Element types of a structure type, split at its top level."""
    if not type.startswith("{"):
        raise InternalError(f"'{type}' is not a structure type")
    parts: list[str] = []
    depth, start, body = 0, 0, type[1:-1]
    for i, c in enumerate(body):
        if c in "{[<(":
            depth += 1
        elif c in "}]>)":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(body[start:i].strip())
            start = i + 1
    return (*parts, body[start:].strip()) if body.strip() else ()


def element_type(type: str) -> str:
    """The element type of a vector, or the type itself."""
    shape = vector_shape(type)
    return shape[1] if shape else type


def is_float(type: str) -> bool:
    """True for half, bfloat, float, double and vectors of them."""
    return element_type(type) in _FLOAT_BITS


@lru_cache(maxsize=1024)
def bit_width(type: str) -> int:
    """Bits of an integer, float or vector type (pointers have none here: it depends on the target)."""
    shape = vector_shape(type)
    if shape:
        return shape[0] * bit_width(shape[1])
    if type in _FLOAT_BITS:
        return _FLOAT_BITS[type]
    if type[0] == "i" and type[1:].isdigit():
        return int(type[1:])
    raise InternalError(f"'{type}' has no fixed width")


@lru_cache(maxsize=1024)
def _bounds(type: str) -> tuple[int, int]:
    width = bit_width(type)
    return 1 << (width - 1), (1 << width) - 1


def integer(type: str, value: int) -> Value:
    """An integer constant, wrapped to the type's width and kept signed (`i1` is 0 or 1)."""
    if type == I1:
        return TRUE if value & 1 else FALSE
    half, mask = _bounds(type)
    signed = ((value & mask) ^ half) - half
    return Value(type, str(signed), signed)


def i32(value: int) -> Value:
    """A 32-bit integer constant."""
    return integer(I32, value)


def i64(value: int) -> Value:
    """A 64-bit integer constant."""
    return integer(I64, value)


def float_text(type: str, value: float) -> str:
    """The exact hexadecimal spelling; `value` is rounded to the type, ties to even, overflow to infinity."""
    if type == F64:
        return f"0x{_double_bits(value):016X}"
    if type == F32:
        return f"0x{_double_bits(_round_to_f32(value)):016X}"
    if type == F16:
        return f"0xH{_half_bits(value):04X}"
    if type == BF16:
        return f"0xR{_bfloat_bits(value):04X}"
    raise InternalError(f"'{type}' is not a floating-point type")


def _double_bits(value: float) -> int:
    return 0x7FF8000000000000 if math.isnan(value) else int.from_bytes(struct.pack(">d", value), "big")


def _round_to_f32(value: float) -> float:
    try:
        return struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _half_bits(value: float) -> int:
    if math.isnan(value):
        return 0x7E00
    try:
        return int.from_bytes(struct.pack(">e", value), "big")
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


def _bfloat_bits(value: float) -> int:
    if math.isnan(value):
        return 0x7FC0
    single = _round_to_f32(value)
    bits = int.from_bytes(struct.pack(">f", single), "big")
    low, upper = bits & 0xFFFF, bits >> 16
    if low == 0x8000 and single != value:  # a tie that the first rounding made: the exact value decides
        return upper + 1 if abs(value) > abs(single) else upper
    return upper + (low > 0x8000 or (low == 0x8000 and upper & 1 == 1))


def floating(type: str, value: float) -> Value:
    """A floating-point constant of a scalar type."""
    return Value(type, float_text(type, value))


def constant(type: str, value: float) -> Value:
    """A constant of a scalar type, or the same constant in every element of a vector type."""
    shape = vector_shape(type)
    if shape:
        element = constant(shape[1], value)
        return Value(type, f"splat ({element.typed})")
    return floating(type, value) if type in _FLOAT_BITS else integer(type, int(value))


def constant_vector(values: list[Value]) -> Value:
    """A vector constant from scalar constants of one type."""
    return Value(vector(len(values), values[0].type), f"<{', '.join(v.typed for v in values)}>")


def zero(type: str) -> Value:
    """The all-zero constant of any type."""
    if type[0] == "i":
        return integer(type, 0)
    return floating(type, 0.0) if type in _FLOAT_BITS else Value(type, "null" if type.startswith("ptr") else "zeroinitializer")


def poison(type: str) -> Value:
    """The value that no one may use: a start for vectors and structures that are filled afterwards."""
    return Value(type, "poison")


TRUE: Final = Value(I1, "true", 1)
FALSE: Final = Value(I1, "false", 0)
