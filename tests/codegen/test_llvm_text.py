"""The LLVM text builder: what it prints is LLVM IR, folds are right, control flow computes what it says (LLVM evaluates it at O3)."""

import re
import struct
import time

import ml_dtypes
import numpy as np
import pytest
from codegen.kernels import NVIDIA
from hypothesis import given
from hypothesis import strategies as st

from treadle.codegen.llvm_fold import fold_binary
from treadle.codegen.llvm_text import (
    BF16,
    F16,
    F32,
    F64,
    FALSE,
    I1,
    I32,
    I64,
    TRUE,
    VOID,
    Builder,
    Module,
    Parameter,
    Value,
    constant,
    i32,
    i64,
    integer,
    key_value,
    mangled,
    pointer,
    poison,
    struct_elements,
    structure,
    vector,
)
from treadle.codegen.llvm_types import float_text
from treadle.codegen.worker import compile_llvm
from treadle.errors import InternalError


def returning(type: str) -> Builder:
    """A builder in a function of three i32 that returns `type`."""
    module = Module(NVIDIA)
    return Builder(module.function("f", [Parameter(I32, n) for n in "abc"], result=type))


def optimised(b: Builder) -> str:
    """The function's single `ret` after LLVM's O3 pipeline."""
    text = compile_llvm(str(b.module), triple=NVIDIA, cpu="sm_90a", emit="ir", passes="O3")
    assert isinstance(text, str)
    (found,) = re.findall(r"^\s*ret (.*)$", text, re.M)
    return found


def test_folds_integers() -> None:
    b = returning(I32)
    a = b.function.parameters[0]
    assert b.add(a, i32(0)) is a
    assert b.add(i32(0), a) is a
    assert b.mul(i32(1), a) is a
    assert b.mul(a, i32(0)).number == 0
    assert b.sub(a, a).number == 0
    assert b.urem(a, i32(1)).number == 0
    assert b.srem(a, i32(-1)).number == 0
    assert b.add(i32(2**31 - 1), i32(1)).number == -(2**31)
    assert b.udiv(i32(-1), i32(2)).number == 2**31 - 1
    assert b.zext(i32(-1), I64).number == 2**32 - 1
    assert b.sext(TRUE, I32).number == -1
    assert b.icmp("ult", i32(1), i32(-1)) is TRUE
    assert b.icmp("slt", i32(1), i32(-1)) is FALSE
    assert b.icmp("eq", a, a) is TRUE
    assert b.select(TRUE, a, i32(3)) is a
    assert b.gep(Value(pointer(1), "%p"), i64(0)).text == "%p"
    assert len(b.function.lines) == 1  # nothing but the label
    assert "and i32 %a, 7" in _emitted(b, b.urem(a, i32(8)))
    assert "lshr i32 %a, 3" in _emitted(b, b.udiv(a, i32(8)))
    assert "sdiv i32 %a, 8" in _emitted(b, b.sdiv(a, i32(8)))


def _emitted(b: Builder, value: Value) -> str:
    return next(line for line in b.function.lines if line.startswith(f"  {value.text} ="))


