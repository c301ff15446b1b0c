"""The upstream dialects with our operations added and our stricter ones in place of upstream's."""

from collections.abc import Iterable

from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.mlir_ext.contractions import CONTRACTIONS
from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.mapping import GPU
from treadle.dialects.mlir_ext.slices import ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp
from treadle.ir.core import Dialect, Operation
from treadle.ir.dialects import affine, linalg, scf, tensor


def extend(base: Dialect, operations: Iterable[type[Operation]]) -> Dialect:
    """`base` with `operations` added, each taking the place of the one of the same name."""
    merged = {op.name: op for op in base.operations}
    merged.update({op.name: op for op in operations})
    return Dialect(base.name, list(merged.values()), list(base.attributes))


SCF = extend(scf.Scf, [ForallOp, InParallelOp])
TENSOR = extend(tensor.Tensor, [ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp])
AFFINE = extend(affine.Affine, [MaxOp])
LINALG = extend(linalg.Linalg, CONTRACTIONS)

MLIR_EXT: tuple[Dialect, ...] = (SCF, TENSOR, AFFINE, LINALG, GPU)
