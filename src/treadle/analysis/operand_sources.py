"""What an operand of a contraction is computed from, element by element: a load, or another contraction."""

from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import scf


def source_load(value: SSAValue) -> tile.LoadOp | None:
    """The load of the operand's full shape that an operand is computed from by elementwise operations."""
    shape = tile.tile_type(value).get_shape()
    pending, seen = [value], set[SSAValue]()
    while pending:
        current = pending.pop()
        if current in seen or not isinstance(current, OpResult):
            continue
        seen.add(current)
        if tile.tile_type(current).get_shape() != shape:
            continue
        if isinstance(current.op, tile.LoadOp):
            return current.op
        pending.extend(v for v in reversed(current.op.operands) if is_tile(v))
    return None


def chained_contraction(value: SSAValue) -> tile.ContractOp | None:
    """The contraction whose result an operand is computed from element by element, in either case of a branch, with nothing of its shape
    that is loaded.
    """
    shape = tile.tile_type(value).get_shape()
    found: tile.ContractOp | None = None
    pending, seen = [value], set[SSAValue]()
    while pending:
        current = pending.pop()
        owner = current.owner
        if current in seen or not is_tile(current) or tile.tile_type(current).get_shape() != shape:
            continue
        seen.add(current)
        if isinstance(owner, tile.ContractOp):
            found = owner
        elif isinstance(owner, tile.LoadOp | tile.LocalLoadOp | tile.GatherOp):
            return None
        elif isinstance(owner, scf.IfOp):
            pending.extend(branch_values(current))
        elif isinstance(owner, Operation) and owner.name.startswith(("arith.", "math.")):
            pending.extend(owner.operands)
    return found


def branch_values(result: SSAValue) -> list[SSAValue]:
    """What either case of a branch gives for one of its results."""
    branch = result.owner
    if not isinstance(branch, scf.IfOp) or not isinstance(result, OpResult):
        return []
    return [region.block.last_op.operands[result.index] for region in branch.regions if region.blocks and region.block.last_op is not None]