OPERATIONS = ["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "urem", "sdiv", "srem"]
NUMBERS = st.one_of(st.integers(-3, 40), st.integers(-(2**31), 2**31 - 1))


@given(st.sampled_from(OPERATIONS), NUMBERS, NUMBERS)
def test_constant_folds_agree_with_machine_arithmetic(op: str, x: int, y: int) -> None:
    known, _, _, _ = fold_binary(op, i32(x), i32(y))
    ux, uy = np.uint32(x & 0xFFFFFFFF), np.uint32(y & 0xFFFFFFFF)
    if (op in ("shl", "lshr", "ashr") and not 0 <= y < 32) or (op in ("udiv", "urem", "sdiv", "srem") and y == 0):
        assert known is None
        return
    with np.errstate(over="ignore"):
        expected = {
            "add": lambda: ux + uy,
            "sub": lambda: ux - uy,
            "mul": lambda: ux * uy,
            "and": lambda: ux & uy,
            "or": lambda: ux | uy,
            "xor": lambda: ux ^ uy,
            "shl": lambda: ux << uy,
            "lshr": lambda: ux >> uy,
            "ashr": lambda: np.int32(x) >> np.int32(y),
            "udiv": lambda: ux // uy,
            "urem": lambda: ux % uy,
            "sdiv": lambda: integer(I64, int(np.trunc(np.longdouble(x) / np.longdouble(y)))).number,
            "srem": lambda: int(np.fmod(np.longdouble(x), np.longdouble(y))),
        }[op]()
    assert known is not None
    assert known.number == integer(I32, int(expected)).number  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("number", [0, 1, -1, 2, 8])
@pytest.mark.parametrize("constant_left", [False, True])
def test_half_constant_folds_keep_the_value(op: str, number: int, constant_left: bool) -> None:
    """LLVM proves each fold: the difference of the unfolded and the folded instruction is 0."""
    if (op in ("udiv", "urem", "sdiv", "srem") and number == 0 and not constant_left) or (op in ("shl", "lshr", "ashr") and number == -1):
        return
    b = returning(I32)
    a = b.function.parameters[0]
    if constant_left and op in ("udiv", "urem", "sdiv", "srem"):
        a = b.or_(a, i32(1))  # no division by zero
    left, right = (i32(number), a) if constant_left else (a, i32(number))
    if constant_left and op in ("shl", "lshr", "ashr"):
        right = b.and_(a, i32(31))
    plain = b.emit(I32, f"{op} i32 {left.text}, {right.text}")
    b.ret(b.sub(plain, b.binary(op, left, right)))
    assert optimised(b) == "i32 0"


def test_loops_and_conditionals_compute() -> None:
    b = returning(I32)
    a, _, c = b.function.parameters
    # sum of the odd numbers below 10, plus 1 for each trip of an inner loop that runs i times
    with b.loop(i32(0), i32(10), i32(1), [i32(0)]) as outer:
        with b.conditional(b.trunc(outer.index, I1)) as branch:
            with branch.then():
                branch.give([b.add(outer.carried[0], outer.index)])
            with branch.otherwise():
                branch.give([outer.carried[0]])
        with b.loop(i32(0), outer.index, i32(1), branch.results) as inner:
            inner.next([b.add(inner.carried[0], i32(1))])
        outer.next(inner.results)
    with b.loop(a, i32(5), i32(1)):
        pass
    with b.loop(i32(3), i32(3), i32(1), [c]) as never:
        never.next([b.add(never.carried[0], i32(1))])
    b.ret(b.add(outer.results[0], b.sub(never.results[0], c)))
    assert optimised(b) == f"i32 {25 + 45}"


def test_runs_once_loop_has_no_guard() -> None:
    b = returning(I32)
    a = b.function.parameters[0]
    with b.loop(i32(0), a, i32(1), [i32(0)], runs_once=True) as loop:
        loop.next([b.add(loop.carried[0], a)])
    b.ret(loop.results[0])
    assert sum("br i1" in line for line in b.function.lines) == 1
    compile_llvm(str(b.module), triple=NVIDIA, cpu="sm_90a")


def test_values_are_reused_only_where_they_dominate() -> None:
    b = returning(I32)
    a, c, _ = b.function.parameters
    before = b.add(a, c)
    with b.when(b.icmp("eq", a, i32(0))):
        assert b.add(a, c) is before
        inside = b.mul(a, c)
        assert b.mul(a, c) is inside
    after = b.mul(a, c)
    assert after is not inside
    b.ret(after)
    compile_llvm(str(b.module), triple=NVIDIA, cpu="sm_90a")


def test_misuse_is_refused() -> None:
    b = returning(I32)
    a = b.function.parameters[0]
    with pytest.raises(InternalError):
        b.add(a, i64(1))
    with pytest.raises(InternalError), b.loop(i32(0), a, i32(1), [a]):
        pass
    b.ret(a)
    with pytest.raises(InternalError):
        b.store(a, Value(pointer(1), "%p"), 4)


FLOATS = st.one_of(
    st.floats(), st.floats(width=32), st.sampled_from([65504.0, 65520.0, 1e39, -1e39, 3.3961775292304957e38, 1.00390625, 5e-324])
)


@given(FLOATS)
def test_float_constants_are_exact(value: float) -> None:
    with np.errstate(over="ignore"):
        half, single = np.float64(value).astype(np.float16), np.float64(value).astype(np.float32)
        bfloat = np.asarray(single).astype(ml_dtypes.bfloat16)
    if value != value:
        assert [float_text(t, value)[:4] for t in (F64, F32, F16, BF16)] == ["0x7F", "0x7F", "0xH7", "0xR7"]
        return
    assert struct.unpack(">d", bytes.fromhex(float_text(F64, value)[2:]))[0] == value
    assert struct.unpack(">d", bytes.fromhex(float_text(F32, value)[2:]))[0] == single
    assert int(float_text(F16, value)[3:], 16) == int(half.view(np.uint16))
    if float(single) == value:
        assert int(float_text(BF16, value)[3:], 16) == int(bfloat.view(np.uint16))


def test_everything_else_parses() -> None:
    """One function with every kind of instruction goes through LLVM's verifier."""
    module = Module(NVIDIA)
    shared = module.shared_array("smem", None, 1024)
    table = module.constant_array("table", "[2 x float]", "[float 0x3FF0000000000000, float 0x4000000000000000]", 16, 4)
    kernel = module.function(
        "k",
        [
            Parameter(pointer(1), "x", "align 16"),
            Parameter("ptr", "map", 'byval([128 x i8]) align 64 "nvvm.grid_constant"'),
            Parameter(F32, "s"),
        ],
        convention="ptx_kernel",
        attributes=["nounwind", key_value("nvvm.maxntid", "128"), key_value("nvvm.minctasm", 1)],
    )
    b = Builder(kernel, fast_math="contract")
    x, _map, s = kernel.parameters
    quad = b.load(vector(4, F32), x, 16, metadata=f"!invariant.load {module.metadata('!{}')}")
    half = b.fptrunc(b.fmul(quad, b.splat(s, 4)), vector(4, F16))
    picked = b.shuffle(half, None, [3, 2, 0, 1, -1, -1, -1, -1])
    items = [b.fpext(e, F32) for e in b.elements(picked)]
    total = b.math("llvm.fma", [items[0], items[1], b.math("llvm.maxnum", [items[2], items[3]])])
    b.store(b.build_vector([total] * 4), b.gep(shared, i32(16)), 16)
    b.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, [i32(0)])
    pair = b.asm("{ add.f32 $0, $2, $2;\n mul.f32 $1, $2, $2; }", "=f,=f,f", [total], structure([F32, F32]))
    both = b.fadd(b.extract_value(pair, 0), b.extract_value(pair, 1))
    record = b.insert_value(poison(structure([F32, vector(2, I32)])), both, 0)
    b.atomic("fadd", x, b.extract_value(record, 0), "monotonic", 4, "device")
    b.fence("release", "block")
    b.store(b.load(F32, b.gep(table, i32(4)), 4), x, 4)
    b.store(constant(vector(4, BF16), 1.5), b.gep(x, i64(32)), 8)
    b.store(b.bitcast(b.select(b.fcmp("olt", both, s), both, b.fneg(s)), I32), b.gep(x, i64(64)), 4)
    b.store(b.resize(b.ptrtoint(shared, I64), I32), b.gep(x, i64(68)), 4, volatile=True)
    b.ret()
    assert str(module).count(structure([F32, F32])) == 1, "the type of several outputs is written once"
    ptx = compile_llvm(str(module), triple=NVIDIA, cpu="sm_90a", features="+ptx86")
    assert isinstance(ptx, str)
    for needle in (".maxntid 128", "ld.global.nc", "bar.sync", ".extern .shared .align 1024", "fma.rn.f32", ".param .align 64"):
        assert needle in ptx
    text = str(module)
    assert text.count("declare float @llvm.fma.f32") == 1
    assert re.search(r"asm sideeffect .*\) #(\d+)", text)
    assert "{ convergent nounwind }" in text


