"""`tile.contract` as warpgroup matrix instructions (wgmma) on shared buffers, A from registers too.

Descriptors (PTX ISA, "Asynchronous warpgroup level matrix shared memory layout", matrix descriptor): bits 0-13 address >> 4, 16-29 leading
byte offset >> 4, 32-45 stride byte offset >> 4, 62-63 the swizzle (1: 128 B, 2: 64 B, 3: 32 B). K-major operands: stride = 8 rows, leading
ignored. MN-major ones: leading = distance of neighbouring blocks of one row's width along M or N, stride = 8 rows along K.
"""

from collections.abc import Sequence

from treadle.codegen.llvm_text import F32, I32, I64, Value, i32, i64, structure, zero
from treadle.dialects.tile import ContractOp, tile_type
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.layout.bits import pack
from treadle.layout.tile_layout import TileLayout
from treadle.machine import MatrixInstruction
from treadle.machine.fragments import wgmma_accumulator
from treadle.records import dataclass
from treadle.targets.nvidia.register_operand import register_operand
from treadle.targets.nvidia.swizzle import SwizzledRows, recognise
from treadle.targets.simt.context import Buffer, KernelContext
from treadle.targets.simt.roles import moved_by
from treadle.targets.simt.threads import linear
from treadle.targets.simt.types import element_bytes

_ADDRESS_MASK = 0x3FFFF  # what a descriptor holds of an address, once its last four bits are gone
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
    if any(at % (8 * rows.row_bytes) for at in (buffer.byte_offset, *(step for _, step in buffer.terms))):
        raise InternalError(f"wgmma operand at {buffer.byte_offset} (slots {buffer.terms}), which is not aligned to its swizzle")
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


