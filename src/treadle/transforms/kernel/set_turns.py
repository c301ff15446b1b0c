"""set-turns: decides which loops over tiles are dealt out to roles, and how many sets of warps take a workgroup's tiles in turn.

Level: tile. Reads: a loop that is all a kernel does, from the workgroup's number to the number of tiles by that of the workgroups; what it
multiplies; `turns` of loops, where somebody says how many sets there are to be; the form; the machine's row. Writes: `turns` of that loop,
1 where all warps compute each tile, 2 for sets in ping-pong. Leaves alone: kernels without such a loop, or whose order of tiles could
matter, or of forms without roles, and machines without a producer. Who asked, or wrote a loop from the workgroup's number that multiplies
on a machine with roles, is told what keeps it; their loops have no `turns` then.
"""

from treadle.analysis.element_bytes import tile_bytes
from treadle.dialects import tile
from treadle.dialects.stages import TURNS
from treadle.ir.builtin import IntegerAttr, i64
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.roles.tile_loops import NoTurns, starts_at_workgroup, tiles_of

NAME = "set-turns"
SETS = 2
"""Of warps that take tiles in turn, at most."""
MOST_ACCUMULATORS = 128
"""Registers of a thread for a tile's sums, where the choice is the compiler's."""
MOST_ASKED = 192
"""The same where somebody asks for the sets: what is left of a consumer's registers is little."""


@register_pass
@dataclass(frozen=True)
class SetTurnsPass(KernelPass):
    """Works on kernels whose form is decided."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Decide for the loop of one kernel."""
        loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
        asked = _taken_marks(kernel)
        has_roles = spec.bulk_tensor is not None and spec.register_moves is not None and isinstance(config_of(kernel), roles.Config)
        subject = kernel.sym_name.data
        try:
            if not has_roles:
                raise NoTurns("no warps of their own copy for those that compute")
            if len(loops) != 1 or any(loop is not loops[0] for loop, _ in asked):
                raise NoTurns("the loop is not all that the kernel does")
            tiles_of(kernel, loops[0])
        except NoTurns as problem:
            told = [loop for loop, _ in asked] or [loop for loop in loops if has_roles and starts_at_workgroup(loop)]
            if told:
                emit("refusal", NAME, subject, f"all warps compute each tile: {problem}", location_of(told[0]))
            return
        (loop,), place = loops, location_of(loops[0])
        wanted = asked[0][1] if asked else 0
        reason = _sets_refusal(loop, num_warps(kernel), spec, MOST_ASKED if wanted == SETS else MOST_ACCUMULATORS)
        if wanted not in (0, 1, SETS):
            reason = f"{wanted} sets of warps; there are at most {SETS}"
        sets = SETS if reason is None and wanted != 1 else 1
        loop.attributes[TURNS] = IntegerAttr(sets, i64)
        if sets > 1:
            text = f"{sets} sets of {num_warps(kernel) // sets} warps take the tiles of a workgroup in turn (ping-pong)"
            emit("decision", NAME, subject, text, place)
        elif wanted == 1 or reason is None:
            emit("decision", NAME, subject, "all warps compute each tile", place)
        else:
            emit("refusal", NAME, subject, f"all warps compute each tile: {reason}", place)


def _taken_marks(kernel: tile.KernelOp) -> list[tuple[scf.ForOp, int]]:
    """The loops that say how many sets of warps take their tiles, which they say no longer."""
    found: list[tuple[scf.ForOp, int]] = []
    for op in kernel.body.walk():
        if isinstance(op, scf.ForOp) and isinstance(count := op.attributes.pop(TURNS, None), IntegerAttr):
            found.append((op, count.value.data))
    return found


def _sets_refusal(loop: scf.ForOp, warps: int, spec: TargetSpec, most: int) -> str | None:
    """Why the loop's tiles are not taken in turn by sets of the warps; None where they are."""
    inner = [op for op in loop.body.block.ops if isinstance(op, scf.ForOp)]
    contracts = [op for op in loop.walk() if isinstance(op, tile.ContractOp)]
    if len(inner) != 1 or any(op.parent is not inner[0].body.block or not _reads_arrays(op) for op in contracts):
        return "a tile's products are not one loop of products of what is loaded"
    moves = spec.register_moves
    each = warps // SETS
    if moves is None or warps % SETS or each % moves.warps:
        return f"{warps} warps make no {SETS} sets of whole warpgroups"
    registers = sum(tile_bytes(op.result) for op in contracts) // (4 * each * spec.subgroup_size)
    if registers > most:
        return f"a thread of {each} warps would hold {registers} registers of accumulators"
    rows = [row.m * each // row.warps for op in contracts for row in spec.instructions_for(*_types(op)) if row.warps == moves.warps]
    if not rows or any(tile.tile_type(op.result).get_shape()[0] % min(rows) for op in contracts):
        return f"the rows of a tile are no whole matrix instructions of {each} warps"
    return None


def _types(op: tile.ContractOp) -> tuple[str, str, str]:
    a, b, accumulator = (str(tile.tile_type(value).element_type).replace("f32", "tf32") for value in (op.a, op.b, op.accumulator))
    return a, b, accumulator.replace("tf32", "f32")


def _reads_arrays(contract: tile.ContractOp) -> bool:
    for operand in (contract.a, contract.b):
        owner = operand.owner
        source = owner.source.owner if isinstance(owner, tile.PermuteOp) else owner
        if not isinstance(source, tile.LoadOp) or source.parent is not contract.parent:
            return False
    return True
