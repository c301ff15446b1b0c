"""fold-turns: a loop over the tiles that a workgroup takes in turn becomes the kernel of one tile, of which roles make loops again.

Level: tile. Reads: a loop that is all a kernel does, from the workgroup's number to the number of tiles by that of the workgroups; what it
multiplies; `turns` of the loop, where somebody says how many sets of warps take tiles in turn; the form. Writes: the loop's body as that of
the kernel, one workgroup a tile; `turns` of the kernel, how many workgroups take them; where two sets of warps take tiles in turn
(`ping_pong` of the form), the warps of one. Leaves alone: kernels without such a loop, whose order of tiles could matter, of forms
without roles, and on machines without a producer; their loops lose `turns`, with a remark.

*Why it is the same.* The tiles of two workgroups come in no order, for a grid of any size, so no two tiles may touch the same element. So
the tiles of one workgroup need no order either.
"""

from dataclasses import replace

from treadle.analysis.element_bytes import tile_bytes
from treadle.analysis.root_positions import index_expr
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.kernel_form import KernelFormAttr
from treadle.dialects.stages import TURNS, StageOp
from treadle.errors import InternalError
from treadle.ir.builtin import IntegerAttr, StringAttr, i64
from treadle.ir.core import SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.expr import Expr, as_expr, constant, symbol
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_before, num_warps, written
from treadle.transforms.kernel.roles.parts import is_fixed

NAME = "fold-turns"
SETS = 2
"""Of warps that take tiles in turn."""
MOST_ACCUMULATORS = 128
"""Registers of a thread for a tile's sums, where the choice is the compiler's."""
MOST_ASKED = 192
"""The same where somebody asks for the sets: what is left of a consumer's registers is little."""


class _NoTurns(Exception):
    """What keeps a loop from being one over tiles that workgroups take in turn."""


@register_pass
@dataclass(frozen=True)
class FoldTurnsPass(KernelPass):
    """Works on kernels whose form asks for roles."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Fold the loop of one kernel."""
        loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
        asked = _taken_marks(kernel)
        config = config_of(kernel)
        if not asked and (len(loops) != 1 or not isinstance(config, roles.Config)):
            return
        try:
            if spec.bulk_tensor is None or spec.register_moves is None or not isinstance(config, roles.Config):
                raise _NoTurns("no warps of their own copy for those that compute")
            if len(loops) != 1 or any(loop is not loops[0] for loop, _ in asked):
                raise _NoTurns("the loop is not all that the kernel does")
            tiles = _tiles(kernel, loops[0])
            wanted = asked[0][1] if asked else 0
            reason = _sets_refusal(loops[0], num_warps(kernel), spec, MOST_ASKED if wanted == SETS else MOST_ACCUMULATORS)
            if wanted not in (0, 1, SETS):
                reason = f"{wanted} sets of warps; there are at most {SETS}"
        except _NoTurns as problem:
            if asked:
                emit("refusal", NAME, kernel.sym_name.data, f"all warps compute each tile: {problem}", location_of(asked[0][0]))
            return
        place = location_of(loops[0])
        _fold(kernel, loops[0], tiles)
        text = "the kernel is that of one tile, and workgroups take the tiles in turn"
        if reason is None and wanted != 1:
            kernel.properties["num_warps"] = IntegerAttr(num_warps(kernel) // SETS, i64)
            kernel.config = _in_ping_pong(config)
            text += f"; {SETS} sets of {num_warps(kernel)} warps take those of a workgroup in turn (ping-pong)"
        elif wanted > 1:
            emit("refusal", NAME, kernel.sym_name.data, f"all warps compute each tile: {reason}", place)
        emit("decision", NAME, kernel.sym_name.data, text, place)


def _in_ping_pong(config: roles.Config) -> KernelFormAttr:
    """The same in ping-pong. A set multiplies alone: its next step's instructions are issued while the last step's run."""
    return replace(config, ping_pong=SETS, steps_in_flight=1).attribute()


def _taken_marks(kernel: tile.KernelOp) -> list[tuple[scf.ForOp, int]]:
    """The loops that say how many sets of warps take their tiles, which they say no longer."""
    found: list[tuple[scf.ForOp, int]] = []
    for op in kernel.body.walk():
        if isinstance(op, scf.ForOp) and isinstance(count := op.attributes.pop(TURNS, None), IntegerAttr):
            found.append((op, count.value.data))
    return found


def _tiles(kernel: tile.KernelOp, loop: scf.ForOp) -> Expr:
    """How many tiles there are. Raises _NoTurns where the loop is not that over a workgroup's tiles, or their order may matter."""
    first, *others = kernel.grid_text()
    names, arguments = kernel.symbol_names(), kernel.body.block.args
    values = arguments[len(arguments) - len(names) :]
    symbols: dict[SSAValue, Expr] = {value: symbol(name) for name, value in zip(names, values, strict=True)}
    try:
        tiles, step = index_expr(loop.ub, symbols), index_expr(loop.step, symbols)
    except InternalError:
        raise _NoTurns("its bounds are not made of sizes") from None
    ids = [op for op in kernel.walk() if isinstance(op, tile.ProgramIdOp)]
    starts = [op for op in ids if op.axis.value.data == 0 and op.result is loop.lb]
    if others != ["1", "1"] or step != as_expr(first) or not starts or ids != starts or len(list(loop.lb.uses)) != 1:
        raise _NoTurns("it does not go from the workgroup's number by the number of workgroups")
    if loop.results or not any(isinstance(op, tile.ContractOp) for op in loop.walk()):
        raise _NoTurns("it hands something from tile to tile, or multiplies nothing")
    around = [op for op in kernel.body.block.ops if op not in (loop, *starts) and not isinstance(op, tile.ReturnOp)]
    if not all(is_fixed(op) or op.name == "arith.constant" for op in around):
        raise _NoTurns("the loop is not all that the kernel does")
    if any(isinstance(op, StageOp | tile.LocalStoreOp | tile.LocalLoadOp | tile.ArriveLastOp) for op in loop.walk()):
        raise _NoTurns("its tiles share buffers or counters")
    changed = written(kernel)
    effects = [effect for op in loop.walk() if isinstance(op, HasEffects) for effect in op.effects()]
    if any(_pointer(effect.resource) in changed and effect.access == "read" for effect in effects):
        raise _NoTurns("it reads an array that it writes")
    return tiles


def _pointer(resource: SSAValue) -> SSAValue | None:
    return resource.owner.pointer if isinstance(resource.owner, tile.ViewOp) else None


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


def _fold(kernel: tile.KernelOp, loop: scf.ForOp, tiles: Expr) -> None:
    """Let the body be the kernel's."""
    block = loop.body.block
    block.args[0].replace_all_uses_with(loop.lb)
    for op in list(block.ops):
        if not isinstance(op, scf.YieldOp):
            op.detach()
            insert_before(loop, op)
    kernel.attributes[TURNS] = StringAttr(kernel.grid_text()[0])
    kernel.set_grid([str(tiles), str(constant(1)), str(constant(1))])
    erase(loop)
