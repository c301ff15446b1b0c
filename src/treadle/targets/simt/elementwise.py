"""`arith` and `math` on scalars and, register by register, on tiles."""

from collections.abc import Callable, Sequence

from treadle.codegen.llvm_text import F32, F64, FALSE, Builder, Value, mangled, zero
from treadle.dialects.precision import FULL, error_bits, has_flag
from treadle.dialects.tile import tile_type
from treadle.errors import UNSUPPORTED, InternalError, TreadleError
from treadle.ir.core import Attribute, Operation
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.locations import location_of
from treadle.targets.simt import approximations, double_functions, inverse_functions, math_functions
from treadle.targets.simt.casts import convert_floats, element_of
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.sign_bits import copy_sign
from treadle.targets.simt.types import is_float_type, register_type, type_name

IntegerFunction = Callable[[Builder, Sequence[Value]], Value]

_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def _floor_divide(b: Builder, args: Sequence[Value]) -> Value:
    quotient, rest = b.sdiv(args[0], args[1]), b.srem(args[0], args[1])
    none = zero(rest.type)
    opposite = b.icmp("slt", b.xor(rest, args[1]), none)
    return b.sub(quotient, b.zext(b.and_(b.icmp("ne", rest, none), opposite), rest.type))


def _ceil_divide(b: Builder, args: Sequence[Value]) -> Value:
    quotient, rest = b.sdiv(args[0], args[1]), b.srem(args[0], args[1])
    none = zero(rest.type)
    same = b.icmp("sge", b.xor(rest, args[1]), none)
    return b.add(quotient, b.zext(b.and_(b.icmp("ne", rest, none), same), rest.type))


def _ceil_divide_unsigned(b: Builder, args: Sequence[Value]) -> Value:
    more = b.zext(b.icmp("ne", b.urem(args[0], args[1]), zero(args[0].type)), args[0].type)
    return b.add(b.udiv(args[0], args[1]), more)


def _ordered(predicate: str) -> IntegerFunction:
    return lambda b, args: b.select(b.icmp(predicate, args[0], args[1]), args[0], args[1])


def _binary(name: str) -> IntegerFunction:
    return lambda b, args: b.binary(name, args[0], args[1])


def _absolute(b: Builder, args: Sequence[Value]) -> Value:
    return b.select(b.icmp("slt", args[0], zero(args[0].type)), b.neg(args[0]), args[0])


def _zeros(name: str) -> IntegerFunction:
    """Leading or trailing zeros; the width for 0."""
    return lambda b, args: b.intrinsic(f"llvm.{name}.{mangled(args[0].type)}", args[0].type, [args[0], FALSE], pure=True)


INTEGER: dict[str, IntegerFunction] = {
    "arith.addi": _binary("add"),
    "arith.subi": _binary("sub"),
    "arith.muli": _binary("mul"),
    "arith.divsi": _binary("sdiv"),
    "arith.divui": _binary("udiv"),
    "arith.remsi": _binary("srem"),
    "arith.remui": _binary("urem"),
    "arith.andi": _binary("and"),
    "arith.ori": _binary("or"),
    "arith.xori": _binary("xor"),
    "arith.shli": _binary("shl"),
    "arith.shrsi": _binary("ashr"),
    "arith.shrui": _binary("lshr"),
    "arith.floordivsi": _floor_divide,
    "arith.ceildivsi": _ceil_divide,
    "arith.ceildivui": _ceil_divide_unsigned,
    "arith.minsi": _ordered("slt"),
    "arith.maxsi": _ordered("sgt"),
    "arith.minui": _ordered("ult"),
    "arith.maxui": _ordered("ugt"),
    "math.absi": _absolute,
    "math.ctpop": lambda b, args: b.math("llvm.ctpop", args),
    "math.ctlz": _zeros("ctlz"),
    "math.cttz": _zeros("cttz"),
}

FLOAT: dict[str, IntegerFunction] = {
    "arith.addf": lambda b, args: b.fadd(args[0], args[1]),
    "arith.subf": lambda b, args: b.fsub(args[0], args[1]),
    "arith.mulf": lambda b, args: b.fmul(args[0], args[1]),
    "arith.divf": lambda b, args: b.fdiv(args[0], args[1]),
    "arith.remf": lambda b, args: b.fbinary("frem", args[0], args[1]),
    "arith.negf": lambda b, args: b.fneg(args[0]),
    "arith.maximumf": lambda b, args: b.math("llvm.maximum", args, ""),
    "arith.minimumf": lambda b, args: b.math("llvm.minimum", args, ""),
    "arith.maxnumf": lambda b, args: b.math("llvm.maxnum", args, ""),
    "arith.minnumf": lambda b, args: b.math("llvm.minnum", args, ""),
    "math.absf": lambda b, args: b.math("llvm.fabs", args),
    "math.floor": lambda b, args: b.math("llvm.floor", args),
    "math.ceil": lambda b, args: b.math("llvm.ceil", args),
    "math.trunc": lambda b, args: b.math("llvm.trunc", args),
    "math.roundeven": lambda b, args: b.math("llvm.rint", args),
    "math.copysign": lambda b, args: copy_sign(b, *args),
    "math.fma": lambda b, args: b.math("llvm.fma", args),
    "math.sqrt": lambda b, args: b.math("llvm.sqrt", args, ""),
}