def within_columns(tiles: Sequence[Tile], columns: int) -> list[Tile]:
    """The parts of instructions that compute the first `columns` columns. Accumulators of 8 columns follow one another in the registers."""
    found: list[Tile] = []
    for part in tiles:
        width = min(part.width, columns - part.n)
        if width > 0:
            found.append(Tile(part.m, part.n, width, part.registers[: len(part.registers) * width // part.width]))
    return found


def _whole(width: int, step: int) -> int:
    """The widest instruction within `width`; for integers (step 32 in the row) 8, 16, 24 and multiples of 16 exist, kept to the step."""
    return width // step * step if width >= step else 0


def instruction_text(
    row: MatrixInstruction, width: int, transposed: tuple[bool, bool], registers: Sequence[int], a: Sequence[int], b: int, adds: str
) -> str:
    """One instruction of an asm template. `registers`, `a`, `b`: numbers of the operands that are its accumulators and descriptors, of A
    several where it comes from registers; `adds`: what is 0 where it starts from nothing instead of adding to them.
    """
    names = ", ".join(f"${number}" for number in registers)
    a_type, b_type, acc = _PTX_TYPES[row.a_type], _PTX_TYPES[row.b_type], _PTX_TYPES[row.accumulator_type]
    tail = "p"
    if acc != "s32":
        tail += ", 1, 1"
    if a_type in ("f16", "bf16"):
        tail += f", {int(transposed[0])}, {int(transposed[1])}" if len(a) == 1 else f", {int(transposed[1])}"
    left = f"${a[0]}" if len(a) == 1 else f"{{{', '.join(f'${number}' for number in a)}}}"
    return (
        f"{{ .reg .pred p; setp.ne.b32 p, {adds}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{width}k{row.k}.{acc}.{a_type}.{b_type} {{{names}}}, {left}, ${b}, {tail}; }}"
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """What a contraction's first instructions add to: "zero" (nothing: the registers are outputs alone), "sum" (the registers, tied inputs)
    or "either" (as "sum", or "zero" where `adds` is 0).
    """

    kind: str
    adds: Value | None = None


@dataclass(frozen=True, slots=True)
class _Instruction:
    """A part of the accumulators with its operands: descriptors, or the registers of A; `begins`: none before it has the same part."""

    tile: Tile
    a: tuple[Value, ...]
    b: Value
    begins: bool


def _issue(
    ctx: KernelContext,
    row: MatrixInstruction,
    transposed: tuple[bool, bool],
    chain: Sequence[_Instruction],
    start: _Start,
    accumulators: Sequence[Value],
) -> list[Value]:
    """A contraction's instructions as one asm block: its accumulators are written down once, which LLVM's time goes with."""
    count = len(accumulators)
    letter = "f" if accumulators[0].type == F32 else "r"
    tied = [] if start.kind == "zero" else list(accumulators)
    first = count + len(tied)
    descriptors = list(dict.fromkeys(value for step in chain for value in (*step.a, step.b)))
    number = {value: first + at for at, value in enumerate(descriptors)}
    begin = {"zero": "0", "sum": "1", "either": f"${first + len(descriptors)}"}[start.kind]
    lines = [
        instruction_text(
            row,
            step.tile.width,
            transposed,
            step.tile.registers,
            [number[v] for v in step.a],
            number[step.b],
            begin if step.begins else "1",
        )
        for step in chain
    ]
    flag = [] if start.adds is None else [start.adds]
    constraints = ",".join(
        [f"={letter}"] * count
        + [str(i) for i in range(len(tied))]
        + ["l" if value.type == I64 else "r" for value in descriptors]
        + ["r"] * len(flag)
    )
    result = ctx.b.asm(" ".join(lines), constraints, [*tied, *descriptors, *flag], structure([accumulators[0].type] * count))
    ctx.counts.matrix_instructions += len(chain)
    return [ctx.b.extract_value(result, i) for i in range(count)]


@dataclass(frozen=True, slots=True)
class _Descriptor:
    """The descriptor of an operand's origin for this thread's warpgroup: the low word varies, the high word is constant."""

    low: Value
    high: int

    def at(self, ctx: KernelContext, byte_offset: int) -> Value:
        """The descriptor `byte_offset` further on. The low word alone is added to: no address reaches its bit 14."""
        low = ctx.b.zext(ctx.b.add(self.low, i32(byte_offset >> 4)), I64)
        return ctx.b.or_(low, i64(self.high << 32), "disjoint")


def _descriptor(operand: Operand, deltas: Sequence[int], ctx: KernelContext) -> _Descriptor:
    b = ctx.b
    address = b.ptrtoint(ctx.shared, I32)
    if ctx.kernel.cluster_size() > 1:
        # In a cluster the workgroup's rank stands above the address, where the descriptor has its leading byte offset.
        address = b.and_(address, i32(_ADDRESS_MASK))
    base = b.lshr(address, i32(4))
    template = operand.template()
    fixed = (template & 0xFFFFFFFF) + (operand.buffer.byte_offset >> 4)
    low = b.add(b.add(base, linear(ctx, [], [0, 0, *(d >> 4 for d in deltas)], add=True)), moved_by(ctx, operand.buffer, 16))
    return _Descriptor(b.add(low, i32(fixed)), template >> 32)


def _start(ctx: KernelContext, op: ContractOp) -> _Start:
    if all(value.text == zero(value.type).text for value in ctx.tile(op.accumulator)):
        # Moving zeros into registers would stand between the fence and the instruction.
        return _Start("zero")
    adds = ctx.accumulate.get(op.accumulator)
    return _Start("sum") if adds is None else _Start("either", ctx.b.zext(adds, I32))


_FENCE = "wgmma.fence.sync.aligned;"


def _gives_accumulators(op: Operation) -> bool:
    """Whether an operation's result already lies in the registers of a matrix instruction, perhaps still being written."""
    return isinstance(op, ContractOp | scf.ForOp | scf.IfOp)


def _through_fence(ctx: KernelContext, values: Sequence[Value]) -> list[Value]:
    """Values computed otherwise pass through the fence: they are in the instructions' registers before it, none is moved behind it."""
    if not values:
        ctx.b.asm(_FENCE, "~{memory}")
        return []
    letters = [f"={'f' if value.type == F32 else 'r'}" for value in values]
    constraints = ",".join([*letters, *(str(i) for i in range(len(values))), "~{memory}"])
    passed = ctx.b.asm(_FENCE, constraints, values, structure([value.type for value in values]))
    return [ctx.b.extract_value(passed, i) for i in range(len(values))]


def emit_wgmma(ctx: KernelContext, op: ContractOp, row: MatrixInstruction) -> None:
    """Issue the instructions of one contraction; the result is in flight until the queue "wgmma" is waited for."""
    if tile_type(op.accumulator).element_type != tile_type(op.result).element_type or ctx.warps % 4:
        raise InternalError(f"{row.name} in a kernel of {ctx.warps} warps")
    layout = ctx.layout(op.accumulator)
    left = _operand(ctx, op, "a", row) if is_shared(op.a.type) else None
    right = _operand(ctx, op, "b", row)
    groups = layout.warp[2:]
    tiles = within_columns(accumulator_tiles(layout, row), op.defined_columns())
    if any(tile.width % row.n_step for tile in tiles):
        raise InternalError(f"{row.name} on {op.defined_columns()} columns")
    k_extent = op.operand_shape(op.a)[1]
    if k_extent % row.k:
        raise InternalError(f"{row.name} over k = {k_extent}")
    right_deltas = [right.byte_offset(basis[1], 0) for basis in groups]
    _check_additive(right, [basis[1] for basis in groups], [t.n for t in tiles])
    registers = register_operand(ctx, op, row, [t.m for t in tiles]) if left is None else None
    a_base = None if left is None else _left_base(ctx, left, [basis[0] for basis in groups], tiles)
    b_base = _descriptor(right, right_deltas, ctx)
    accumulators, start = list(ctx.tile(op.accumulator)), _start(ctx, op)
    is_computed = start.kind == "sum" and isinstance(op.accumulator.owner, Operation) and not _gives_accumulators(op.accumulator.owner)
    # What an earlier contraction of the chain holds has passed a fence, and nothing has been written to it since.
    before = _held_before(op, ctx) if registers is not None else None
    words = [] if registers is None or before is not None else list(registers.words)
    passed = _through_fence(ctx, [*(accumulators if is_computed else []), *words])
    if is_computed:
        accumulators = passed[: len(accumulators)]
    if registers is not None:
        registers = registers.through(passed[len(passed) - len(words) :] if before is None else before)
        ctx.held[op] = list(registers.words)

    def left_part(m: int, k: int) -> tuple[Value, ...]:
        if registers is not None:
            return registers.at(m, k)
        if left is None or a_base is None:
            raise InternalError(f"{row.name} without its operand A")
        return (a_base.at(ctx, left.byte_offset(m, k)),)

    chain = [
        _Instruction(tile, left_part(tile.m, k), b_base.at(ctx, right.byte_offset(tile.n, k)), begins=k == 0)
        for k in range(0, k_extent, row.k)
        for tile in tiles
    ]
    ctx.bind(op.result, _issue(ctx, row, (left is not None and not left.is_k_major, not right.is_k_major), chain, start, accumulators))


def _held_before(op: ContractOp, ctx: KernelContext) -> list[Value] | None:
    """The registers of the same operand in the contractions that this one goes on from, which are all in flight; None where it is new."""
    before = op.accumulator.owner
    while isinstance(before, ContractOp) and before.parent is op.parent and before in ctx.held:
        if before.a is op.a:
            return ctx.held[before]
        before = before.accumulator.owner
    return None


def _left_base(ctx: KernelContext, left: Operand, group_steps: Sequence[int], tiles: Sequence[Tile]) -> _Descriptor:
    _check_additive(left, group_steps, [tile.m for tile in tiles])
    return _descriptor(left, [left.byte_offset(step, 0) for step in group_steps], ctx)


def _check_additive(operand: Operand, group_steps: Sequence[int], origins: Sequence[int]) -> None:
    """The address of a warpgroup's tile must be the sum of the group's and the tile's parts."""
    for count in range(1 << len(group_steps)):
        start = sum(step for bit, step in enumerate(group_steps) if count >> bit & 1)
        part = sum(operand.byte_offset(step, 0) for bit, step in enumerate(group_steps) if count >> bit & 1)
        for origin in origins:
            if operand.byte_offset(start + origin, 0) != part + operand.byte_offset(origin, 0):
                raise InternalError(f"warpgroups do not step evenly through {operand.buffer.layout.to_lists()}")


def _is_carried(ctx: KernelContext, tile: SSAValue) -> bool:
    """Whether a tile goes to further contractions of its block, which are as fixed in place as a wait, and around a loop or out of it.

    From behind a loop that makes one trip readers could move up to the instructions.
    """

    def is_fixed(user: Operation) -> bool:
        if isinstance(user, ContractOp):
            return True
        loop = user.parent_op()
        return isinstance(user, scf.YieldOp) and isinstance(loop, scf.ForOp) and ctx.ranges.may_repeat(loop)

    return isinstance(tile.owner, ContractOp) and all(is_fixed(use.operation) for use in tile.uses)


def emit_wait(ctx: KernelContext, pending: int) -> None:
    """Wait for all but `pending` groups. The tiles that this makes ready pass through, so that no reader can move above; no others do.

    Nor do those that only further matrix instructions read, or whoever stands behind the loop: neither can move.
    """
    b, tiles = ctx.b, [tile for tile in ctx.retired if not _is_carried(ctx, tile)]
    text = f"wgmma.wait_group.sync.aligned {pending};"
    ctx.counts.matrix_waits += 1
    live = ctx.flatten(tiles)
    held = list(dict.fromkeys(word for contraction in ctx.released for word in ctx.held[contraction]))
    if not live:
        b.asm(text, ",".join([*["r"] * len(held), "~{memory}"]), held)
        return
    letters = ["f" if v.type == F32 else "r" for v in live]
    constraints = ",".join([*(f"={c}" for c in letters), *(str(i) for i in range(len(live))), *["r"] * len(held), "~{memory}"])
    result = b.asm(text, constraints, [*live, *held], structure([v.type for v in live]) if len(live) > 1 else live[0].type)
    ctx.bind_flat(tiles, [b.extract_value(result, i) for i in range(len(live))] if len(live) > 1 else [result])
