"""The levels of a program, and which one a module is at. See docs/architecture.md."""

from typing import Final, Literal, get_args

from treadle.dialects import dispatch, tile
from treadle.dialects.tile_attributes import TileLayoutAttr
from treadle.ir.builtin import is_tensor
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin

Level = Literal["tensor", "dispatch", "tile", "schedule"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)


def level_of(module: builtin.ModuleOp) -> Level:
    """The level that a module's operations are at: the highest one of them, so that nothing is left behind.

    A tile kernel is at schedule level where every register tile in it has a layout: those that the compiler still has to lay out stand at
    tile level, whether synchronisation is written in them or not.
    """
    tops = list(module.body.block.ops)
    if any(isinstance(op, dispatch.KernelOp) for op in tops):
        return "dispatch"
    kernels = [op for op in tops if isinstance(op, tile.KernelOp)]
    if kernels:
        return "schedule" if all(_is_laid_out(kernel) for kernel in kernels) else "tile"
    return "dispatch" if any(isinstance(op, dispatch.ProgramOp) for op in tops) else "tensor"


def _is_laid_out(kernel: tile.KernelOp) -> bool:
    """Whether all tiles have layouts, or, where there are none, the kernel synchronises."""
    types = [value.type for op in kernel.body.walk() for value in (*op.results, *_arguments(op))]
    tiles = [kind for kind in types if is_tensor(kind)]
    if not tiles:
        return any(op.name.startswith("sync.") for op in kernel.body.walk())
    return all(isinstance(kind.encoding, TileLayoutAttr) for kind in tiles)


def _arguments(op: Operation) -> list[SSAValue]:
    return [argument for region in op.regions for block in region.blocks for argument in block.args]
