"""`tile.contract` as warpgroup matrix instructions (wgmma) on shared buffers.

Descriptors (PTX ISA, "Asynchronous warpgroup level matrix shared memory layout", matrix descriptor): bits 0-13 address >> 4, 16-29 leading
byte offset >> 4, 32-45 stride byte offset >> 4, 62-63 the swizzle (1: 128 B, 2: 64 B, 3: 32 B). K-major operands: stride = 8 rows, leading
ignored. MN-major ones: leading = distance of neighbouring blocks of one row's width along M or N, stride = 8 rows along K.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.codegen.llvm_text import F32, I32, I64, Value, i64, structure
from treadle.dialects.tile import ContractOp, tile_type
from treadle.errors import InternalError
from treadle.layout.bits import pack
from treadle.layout.fragments import wgmma_accumulator
from treadle.layout.tile_layout import TileLayout
from treadle.machine import MatrixInstruction
from treadle.targets.nvidia.swizzle import SwizzledRows, recognise
from treadle.targets.simt.context import Buffer, KernelContext
from treadle.targets.simt.threads import linear
from treadle.targets.simt.types import element_bytes

_SWIZZLE_CODE = {128: 1, 64: 2, 32: 3}
_PTX_TYPES = {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "i8": "s8", "f32": "f32", "i32": "s32"}


@dataclass(frozen=True, slots=True)
class Operand:
    """A or B in shared memory: `mn` and `k` are its dimensions along M or N and along K."""

    buffer: Buffer
    rows: SwizzledRows
    mn: int
    k: int

    @property
    def is_k_major(self) -> bool:
        """Contiguous along K."""
        return self.rows.inner == self.k

    def byte_offset(self, mn: int, k: int) -> int:
        """Of an element, within the buffer; rows at multiples of 8 are not moved by the swizzle."""
        at = [0, 0]
        at[self.mn], at[self.k] = mn, k
        return self.buffer.layout.offset_of(at) * element_bytes(self.buffer.element)

    def template(self) -> int:
        """The descriptor without its address."""
        size, width = element_bytes(self.buffer.element), self.rows.row_bytes
        leading = 1
        if not self.is_k_major:
            columns = width // size
            extent = self.buffer.layout.shape[self.mn]
            leading = self.byte_offset(columns, 0) >> 4 if extent > columns else 1
        return _SWIZZLE_CODE[width] << 62 | (8 * width >> 4) << 32 | leading << 16


def _operand(ctx: KernelContext, op: ContractOp, which: str, row: MatrixInstruction) -> Operand:
    value = op.a if which == "a" else op.b
    buffer = ctx.buffer(value)
    mn, k = (0, 1) if which == "a" else (1, 0)
    rows = recognise(buffer.layout, element_bytes(buffer.element))
    operand = Operand(buffer, rows, mn, k)
    if not rows.row_bytes:
        raise InternalError(f"wgmma operand without a swizzle: {buffer.layout.to_lists()}")
    if row.k_major_only and not operand.is_k_major:
        raise InternalError(f"{row.name} needs operands contiguous along k, got {buffer.layout.to_lists()}")
    # Along K, an instruction must stay within one row of a K-major operand, or cover whole groups of 8 rows of an MN-major one.
    if operand.is_k_major and rows.row_bytes % (row.k * element_bytes(buffer.element)):
        raise InternalError(f"{row.name} on rows of {rows.row_bytes} bytes")
    if buffer.byte_offset % (8 * rows.row_bytes):
        raise InternalError(f"wgmma operand at {buffer.byte_offset}, which is not aligned to its swizzle")
    return operand


@dataclass(frozen=True, slots=True)
class Tile:
    """One instruction's part of the accumulator: its origin in the first warpgroup, its width, its registers."""

    m: int
    n: int
    width: int
    registers: tuple[int, ...]


def accumulator_tiles(layout: TileLayout, row: MatrixInstruction) -> list[Tile]:
    """Split the accumulator of a warpgroup into instructions, as wide as they come. Raises InternalError for other layouts."""
    narrow = wgmma_accumulator(8)
    if layout.lane != narrow.lane or layout.warp[:2] != narrow.warp:
        raise InternalError(f"accumulator of {row.name} in the layout {layout.to_lists()}")
    where: dict[int, int] = {}
    for register, key in enumerate(layout.register_keys()):
        where.setdefault(key, register)
    origins = sorted({(m, n) for _, (m, n) in layout.registers() if m % 64 == 0 and n % 8 == 0})
    limit, step = row.n, row.n_step
    tiles: list[Tile] = []
    at = 0
    while at < len(origins):
        m, n = origins[at]
        count = 1
        while at + count < len(origins) and origins[at + count] == (m, n + 8 * count) and 8 * (count + 1) <= limit:
            count += 1
        width = _whole(8 * count, step)
        if not width:
            raise InternalError(f"{row.name} on {8 * count} columns")
        keys = wgmma_accumulator(width).register_keys()
        tiles.append(Tile(m, n, width, tuple(where[pack((m, n)) + key] for key in keys)))
        at += width // 8
    if sorted(r for t in tiles for r in t.registers) != list(range(layout.num_registers)):
        raise InternalError(f"accumulator of {row.name} in the layout {layout.to_lists()}")
    return tiles