def test_metadata_and_groups_are_shared() -> None:
    module = Module(NVIDIA)
    node = module.metadata('!{!"amdgpu-synchronize-as", !"local"}')
    assert module.metadata('!{!"amdgpu-synchronize-as", !"local"}') == node
    assert module.metadata("!{{self}}", distinct=True) != module.metadata("!{{self}}", distinct=True)
    assert "!1 = distinct !{!1}" in str(module)
    assert module.attribute_group(["b", "a"]) == module.attribute_group(["a", "b"])
    with pytest.raises(InternalError):
        module.declare("f", I32, [])
        module.declare("f", I64, [])


def test_type_text() -> None:
    assert struct_elements(structure([F32, vector(2, I32), structure([I1, I64])])) == (F32, vector(2, I32), structure([I1, I64]))
    assert mangled(vector(4, F16)) == "v4f16"
    assert mangled(pointer(3)) == "p3"
    assert mangled("ptr") == "p0"


def test_a_megabyte_of_text_is_quick() -> None:
    b = returning(F32)
    a = b.sitofp(b.function.parameters[0], F32)
    started = time.process_time()
    total = a
    for _ in range(22_000):
        total = b.fadd(total, a)
    b.ret(total)
    size = len(str(b.module))
    spent = time.process_time() - started
    assert size > 600_000
    assert spent < 0.5  # far above the usual 0.05 s: only a change of the order of growth fails
