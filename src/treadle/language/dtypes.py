"""Element types of the kernel language, under the names that array libraries use."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from treadle.ir.core import Attribute

Kind = Literal["float", "int", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `name`: as in array libraries; `mlir`: as in the IR; `bits`: in memory."""

    name: str
    mlir: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def ir(self) -> "Attribute":
        """The type of the IR."""
        from treadle.ir.dialects import builtin  # a module that only declares kernels does without the IR

        if self.kind != "float":
            return builtin.IntegerType(int(self.mlir[1:]))
        if self.bits == 8:
            return getattr(builtin, f"F{self.mlir.removeprefix('f').replace('8', 'loat8', 1)}Type")()
        return getattr(builtin, self.mlir)


float64 = DType("float64", "f64", "float", 64)
float32 = DType("float32", "f32", "float", 32)
float16 = DType("float16", "f16", "float", 16)
bfloat16 = DType("bfloat16", "bf16", "float", 16)
float8_e4m3fn = DType("float8_e4m3fn", "f8E4M3FN", "float", 8)
float8_e4m3fnuz = DType("float8_e4m3fnuz", "f8E4M3FNUZ", "float", 8)
float8_e5m2 = DType("float8_e5m2", "f8E5M2", "float", 8)
float8_e5m2fnuz = DType("float8_e5m2fnuz", "f8E5M2FNUZ", "float", 8)
int64 = DType("int64", "i64", "int", 64)
int32 = DType("int32", "i32", "int", 32)
int16 = DType("int16", "i16", "int", 16)
int8 = DType("int8", "i8", "int", 8)
int1 = DType("int1", "i1", "bool", 8)

ALL = (
    float64,
    float32,
    float16,
    bfloat16,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    int64,
    int32,
    int16,
    int8,
    int1,
)
BY_MLIR = {kind.mlir: kind for kind in ALL}


def common(a: DType, b: DType) -> DType | None:
    """The type in which values of two types are combined: the wider one, floats before integers; None where there is none.

    f16 and bf16 meet in f32; 8-bit floats meet no other type, and are converted where that is meant.
    """
    if a == b:
        return a
    order = {"bool": 0, "int": 1, "float": 2}
    low, high = sorted((a, b), key=lambda kind: (order[kind.kind], kind.bits))
    if high.kind == "float" and (high.bits == 8 or (low.kind == "float" and low.bits == 8)):
        return None
    if low.kind == high.kind == "float" and low.bits == high.bits:
        return float32
    return high
