"""PyTorch's element types as MLIR has them, and the types that PyTorch computes in."""

from typing import Final

import torch

from treadle.ir import builtin
from treadle.ir.core import Attribute

ELEMENTS: Final[dict[torch.dtype, Attribute]] = {
    torch.float64: builtin.f64,
    torch.float32: builtin.f32,
    torch.float16: builtin.f16,
    torch.bfloat16: builtin.bf16,
    torch.float8_e4m3fn: builtin.f8E4M3FN,
    torch.float8_e5m2: builtin.f8E5M2,
    torch.int64: builtin.i64,
    torch.int32: builtin.i32,
    torch.int16: builtin.i16,
    torch.int8: builtin.i8,
    torch.bool: builtin.i1,
}
"""Unsigned integers are missing: MLIR's integers have no sign, so that every operation on them would have to say it."""

_NARROW: Final = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type that sums and products of such elements are computed in: f32 for narrower floats, i64 for integers."""
    if dtype in _NARROW:
        return torch.float32
    return dtype if dtype.is_floating_point else torch.int64


def is_narrow(dtype: torch.dtype) -> bool:
    """Whether PyTorch computes elementwise operations on such elements in f32."""
    return dtype in _NARROW
