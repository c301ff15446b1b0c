"""Which loops overlap their iterations where nobody asks."""

from treadle.dialects import tile
from treadle.ir.dialects import scf
from treadle.machine import TargetSpec


def overlaps_unasked(loop: scf.ForOp, spec: TargetSpec) -> bool:
    """Whether a loop contracts on a machine whose loops then overlap, or contracts in the vector units what copies bring: no other
    workgroup hides these, for accumulators take the registers.
    """
    body = list(loop.body.walk())
    contracts = [op for op in body if isinstance(op, tile.ContractOp)]
    if not contracts or spec.pipelines_contractions:
        return bool(contracts)
    return all(op.instruction.data == "fma" for op in contracts) and any(isinstance(op, tile.CopyOp) for op in body)
