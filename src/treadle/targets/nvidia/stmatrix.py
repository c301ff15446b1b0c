"""`tile.local_store` by stmatrix: 8 x 8 matrices of 16-bit elements, each row 16 bytes at an address that one lane gives.

Lane l holds two elements of row l / 4 of a matrix, columns 2 (l % 4) and the next (PTX ISA, "stmatrix"); with `.trans` rows and columns
change places. So a tile can be stored this way where the elements of a register pair and of four lanes are the 16 bytes of a row (or, for
`.trans`, those of eight lanes are), and nothing else moves within 16 bytes: a property of the tile's and the buffer's layouts alone.
"""

from collections.abc import Iterator, Mapping, Sequence

from treadle.codegen.llvm_text import I32, Value, i32
from treadle.dialects.tile import LocalStoreOp, ints
from treadle.layout.access import possible_addresses
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass
from treadle.targets.simt.context import Buffer, KernelContext
from treadle.targets.simt.threads import linear
from treadle.targets.simt.types import element_bytes

_ELEMENT_BYTES = 2
_ROW_MASK = 7  # elements within a row of 16 bytes
_MATRIX_BITS = 3  # of the registers of four matrices


@dataclass(frozen=True, slots=True)
class MatrixStore:
    """One instruction: the register pairs of its matrices in order, and the constants of its address in elements."""

    pairs: tuple[tuple[int, int], ...]
    constant_xor: int
    constant_add: int


@dataclass(frozen=True, slots=True)
class StmatrixPlan:
    """Addresses in elements: the XOR of `lane_bits` and `warp_bits` over the set bits, plus the sum of the adds, as in `AddressPlan`.

    `lane_bits[0:3]` are the row that a lane addresses, `[3:5]` the matrix; where an instruction has fewer than four matrices the lanes
    above give addresses that are not used.
    """

    lane_bits: tuple[int, ...]
    warp_bits: tuple[int, ...]
    lane_adds: tuple[int, ...]
    warp_adds: tuple[int, ...]
    stores: tuple[MatrixStore, ...]
    count: int
    is_transposed: bool


def stmatrix_plan(tile: TileLayout, shared: SharedLayout, offsets: Sequence[int]) -> StmatrixPlan | None:
    """How a tile of 16-bit elements is stored by stmatrix, or None where its layout and the buffer's do not allow it."""
    if len(tile.lane) != 5 or not tile.register or tile.replicated_lane_bits() or tile.replicated_warp_bits():
        return None
    plan = possible_addresses(tile, shared, _ELEMENT_BYTES, _ELEMENT_BYTES, offsets)
    if isinstance(plan, str):
        return None
    place = {group.registers[0]: (group.constant_xor, group.constant_add) for group in plan.groups}
    start = place[0]
    steps: list[int] = []  # what each register bit adds to the offset, by XOR
    for bit in range(len(tile.register)):
        xor, add = place[1 << bit]
        if add != start[1]:
            return None
        steps.append(xor ^ start[0])
    if steps[0] == 1 and plan.lane_bits[:2] == (2, 4):
        rows, rest, is_transposed = plan.lane_bits[2:], plan.lane_bits[2:], False
        row_adds = plan.lane_adds[2:]
    elif plan.lane_bits[2:] == (1, 2, 4):
        rows, rest, is_transposed = (steps[0], *plan.lane_bits[:2]), (steps[0], *plan.lane_bits[:2]), True
        row_adds = (0, *plan.lane_adds[:2])
    else:
        return None
    inner_adds = plan.lane_adds[:2] if not is_transposed else plan.lane_adds[2:]
    others = (*rest, *steps[1:], *plan.warp_bits, *plan.lane_adds, *plan.warp_adds, *(v for at in place.values() for v in at[1:]))
    if any(value & _ROW_MASK for value in others) or start[0] & _ROW_MASK or any(inner_adds):
        return None
    steps = steps[:_MATRIX_BITS]
    # Base tiles of 8 columns that follow one another may be matrices of one instruction, too.
    again = [place[1 << bit][0] ^ start[0] for bit in range(len(steps), _MATRIX_BITS) if 1 << bit < tile.num_registers]
    for taken in range(len(again), -1, -1):
        matrices = (*steps[1:], *again[:taken])
        if not any(step & _ROW_MASK for step in matrices) and (stores := _stores(place, (steps[0], *matrices))) is not None:
            lanes = (*rows, *matrices, *[0] * (_MATRIX_BITS - 1 - len(matrices)))
            lane_adds = (*row_adds, 0, 0)
            return StmatrixPlan(lanes, plan.warp_bits, lane_adds, plan.warp_adds, stores, 1 << len(matrices), is_transposed)
    return None


def _stores(place: Mapping[int, tuple[int, int]], steps: Sequence[int]) -> tuple[MatrixStore, ...] | None:
    """Instructions of all registers, `2 ** len(steps)` each; None where some of one differ by more than their own bits' steps."""
    size = 1 << len(steps)
    stores: list[MatrixStore] = []
    for first in range(0, len(place), size):
        xor, add = place[first]
        for j in range(size):
            expected = xor
            for bit, step in enumerate(steps):
                expected ^= step if j >> bit & 1 else 0
            if place.get(first + j) != (expected, add):
                return None
        stores.append(MatrixStore(tuple((first + j, first + j + 1) for j in range(0, size, 2)), xor, add))
    return tuple(stores)


def emit_stmatrix(ctx: KernelContext, op: LocalStoreOp) -> bool:
    """Store a tile by stmatrix where that can be; False where it cannot."""
    layout, buffer = ctx.layout(op.value), ctx.buffer(op.destination)
    if element_bytes(buffer.element) != _ELEMENT_BYTES:
        return False
    plan = stmatrix_plan(layout, buffer.layout, ints(op.offsets))
    if plan is None:
        return False
    b, values = ctx.b, ctx.tile(op.value)
    form = f"stmatrix.sync.aligned.m8n8.x{plan.count}{'.trans' if plan.is_transposed else ''}.shared.b16"
    names = ", ".join(f"${i + 1}" for i in range(plan.count))
    for store, address in zip(plan.stores, row_addresses(ctx, buffer, plan), strict=True):
        words = [_word(ctx, values[low], values[high]) for low, high in store.pairs]
        b.asm(f"{form} [$0], {{{names}}};", ",".join(["r"] * (1 + plan.count) + ["~{memory}"]), [address, *words])
    return True


def row_addresses(ctx: KernelContext, buffer: Buffer, plan: StmatrixPlan) -> Iterator[Value]:
    """The address of the row that the thread gives each instruction of a plan."""
    b, size = ctx.b, _ELEMENT_BYTES
    xor = linear(ctx, [v * size for v in plan.lane_bits], [v * size for v in plan.warp_bits])
    add = linear(ctx, [v * size for v in plan.lane_adds], [v * size for v in plan.warp_adds], add=True)
    mask = 0
    for value in plan.lane_bits + plan.warp_bits:
        mask |= value * size
    base = b.ptrtoint(buffer.address, I32)
    for store in plan.stores:
        toggled = store.constant_xor * size & mask
        fixed = store.constant_xor * size - toggled + store.constant_add * size
        yield b.add(b.add(b.add(b.xor(xor, i32(toggled)), add), base), i32(fixed))


def _word(ctx: KernelContext, low: Value, high: Value) -> Value:
    return ctx.b.bitcast(ctx.pack([low, high]), I32)
