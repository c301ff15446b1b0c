"""`tile.contract` by MFMA (CDNA) and WMMA (RDNA3, RDNA4): the intrinsic of every row, and the instructions of a tile.

A warp's tile is a grid of instructions. Operands come from registers in the order of the instruction's fragment (machine/fragments.py);
accumulators stay whole vectors from one instruction to the next, so that register allocation has nothing to copy.
"""

from collections.abc import Sequence
from typing import Literal

from treadle.codegen.llvm_text import BF16, F16, F32, FALSE, I16, I32, I64, TRUE, Builder, Value, bit_width, i32, vector, zero
from treadle.dialects.tile import ContractOp
from treadle.errors import InternalError
from treadle.layout.fragments import instruction_grid, instruction_positions, instruction_registers, packed
from treadle.layout.tile_layout import TileLayout
from treadle.machine import MatrixInstruction, TargetSpec
from treadle.plan.contract_layouts import matrix_layouts
from treadle.records import dataclass
from treadle.targets.simt.context import KernelContext

_FP8_WORDS = {"f8E4M3FN": "fp8", "f8E5M2": "bf8", "f8E4M3FNUZ": "fp8", "f8E5M2FNUZ": "bf8"}


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An LLVM intrinsic: its `name`, the LLVM types of operands and accumulator, and the form of its argument list.

    "mfma": a, b, c and three immediates (broadcast and swizzle of blocks, unused). "wmma": a, b, c. "wmma_signed": with signs and clamp.
    """

    name: str
    operand: str
    accumulator: str
    form: Literal["mfma", "wmma", "wmma_signed"]


def _packed(row: MatrixInstruction, count: int) -> str:
    """The LLVM type of one operand of `count` elements."""
    if row.a_type == "f32":
        return F32
    if row.a_type == "f16":
        return vector(count, F16)
    if row.a_type == "bf16":
        # The intrinsics from before LLVM had bfloat take integers.
        return vector(count, BF16 if row.family == "mfma" and count == 8 else I16)
    words = count // 4
    return I64 if words == 2 and row.family == "mfma" else vector(words, I32)


def intrinsic_of(row: MatrixInstruction) -> Intrinsic:
    """The intrinsic of a row; raises InternalError for rows that are not AMD's."""
    fragments = instruction_fragments(row)
    operand = _packed(row, fragments[0].num_registers)
    accumulator = vector(fragments[2].num_registers, I32 if row.accumulator_type == "i32" else F32)
    shape = f"{row.m}x{row.n}x{row.k}"
    result = row.accumulator_type
    if row.family == "mfma":
        types = {
            "f16": f"{shape}{'.f16' if row.k == 32 else 'f16'}",
            "bf16": f"{shape}{'.bf16' if row.k == 32 else 'bf16.1k'}",
            "i8": f"{shape}.i8",
            "f32": f"{shape}f32",
        }
        words = types.get(row.a_type) or f"{shape}.{_FP8_WORDS[row.a_type]}.{_FP8_WORDS[row.b_type]}"
        return Intrinsic(f"llvm.amdgcn.mfma.{result}.{words}", operand, accumulator, "mfma")
    if row.family != "wmma":
        raise InternalError(f"{row.name} is no AMD instruction")
    words = {"f16": "f16", "bf16": "bf16", "i8": "iu8"}.get(row.a_type) or f"{_FP8_WORDS[row.a_type]}.{_FP8_WORDS[row.b_type]}"
    suffix = f"{_mangled(accumulator)}.{_mangled(operand)}"
    name = f"llvm.amdgcn.wmma.{result}.{shape}.{words}.{suffix}"
    return Intrinsic(name, operand, accumulator, "wmma_signed" if row.a_type == "i8" else "wmma")


def _mangled(type: str) -> str:
    count, element = type[1:-1].split(" x ")
    return f"v{count}{ {F16: 'f16', F32: 'f32'}.get(element, element) }"


def instruction_fragments(row: MatrixInstruction) -> tuple[TileLayout, TileLayout, TileLayout]:
    """Layouts of A (m, k), B (k, n) and the accumulator (m, n) of one instruction in one warp."""
    one = matrix_layouts(row, row.m, row.n, 1, 1)
    if one.a is None or one.b is None or one.c is None:
        raise InternalError(f"{row.name} does not read its operands from registers")
    return one.a, one.b, one.c


