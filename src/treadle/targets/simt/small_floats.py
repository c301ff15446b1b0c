"""8-bit floats by integer arithmetic, for machines (or formats) without conversions of their own.

Formats follow the OCP FP8 specification (E4M3FN, E5M2) and its FNUZ variants (bias one higher, no negative zero, one NaN at 0x80).
Conversions to 8 bits round to nearest even; what overflows becomes NaN, or infinity where the format has one, as in ml_dtypes.
"""

from functools import lru_cache
from math import floor, log2

from treadle.codegen.llvm_text import F16, F32, I8, I16, I32, Builder, Value, constant, floating, i32, integer
from treadle.dialects.tile import tile_type
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.records import dataclass
from treadle.targets.simt.types import is_fp8


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """`mantissa` bits, exponent `bias`, the largest finite value, and how it treats what is not finite."""

    mantissa: int
    bias: int
    largest: float
    has_infinity: bool
    is_fnuz: bool


FORMATS = {
    "f8E4M3FN": SmallFloat(3, 7, 448.0, False, False),
    "f8E5M2": SmallFloat(2, 15, 57344.0, True, False),
    "f8E4M3FNUZ": SmallFloat(3, 8, 240.0, False, True),
    "f8E5M2FNUZ": SmallFloat(2, 16, 57344.0, False, True),
}

_NUMPY = {
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
}


def small_float(name: str) -> SmallFloat:
    """The format of an MLIR type name; raises InternalError for others."""
    if name not in FORMATS:
        raise InternalError(f"no 8-bit float {name}")
    return FORMATS[name]


def is_taken_apart_late(value: SSAValue) -> bool:
    """Whether a value is a tile of bytes that are used one by one only behind what runs ahead of that: integers, and 8-bit floats that are
    made wider.
    """
    return isinstance(value.type, builtin.TensorType) and (tile_type(value).element_type == builtin.i8 or is_widened(value))


def is_widened(value: SSAValue) -> bool:
    """Whether a value is a tile of 8-bit floats that are made wider, in this trip of its loop or in a later one."""
    if not isinstance(value.type, builtin.TensorType) or not is_fp8(tile_type(value).element_type):
        return False
    for use in value.uses:
        if isinstance(use.operation, arith.ExtFOp):
            return True
        loop = use.operation if isinstance(use.operation, scf.ForOp) else use.operation.parent_op()
        if isinstance(loop, scf.ForOp) and isinstance(use.operation, scf.ForOp | scf.YieldOp):
            bounds = len(loop.operands) - len(loop.iter_args) if loop is use.operation else 0
            carried = loop.body.block.args[1 + use.index - bounds]
            if carried is not value and is_widened(carried):
                return True
    return False


@lru_cache(maxsize=256)
def encode(name: str, number: float) -> int:
    """The 8 bits of a number, for constants."""
    import ml_dtypes  # only programs with such constants wait for it
    import numpy as np

    small_float(name)
    return int(np.array(number).astype(getattr(ml_dtypes, _NUMPY[name])).view(np.uint8))


def first_overflow(name: str) -> tuple[float, bool]:
    """`(limit, including)`: the magnitude above which a number rounds beyond the largest finite one, and whether the limit itself does."""
    form = small_float(name)
    half_step = 2.0 ** (floor(log2(form.largest)) - form.mantissa - 1)
    last_code = 2 ** (form.mantissa) - 1
    largest_mantissa = int(form.largest / 2.0 ** floor(log2(form.largest)) * 2**form.mantissa) & last_code
    # A tie goes to the even neighbour: beyond the largest one if that one is odd.
    return float(form.largest + half_step), largest_mantissa % 2 == 1


def decode_to_f32(b: Builder, value: Value, name: str) -> Value:
    """f32 of the 8 bits in an i8."""
    form = small_float(name)
    if name == "f8E5M2":
        return b.fpext(b.bitcast(b.shl(b.zext(value, I16), integer(I16, 8)), F16), F32)
    wide = b.zext(value, I32)
    magnitude = b.shl(b.and_(wide, i32(0x7F)), i32(23 - form.mantissa))
    # The exponent field is too small by (127 - bias): a multiplication corrects it, subnormals included.
    scaled = b.fmul(b.bitcast(magnitude, F32), floating(F32, 2.0 ** (127 - form.bias)), "")
    sign = b.shl(b.and_(wide, i32(0x80)), i32(24))
    signed = b.bitcast(b.or_(b.bitcast(scaled, I32), sign), F32)
    code = i32(0x80) if form.is_fnuz else i32(0x7F)
    is_nan = b.icmp("eq", wide if form.is_fnuz else b.and_(wide, i32(0x7F)), code)
    return b.select(is_nan, floating(F32, float("nan")), signed)


def encode_from_f32(b: Builder, value: Value, name: str) -> Value:
    """The 8 bits of an f32."""
    form = small_float(name)
    bits = b.bitcast(value, I32)
    sign = b.and_(b.lshr(bits, i32(24)), i32(0x80))
    magnitude = b.and_(bits, i32(0x7FFFFFFF))
    drop = 23 - form.mantissa
    # Normal results: round the mantissa to nearest even in place, then lower the exponent's bias.
    odd = b.and_(b.lshr(magnitude, i32(drop)), i32(1))
    rounded = b.lshr(b.add(b.add(magnitude, i32((1 << (drop - 1)) - 1)), odd), i32(drop))
    normal = b.sub(rounded, i32((127 - form.bias) << form.mantissa))
    # Subnormal results: adding a power of two whose last place is the smallest number rounds to it.
    smallest_normal = 2.0 ** (1 - form.bias)
    magic = 2.0 ** (23 + 1 - form.bias - form.mantissa)
    shifted = b.fadd(b.bitcast(magnitude, F32), floating(F32, magic), "")
    subnormal = b.sub(b.bitcast(shifted, I32), b.bitcast(floating(F32, magic), I32))
    is_small = b.fcmp("olt", b.bitcast(magnitude, F32), floating(F32, smallest_normal))
    code = b.select(is_small, subnormal, normal)
    limit, including = first_overflow(name)
    beyond = b.fcmp("oge" if including else "ogt", b.bitcast(magnitude, F32), floating(F32, limit))
    is_nan = b.fcmp("uno", value, value)
    if form.is_fnuz:
        signed = b.select(b.icmp("eq", code, i32(0)), i32(0), b.or_(code, sign))
        return b.trunc(b.select(b.or_(beyond, is_nan), i32(0x80), signed), I8)
    nan_code = i32(0x7F)
    code = b.select(beyond, i32(0x7C) if form.has_infinity else nan_code, code)
    code = b.select(is_nan, nan_code, code)
    return b.trunc(b.or_(code, sign), I8)


def correct_overflow(b: Builder, value: Value, code: Value, name: str) -> Value:
    """Turn the saturated result of a machine's own conversion into NaN or infinity where `value` (f32) overflows."""
    form = small_float(name)
    limit, including = first_overflow(name)
    magnitude = b.math("llvm.fabs", [value])
    beyond = b.fcmp("oge" if including else "ogt", magnitude, floating(F32, limit))
    top = constant(I8, 0x7C if form.has_infinity else 0x7F)
    return b.select(beyond, b.or_(b.and_(code, constant(I8, -128)), top), code)