def no_code(op: Operation, target: str) -> TreadleError:
    """The refusal of an operation of the user's that no code is known for."""
    element = element_of(op.operands[0])
    hint = "compute it in f32" if register_type(element) == F64 else "express it through other operations of arith and math"
    return TreadleError(UNSUPPORTED, location_of(op), what=f"'{op.name}' on {element} for {target}", hint=hint)


def _elementary(ctx: KernelContext, op: Operation, args: Sequence[Value]) -> Value:
    """An elementary function of f32."""
    name = op.name.removeprefix("math.")
    if isinstance(op, math.FPowIOp):
        return math_functions.powf(ctx.b, ctx.hooks, args[0], args[1])
    if name in inverse_functions.NAMES:
        return inverse_functions.emit(ctx.b, ctx.hooks, name, args)
    may_flush = has_flag(op, arith.FastMathFlag.APPROX_FUNC)
    return math_functions.emit(ctx.b, ctx.hooks, name, args, error_bits(op), may_flush=may_flush)


def _cheap(ctx: KernelContext, op: Operation, args: Sequence[Value]) -> Value | None:
    """An f32 operation that is one instruction in LLVM by something cheaper, where its error may be large enough."""
    if error_bits(op) > FULL or args[0].type != F32:
        return None
    if isinstance(op, arith.DivfOp):
        by_reciprocal = has_flag(op, arith.FastMathFlag.ALLOW_RECIP)
        return approximations.divide(ctx.b, ctx.hooks, args[0], args[1], by_reciprocal=by_reciprocal)
    if isinstance(op, math.SqrtOp):
        return approximations.emit(ctx.b, ctx.hooks, "sqrt", args[0], error_bits(op))
    return None


def _float(ctx: KernelContext, op: Operation, element: Attribute) -> IntegerFunction:
    """The function of one register of a float operation, in f32 where the machine has no arithmetic in the type."""
    name = op.name
    native = register_type(element) in ctx.hooks.native_floats and not type_name(element).startswith("f8")
    direct = FLOAT.get(name)

    def function(b: Builder, args: Sequence[Value]) -> Value:
        if direct is not None and native:
            return _cheap(ctx, op, args) or ctx.hooks.math(b, name, args) or direct(b, args)
        if direct is None and register_type(element) == F64:
            found = double_functions.emit(b, name.removeprefix("math."), args)
            if found is None:
                raise no_code(op, ctx.hooks.spec.name)
            return found
        if isinstance(op, math.FPowIOp):
            wide = [*convert_floats(ctx, [args[0]], element, builtin.f32), b.sitofp(args[1], F32)]
        else:
            wide = convert_floats(ctx, list(args), element, builtin.f32)
        if direct is not None:
            result = _cheap(ctx, op, wide) or ctx.hooks.math(b, name, wide) or direct(b, wide)
        else:
            result = _elementary(ctx, op, wide)
        return convert_floats(ctx, [result], builtin.f32, element)[0]

    return function


_ELEMENTARY = tuple(f"math.{name}" for name in (*math_functions.NAMES, *inverse_functions.NAMES, "fpowi"))


def _function(ctx: KernelContext, op: Operation) -> IntegerFunction:
    if isinstance(op, arith.CmpiOp):
        predicate = _CMPI[op.predicate.value.data]
        return lambda b, args: b.icmp(predicate, args[0], args[1])
    element = element_of(op.operands[0])
    if isinstance(op, arith.CmpfOp):
        order = _CMPF[op.predicate.value.data]
        kind = register_type(element)
        if kind in ctx.hooks.native_floats and not type_name(element).startswith("f8"):
            return lambda b, args: b.fcmp(order, args[0], args[1])
        return lambda b, args: b.fcmp(order, *convert_floats(ctx, list(args), element, builtin.f32))
    if isinstance(op, arith.SelectOp):
        return lambda b, args: b.select(args[0], args[1], args[2])
    if op.name in INTEGER:
        return INTEGER[op.name]
    if op.name in FLOAT or op.name in _ELEMENTARY:
        if is_float_type(element):
            return _float(ctx, op, element)
    raise no_code(op, ctx.hooks.spec.name)


def emit_elementwise(ctx: KernelContext, op: Operation) -> None:
    """One operation, on a scalar or on every register; equal operands are computed once."""
    function = _function(ctx, op)
    result = op.results[0]
    b = ctx.b
    if not isinstance(result.type, builtin.TensorType):
        ctx.bind(result, function(b, [ctx.scalar(v) for v in op.operands]))
        return
    count = ctx.layout(result).num_registers
    columns: list[list[Value]] = []
    for operand in op.operands:
        if isinstance(operand.type, builtin.TensorType):
            registers = ctx.tile(operand)
            if len(registers) != count or ctx.layout(operand) != ctx.layout(result):
                raise InternalError(f"{op.name}: {tile_type(operand)} and {tile_type(result)} differ in layout")
            columns.append(registers)
        else:
            columns.append([ctx.scalar(operand)] * count)
    known: dict[tuple[str, ...], Value] = {}
    found: list[Value] = []
    for args in zip(*columns, strict=True):
        key = tuple(a.text for a in args)
        if key not in known:
            known[key] = function(b, args)
        found.append(known[key])
    ctx.bind(result, found)


ELEMENTWISE = (*INTEGER, *FLOAT, *_ELEMENTARY, "arith.cmpi", "arith.cmpf", "arith.select")
