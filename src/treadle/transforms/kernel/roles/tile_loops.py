"""Loops over the tiles that a workgroup takes in turn: what is one, and how many tiles there are."""

from treadle.analysis.root_positions import index_expr
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.stages import StageOp
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.ir.dialects import scf
from treadle.plan.expr import Expr, as_expr, symbol
from treadle.transforms.kernel.kernel_ir import written
from treadle.transforms.kernel.roles.parts import is_fixed


class NoTurns(Exception):
    """What keeps a loop from being one over tiles that workgroups take in turn."""


def starts_at_workgroup(loop: scf.ForOp) -> bool:
    """Whether a loop begins with the workgroup's number, as those over its tiles do."""
    return isinstance(loop.lb.owner, tile.ProgramIdOp) and any(isinstance(op, tile.ContractOp) for op in loop.walk())


def tiles_of(kernel: tile.KernelOp, loop: scf.ForOp) -> Expr:
    """How many tiles there are. Raises NoTurns where the loop is not that over a workgroup's tiles, or their order may matter."""
    first, *others = kernel.grid_text()
    names, arguments = kernel.symbol_names(), kernel.body.block.args
    values = arguments[len(arguments) - len(names) :]
    symbols: dict[SSAValue, Expr] = {value: symbol(name) for name, value in zip(names, values, strict=True)}
    try:
        tiles, step = index_expr(loop.ub, symbols), index_expr(loop.step, symbols)
    except InternalError:
        raise NoTurns("its bounds are not made of sizes") from None
    ids = [op for op in kernel.walk() if isinstance(op, tile.ProgramIdOp)]
    starts = [op for op in ids if op.axis.value.data == 0 and op.result is loop.lb]
    if others != ["1", "1"] or step != as_expr(first) or not starts or ids != starts or len(list(loop.lb.uses)) != 1:
        raise NoTurns("it does not go from the workgroup's number by the number of workgroups")
    if loop.results or not any(isinstance(op, tile.ContractOp) for op in loop.walk()):
        raise NoTurns("it hands something from tile to tile, or multiplies nothing")
    around = [op for op in kernel.body.block.ops if op not in (loop, *starts) and not isinstance(op, tile.ReturnOp)]
    if not all(is_fixed(op) or op.name == "arith.constant" for op in around):
        raise NoTurns("the loop is not all that the kernel does")
    if any(isinstance(op, StageOp | tile.LocalStoreOp | tile.LocalLoadOp | tile.CounterOp) for op in loop.walk()):
        raise NoTurns("its tiles share buffers or counters")
    changed = written(kernel)
    effects = [effect for op in loop.walk() if isinstance(op, HasEffects) for effect in op.effects()]
    if any(_pointer(effect.resource) in changed and effect.access == "read" for effect in effects):
        raise NoTurns("it reads an array that it writes")
    return tiles


def _pointer(resource: SSAValue) -> SSAValue | None:
    return resource.owner.pointer if isinstance(resource.owner, tile.ViewOp) else None
