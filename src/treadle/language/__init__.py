"""The kernel language: `import treadle.language as tl`. docs/language.md shows it; `@treadle.kernel` compiles functions that use it."""

from typing import Any

from treadle.language.dtypes import (
    bfloat16,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
)
from treadle.language.functions import FUNCTIONS
from treadle.language.kernel import Kernel, Launch, constexpr, constexpr_function, kernel

__all__ = [
    "Kernel",
    "Launch",
    "bfloat16",
    "constexpr",
    "constexpr_function",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "float32",
    "float64",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "kernel",
]


def __getattr__(name: str) -> Any:
    """The functions of the language."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module 'treadle.language' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Types, decorators and functions."""
    return sorted([*__all__, *FUNCTIONS])
