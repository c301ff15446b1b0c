"""fold-turns: a loop over the tiles that a workgroup takes in turn becomes the kernel of one tile, of which roles make loops again.

Level: tile. Reads: `turns` of a loop over tiles (set-turns). Writes: the loop's body as that of the kernel, one workgroup a tile; `turns`
of the kernel, how many workgroups take them; where several sets of warps take tiles in turn, `ping_pong` of the form, and the warps of one.
Leaves alone: kernels without such a loop.

*Why it is the same.* The tiles of two workgroups come in no order, for a grid of any size, so no two tiles may touch the same element. So
the tiles of one workgroup need no order either.
"""

from dataclasses import replace

from treadle.dialects import tile
from treadle.dialects.stages import TURNS
from treadle.errors import InternalError
from treadle.ir.builtin import IntegerAttr, StringAttr, i64
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_before, num_warps
from treadle.transforms.kernel.roles.tile_loops import NoTurns, tiles_of

NAME = "fold-turns"


@register_pass
@dataclass(frozen=True)
class FoldTurnsPass(KernelPass):
    """Works on kernels whose loop over tiles has been decided about. InternalError for another one with `turns`."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Fold the loop of one kernel."""
        loop = next((op for op in kernel.body.block.ops if isinstance(op, scf.ForOp) and TURNS in op.attributes), None)
        if loop is None:
            return
        config, sets = config_of(kernel), loop.attributes[TURNS]
        try:
            tiles = tiles_of(kernel, loop)
        except NoTurns as problem:
            raise InternalError(f"{TURNS} of a loop that is not folded: {problem}") from problem
        if not isinstance(sets, IntegerAttr) or not isinstance(config, roles.Config):
            raise InternalError(f"{TURNS} of a loop, in a kernel without roles or not a number")
        place = location_of(loop)
        _fold(kernel, loop, tiles)
        if (count := sets.value.data) > 1:
            kernel.properties["num_warps"] = IntegerAttr(num_warps(kernel) // count, i64)
            # A set multiplies alone: its next step's instructions are issued while the last step's run.
            kernel.config = replace(config, ping_pong=count, steps_in_flight=1).attribute()
        emit("decision", NAME, kernel.sym_name.data, "the kernel is that of one tile, and workgroups take the tiles in turn", place)


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
