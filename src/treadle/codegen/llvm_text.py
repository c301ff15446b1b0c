"""LLVM IR as text: the names an emitter needs.

module = Module("nvptx64-nvidia-cuda")
function = module.function("k", [Parameter("ptr addrspace(1)", "x")], convention="ptx_kernel")
b = Builder(function)
...
b.ret()
text = str(module)
"""

from treadle.codegen.llvm_builder import Block, mangled
from treadle.codegen.llvm_control import Builder, Conditional, Loop
from treadle.codegen.llvm_module import Function, Module, Parameter, key_value
from treadle.codegen.llvm_types import (
    BF16,
    F16,
    F32,
    F64,
    FALSE,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    TRUE,
    VOID,
    Value,
    array,
    bit_width,
    constant,
    constant_vector,
    element_type,
    floating,
    i32,
    i64,
    integer,
    is_float,
    pointer,
    poison,
    struct_elements,
    structure,
    vector,
    vector_shape,
    zero,
)

__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "FALSE",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "PTR",
    "TRUE",
    "VOID",
    "Block",
    "Builder",
    "Conditional",
    "Function",
    "Loop",
    "Module",
    "Parameter",
    "Value",
    "array",
    "bit_width",
    "constant",
    "constant_vector",
    "element_type",
    "floating",
    "i32",
    "i64",
    "integer",
    "is_float",
    "key_value",
    "mangled",
    "pointer",
    "poison",
    "struct_elements",
    "structure",
    "vector",
    "vector_shape",
    "zero",
]
