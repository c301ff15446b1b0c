"""Element types of the IR as NumPy data types: how they are stored, how precise they are, what uninitialised memory holds."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from treadle.errors import NO_DATA_TYPE, TreadleError, unreachable
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin

Array = npt.NDArray[Any]
DType = np.dtype[Any]

_FLOATS: dict[type[Attribute], Any] = {
    builtin.Float64Type: np.float64,
    builtin.Float32Type: np.float32,
    builtin.Float16Type: np.float16,
    builtin.BFloat16Type: ml_dtypes.bfloat16,
    builtin.Float8E4M3FNType: ml_dtypes.float8_e4m3fn,
    builtin.Float8E5M2Type: ml_dtypes.float8_e5m2,
    builtin.Float8E4M3FNUZType: ml_dtypes.float8_e4m3fnuz,
    builtin.Float8E5M2FNUZType: ml_dtypes.float8_e5m2fnuz,
}
_INTEGERS: dict[int, Any] = {1: np.bool_, 8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def element_type(value_type: Attribute) -> Attribute:
    """The element type of a tensor or memref; a scalar type itself."""
    if isinstance(value_type, builtin.TensorType | builtin.MemRefType | builtin.VectorType):
        return value_type.get_element_type()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return value_type


def is_float(scalar: Attribute) -> bool:
    """Whether a scalar type is a floating-point type."""
    return isinstance(scalar, builtin.AnyFloat)


def storage_dtype(scalar: Attribute) -> DType:
    """The NumPy type that holds a scalar type exactly; `index` is int64. Raises TR320 for types without one."""
    if isinstance(scalar, builtin.IndexType):
        return np.dtype(np.int64)
    integer: Any = scalar  # the type's parameters are free in its class
    if isinstance(scalar, builtin.IntegerType):
        width: int = integer.width.data
        table = _UNSIGNED if integer.signedness.data == builtin.Signedness.UNSIGNED else _INTEGERS
        if width in table:
            return np.dtype(table[width])
    elif type(scalar) in _FLOATS:
        return np.dtype(_FLOATS[type(scalar)])
    raise TreadleError(NO_DATA_TYPE, type=str(integer))


def reference_dtype(scalar: Attribute) -> DType:
    """The NumPy type of the reference: every float is float64, integers keep their width (so that they wrap as declared)."""
    return np.dtype(np.float64) if is_float(scalar) else storage_dtype(scalar)


def is_float_dtype(dtype: DType) -> bool:
    """Whether a NumPy type, those of ml_dtypes included, is a floating-point type."""
    return dtype.kind == "f" or dtype in (np.dtype(t) for t in _FLOATS.values())


def unsigned(array: Array) -> Array:
    """The same bits as unsigned integers (booleans as they are)."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "i" else array


@dataclass(frozen=True, slots=True)
class Precision:
    """How a floating-point type rounds.

    `unit`: largest relative error of one rounding (half the distance from 1 to the next number). `floor`: what tiny results may lose.
    `largest`: finite maximum. `smallest_normal`: the smallest number of full precision.
    """

    unit: float
    floor: float
    largest: float
    smallest_normal: float


def _finfo(dtype: DType) -> Any:
    info: Any = ml_dtypes.finfo  # knows NumPy's own types too, and 8-bit floats that NumPy counts among its own
    return info(dtype)


_PRECISION: dict[DType, Precision] = {}


def precision_of(dtype: DType) -> Precision:
    """Rounding of a floating-point type. f32, f64 and bf16 results below the smallest normal number may be flushed to zero by a machine."""
    if dtype not in _PRECISION:
        info = _finfo(dtype)
        flushes = dtype.itemsize > 2 or dtype == np.dtype(ml_dtypes.bfloat16)
        floor = float(info.smallest_normal) if flushes else float(info.smallest_subnormal)
        _PRECISION[dtype] = Precision(float(info.eps) / 2, floor, float(info.max), float(info.smallest_normal))
    return _PRECISION[dtype]


def poison(shape: tuple[int, ...], dtype: DType) -> Array:
    """Uninitialised memory: NaN for floats, bytes 0xAB for integers, True for booleans."""
    if is_float_dtype(dtype):
        return np.full(shape, np.nan, dtype=dtype)
    if dtype == np.dtype(np.bool_):
        return np.ones(shape, dtype=dtype)
    if dtype.kind not in "iu":
        unreachable(f"no poison for {dtype}")
    raw = np.full((*shape, dtype.itemsize), 0xAB, dtype=np.uint8)
    return raw.view(dtype).reshape(shape)
