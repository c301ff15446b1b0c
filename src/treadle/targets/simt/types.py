"""MLIR element types as LLVM types: in registers and in memory."""

from functools import lru_cache

from treadle.codegen.llvm_text import BF16, F16, F32, F64, I8, I32, bit_width, vector
from treadle.errors import InternalError
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin

WORD_BYTES = 4
I32_BITS = 8 * WORD_BYTES
_FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "tf32": F32}


@lru_cache(maxsize=256)
def type_name(element: Attribute) -> str:
    """MLIR's spelling of an element type: "f16", "i32", "f8E4M3FN", "index"."""
    return str(element)


def is_fp8(element: Attribute) -> bool:
    """Whether an element type is an 8-bit float, held as i8."""
    return type_name(element).startswith("f8")


def is_float_type(element: Attribute) -> bool:
    """Whether an element type is a float."""
    return type_name(element) in _FLOATS or is_fp8(element)


def register_type(element: Attribute) -> str:
    """The LLVM type that holds one element in a register."""
    name = type_name(element)
    if name in _FLOATS:
        return _FLOATS[name]
    if name.startswith("f8"):
        return I8
    if isinstance(element, builtin.IndexType):
        return I32
    if isinstance(element, builtin.IntegerType):
        return f"i{element.bitwidth}"
    raise InternalError(f"element type {element} has no register type")


def memory_type(element: Attribute) -> str:
    """The LLVM type of one element in memory; booleans take a byte."""
    kind = register_type(element)
    return I8 if kind == "i1" else kind


def in_words(kind: str) -> str:
    """The type of whole words that hold a vector of bytes."""
    count = bit_width(kind) // I32_BITS
    return vector(count, I32) if count > 1 else I32


def element_bytes(element: Attribute) -> int:
    """Bytes of one element in memory."""
    return bit_width(memory_type(element)) // 8