def _whole(width: int, step: int) -> int:
    """The widest instruction within `width`; for integers (step 32 in the row) 8, 16, 24 and multiples of 16 exist, kept to the step."""
    return width // step * step if width >= step else 0


def instruction_text(row: MatrixInstruction, width: int, transposed: tuple[bool, bool]) -> str:
    """The asm template: registers $0.., then the descriptors of A and B behind the tied inputs."""
    count = width // 2
    names = ", ".join(f"${i}" for i in range(count))
    a, b, acc = _PTX_TYPES[row.a_type], _PTX_TYPES[row.b_type], _PTX_TYPES[row.accumulator_type]
    tail = "p"
    if acc != "s32":
        tail += ", 1, 1"
    if a in ("f16", "bf16"):
        tail += f", {int(transposed[0])}, {int(transposed[1])}"
    return (
        "{ .reg .pred p; setp.ne.b32 p, 1, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{width}k{row.k}.{acc}.{a}.{b} {{{names}}}, ${2 * count}, ${2 * count + 1}, {tail}; }}"
    )


def _issue(ctx: KernelContext, row: MatrixInstruction, text: str, sums: Sequence[Value], a: Value, b: Value) -> list[Value]:
    count = len(sums)
    letter = "f" if sums[0].type == F32 else "r"
    constraints = ",".join([f"={letter}"] * count + [str(i) for i in range(count)] + ["l", "l"])
    result = ctx.b.asm(text, constraints, [*sums, a, b], structure([sums[0].type] * count))
    ctx.counts.matrix_instructions += 1
    _ = row
    return [ctx.b.extract_value(result, i) for i in range(count)]


def _bases(operand: Operand, deltas: Sequence[int], ctx: KernelContext, base: Value) -> Value:
    """The descriptor of the operand's origin for this thread's warpgroup, with all constant fields."""
    b = ctx.b
    moved = linear(ctx, [], [0, 0, *(d >> 4 for d in deltas)], add=True)
    start = b.zext(b.add(base, moved), I64)
    return b.add(start, i64(operand.template() + (operand.buffer.byte_offset >> 4)))


def emit_wgmma(ctx: KernelContext, op: ContractOp, row: MatrixInstruction) -> None:
    """Issue the instructions of one contraction; the result is in flight until the queue "wgmma" is waited for."""
    b = ctx.b
    if tile_type(op.accumulator).element_type != tile_type(op.result).element_type or ctx.warps % 4:
        raise InternalError(f"{row.name} in a kernel of {ctx.warps} warps")
    layout = ctx.layout(op.accumulator)
    left, right = _operand(ctx, op, "a", row), _operand(ctx, op, "b", row)
    groups = layout.warp[2:]
    tiles = accumulator_tiles(layout, row)
    k_extent = op.operand_shape(op.a)[1]
    if k_extent % row.k:
        raise InternalError(f"{row.name} over k = {k_extent}")
    left_deltas = [left.byte_offset(basis[0], 0) for basis in groups]
    right_deltas = [right.byte_offset(basis[1], 0) for basis in groups]
    _check_additive(left, [basis[0] for basis in groups], [t.m for t in tiles])
    _check_additive(right, [basis[1] for basis in groups], [t.n for t in tiles])
    base = b.lshr(b.ptrtoint(ctx.shared, I32), Value(I32, "4", 4))
    a_base, b_base = _bases(left, left_deltas, ctx, base), _bases(right, right_deltas, ctx, base)
    sums = list(ctx.tile(op.accumulator))
    b.asm("wgmma.fence.sync.aligned;", "~{memory}")
    for k in range(0, k_extent, row.k):
        for tile in tiles:
            text = instruction_text(row, tile.width, (not left.is_k_major, not right.is_k_major))
            a = b.add(a_base, i64(left.byte_offset(tile.m, k) >> 4))
            other = b.add(b_base, i64(right.byte_offset(tile.n, k) >> 4))
            results = _issue(ctx, row, text, [sums[r] for r in tile.registers], a, other)
            for register, value in zip(tile.registers, results, strict=True):
                sums[register] = value
    ctx.in_flight.pop(op.accumulator, None)
    ctx.in_flight[op.result] = None
    ctx.bind(op.result, sums)


def _check_additive(operand: Operand, group_steps: Sequence[int], origins: Sequence[int]) -> None:
    """The address of a warpgroup's tile must be the sum of the group's and the tile's parts."""
    for count in range(1 << len(group_steps)):
        start = sum(step for bit, step in enumerate(group_steps) if count >> bit & 1)
        part = sum(operand.byte_offset(step, 0) for bit, step in enumerate(group_steps) if count >> bit & 1)
        for origin in origins:
            if operand.byte_offset(start + origin, 0) != part + operand.byte_offset(origin, 0):
                raise InternalError(f"warpgroups do not step evenly through {operand.buffer.layout.to_lists()}")


def wait_text(pending: int) -> str:
    """`wgmma.wait_group`."""
    return f"wgmma.wait_group.sync.aligned {pending};"