def issue(b: Builder, intrinsic: Intrinsic, left: Value, right: Value, accumulator: Value) -> Value:
    """One instruction; operands of the intrinsic's types."""
    arguments: Sequence[Value]
    match intrinsic.form:
        case "mfma":
            arguments = [left, right, accumulator, i32(0), i32(0), i32(0)]
        case "wmma":
            arguments = [left, right, accumulator]
        case "wmma_signed":
            arguments = [TRUE, left, TRUE, right, accumulator, FALSE]
    return b.intrinsic(intrinsic.name, intrinsic.accumulator, arguments, flags="")


def _operand(ctx: KernelContext, registers: Sequence[Value], where: Sequence[int], type: str) -> Value:
    """Registers as one operand of the instruction."""
    b = ctx.b
    elements = [registers[register] for register in where]
    packed = ctx.pack(elements)
    if packed.type == type:
        return packed
    if bit_width(packed.type) != bit_width(type):
        raise InternalError(f"operand of {len(elements)} x {elements[0].type} for {type}")
    return b.bitcast(packed, type)


def _packed_steps(tile: TileLayout, fragment: TileLayout, k_dim: int, row: MatrixInstruction) -> int:
    """How many instructions' operands along k an operand's layout has packed."""
    together = row.packed_steps
    while together > 1 and packed(fragment, k_dim, together).lane != tile.lane:
        together //= 2
    return together


def _one_of(registers: Sequence[int], number: int, count: int) -> Sequence[int]:
    """One of `count` equal parts."""
    size = len(registers) // count
    return registers[number * size : (number + 1) * size]


def emit_matrix(ctx: KernelContext, op: ContractOp, spec: TargetSpec) -> None:
    """All instructions of a contraction, k slowest: neighbouring instructions write different accumulators."""
    b = ctx.b
    row = spec.instruction(op.instruction.data)
    intrinsic = intrinsic_of(row)
    fragment_a, fragment_b, fragment_c = instruction_fragments(row)
    layout_a, layout_b, layout_c = ctx.layout(op.a), ctx.layout(op.b), ctx.layout(op.accumulator)
    left, right, accumulators = ctx.tile(op.a), ctx.tile(op.b), list(ctx.tile(op.accumulator))
    together = _packed_steps(layout_a, fragment_a, 1, row)
    packed_a, packed_b = packed(fragment_a, 1, together), packed(fragment_b, 0, together)
    steps = together * instruction_grid(layout_a, packed_a)[1]
    if together != _packed_steps(layout_b, fragment_b, 0, row) or steps != together * instruction_grid(layout_b, packed_b)[0]:
        raise InternalError(f"contraction of {op.a.type} and {op.b.type}: k differs")
    for k in range(steps):
        for m, n in instruction_positions(layout_c, fragment_c):
            where = instruction_registers(layout_c, fragment_c, (m, n))
            held_a = instruction_registers(layout_a, packed_a, (m, k // together))
            held_b = instruction_registers(layout_b, packed_b, (k // together, n))
            x = _operand(ctx, left, _one_of(held_a, k % together, together), intrinsic.operand)
            y = _operand(ctx, right, _one_of(held_b, k % together, together), intrinsic.operand)
            result = issue(b, intrinsic, x, y, ctx.pack([accumulators[register] for register in where]))
            ctx.counts.matrix_instructions += 1
            for register, value in zip(where, ctx.unpack(result), strict=True):
                accumulators[register] = value
            if k == steps - 1 and intrinsic.form != "mfma":
                # LLVM may sink WMMA instructions, over barriers and waits, to the end of a trip that guarded loads divide into blocks.
                b.fake_use(result)
    ctx.bind(op.result, accumulators)


def zero_accumulator(b: Builder, row: MatrixInstruction) -> Value:
    """An accumulator of zeros that no other shares.

    Accumulators that all start from one constant would be copied in every trip of the loop that carries them; written by an
    instruction of their own each, they stay where they are.
    """
    intrinsic = intrinsic_of(row)
    nothing = zero(intrinsic.operand)
    return issue(b, intrinsic, nothing, nothing, zero(intrinsic.accumulator))
