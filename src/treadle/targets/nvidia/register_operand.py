"""A of a warpgroup matrix instruction from registers: its fragments as 32-bit words, four for each instruction.

They are read while the instruction is in flight, so they pass through the fence ahead of it and are kept until a wait retires it (PTX ISA,
"Asynchronous warpgroup level matrix instructions", wgmma.fence: accesses to registers of A and of the accumulator).
"""

from collections.abc import Sequence

from treadle.codegen.llvm_text import I32, Value
from treadle.dialects.tile import ContractOp
from treadle.errors import InternalError
from treadle.layout.bits import pack
from treadle.layout.tile_layout import TileLayout
from treadle.machine import MatrixInstruction
from treadle.records import dataclass
from treadle.targets.nvidia.tf32 import rounded
from treadle.targets.simt.context import KernelContext

WORDS = 4
"""32-bit registers of A that a thread gives to one instruction."""


@dataclass(frozen=True, slots=True)
class RegisterOperand:
    """A's registers as `words`; instruction (m, k), by its origin in the first warpgroup, reads those at `places[m, k]`."""

    words: tuple[Value, ...]
    places: dict[tuple[int, int], tuple[int, ...]]

    def at(self, m: int, k: int) -> tuple[Value, ...]:
        """The registers of one instruction."""
        return tuple(self.words[place] for place in self.places[m, k])

    def through(self, words: Sequence[Value]) -> "RegisterOperand":
        """The same operand in registers that have passed a fence."""
        return RegisterOperand(tuple(words), self.places)


def register_operand(ctx: KernelContext, op: ContractOp, row: MatrixInstruction, origins: Sequence[int]) -> RegisterOperand:
    """The operand of a contraction whose instructions begin at rows `origins`. Raises InternalError for a layout that is not A's."""
    if row.layouts.a is None:
        raise InternalError(f"{row.name} reads A from shared memory only")
    values = ctx.tile(op.a)
    if row.a_type == "tf32":
        values = rounded(ctx, values)
    places: dict[tuple[int, int], tuple[int, ...]] = {}
    words: list[Value] = []
    for origin, registers in operand_registers(ctx.layout(op.a), row.layouts.a(), row.k, origins).items():
        elements, each = [values[register] for register in registers], len(registers) // WORDS
        places[origin] = tuple(range(len(words), len(words) + WORDS))
        words += [ctx.b.bitcast(ctx.pack(elements[at : at + each]), I32) for at in range(0, len(elements), each)]
    return RegisterOperand(tuple(words), places)


def operand_registers(
    layout: TileLayout, fragment: TileLayout, k_step: int, origins: Sequence[int]
) -> dict[tuple[int, int], tuple[int, ...]]:
    """The registers of a tile of A that each instruction reads, in its order, by the instruction's origin (m, k) in the first warpgroup."""
    if layout.lane != fragment.lane or layout.warp[: len(fragment.warp)] != fragment.warp:
        raise InternalError(f"A of a warpgroup in the layout {layout.to_lists()}")
    where: dict[int, int] = {}
    for register, key in enumerate(layout.register_keys()):
        where.setdefault(key, register)
    keys = fragment.register_keys()
    starts = [(m, k) for m in dict.fromkeys(origins) for k in range(0, layout.shape[1], k_step)]
    return {start: tuple(where[pack(start) + key] for key in keys) for start in starts}
