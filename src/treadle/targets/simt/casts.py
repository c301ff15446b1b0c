"""Conversions between element types."""

from collections.abc import Callable

from treadle.codegen.llvm_text import BF16, F32, F64, Builder, Value, bit_width
from treadle.dialects.sync import WaitPhaseOp
from treadle.dialects.tile import tile_type
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.small_floats import decode_to_f32, encode_from_f32
from treadle.targets.simt.types import is_float_type, is_fp8, register_type, type_name


def element_of(value: SSAValue) -> Attribute:
    """Element type of a tile, or the type of a scalar."""
    return tile_type(value).element_type if isinstance(value.type, builtin.TensorType) else value.type


def widen_to_f32(b: Builder, value: Value, element: Attribute) -> Value:
    """Any float as f32 (f64 is rounded)."""
    if is_fp8(element):
        return decode_to_f32(b, value, type_name(element))
    return b.fptrunc(value, F32) if value.type == F64 else b.fpext(value, F32)


def narrow_from_f32(b: Builder, value: Value, element: Attribute) -> Value:
    """An f32 as any float, rounded to nearest even."""
    if is_fp8(element):
        return encode_from_f32(b, value, type_name(element))
    kind = register_type(element)
    return b.fpext(value, F64) if kind == F64 else b.fptrunc(value, kind)


def convert_floats(ctx: KernelContext, values: list[Value], source: Attribute, result: Attribute) -> list[Value]:
    """Float registers in another float type."""
    if type_name(source) == type_name(result):
        return values
    native = ctx.hooks.cast_float(ctx.b, values, type_name(source), type_name(result))
    if native is not None:
        return list(native)
    b = ctx.b
    start, end = register_type(source), register_type(result)
    if is_fp8(source) or is_fp8(result) or BF16 in (start, end):
        # Through f32: exact on the way up; f64 to an 8-bit float or bf16 rounds twice.
        return [narrow_from_f32(b, widen_to_f32(b, v, source), result) for v in values]
    op = "fpext" if bit_width(start) < bit_width(end) else "fptrunc"
    return [b.cast(op, v, end) for v in values]


def _integer_to_float(ctx: KernelContext, values: list[Value], result: Attribute, signed: bool) -> list[Value]:
    b, kind = ctx.b, register_type(result)
    op = "sitofp" if signed else "uitofp"
    if is_fp8(result) or kind not in ctx.hooks.native_floats:
        return convert_floats(ctx, [b.cast(op, v, F32) for v in values], builtin.f32, result)
    return [b.cast(op, v, kind) for v in values]


def _float_to_integer(ctx: KernelContext, values: list[Value], source: Attribute, kind: str, signed: bool) -> list[Value]:
    b = ctx.b
    if is_fp8(source) or register_type(source) not in ctx.hooks.native_floats:
        values = convert_floats(ctx, values, source, builtin.f32)
    return [b.cast("fptosi" if signed else "fptoui", v, kind) for v in values]


def is_carried_past_waits(op: Operation) -> bool:
    """Whether a loop carries what an operation of its body computes, and the body waits for others behind it."""
    if not any(isinstance(use.operation, scf.YieldOp) for result in op.results for use in result.uses):
        return False
    following = op.next_op
    while following is not None and not isinstance(following, WaitPhaseOp):
        following = following.next_op
    return following is not None


def _leaves_rest(op: Operation) -> bool:
    """Whether a value is rounded, and widened again to see what is left of it: all of its elements go together there and back."""
    rounded = op.results[0] if op.name == "arith.truncf" else op.operands[0]
    is_rounded = isinstance(rounded.owner, Operation) and rounded.owner.name == "arith.truncf"
    return is_rounded and any(use.operation.name == "arith.extf" for use in rounded.uses)


def emit_cast(ctx: KernelContext, op: Operation) -> None:
    """A conversion of a scalar or of every register of a tile."""
    b = ctx.b
    source, result = element_of(op.operands[0]), element_of(op.results[0])
    is_tile = isinstance(op.results[0].type, builtin.TensorType)
    values = ctx.tile(op.operands[0]) if is_tile else [ctx.scalar(op.operands[0])]
    kind = ctx.index_type if isinstance(result, builtin.IndexType) else register_type(result)
    name = op.name
    unary: dict[str, Callable[[Value], Value]] = {
        "arith.extsi": lambda v: b.sext(v, kind),
        "arith.extui": lambda v: b.zext(v, kind),
        "arith.trunci": lambda v: b.trunc(v, kind),
        "arith.index_cast": lambda v: b.resize(v, kind),
        "arith.index_castui": lambda v: b.resize(v, kind, signed=False),
        "arith.bitcast": lambda v: b.bitcast(v, kind),
    }
    if name in unary:
        found = [unary[name](v) for v in values]
    elif name in ("arith.extf", "arith.truncf"):
        pairs = ctx.hooks.cast_pairs(ctx, values, type_name(source), type_name(result)) if is_tile and _leaves_rest(op) else None
        found = convert_floats(ctx, values, source, result) if pairs is None else list(pairs)
        if is_tile and is_carried_past_waits(op):
            found = list(ctx.hooks.settled(ctx, found))
    elif name in ("arith.sitofp", "arith.uitofp"):
        found = _integer_to_float(ctx, values, result, name == "arith.sitofp")
    elif name in ("arith.fptosi", "arith.fptoui") and is_float_type(source):
        found = _float_to_integer(ctx, values, source, kind, name == "arith.fptosi")
    else:
        raise InternalError(f"conversion {name} of {source} to {result}")
    ctx.bind(op.results[0], found if is_tile else found[0])


CASTS = (
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.index_cast",
    "arith.index_castui",
    "arith.bitcast",
    "arith.extf",
    "arith.truncf",
    "arith.sitofp",
    "arith.uitofp",
    "arith.fptosi",
    "arith.fptoui",
)
