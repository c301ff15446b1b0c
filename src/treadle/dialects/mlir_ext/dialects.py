"""The upstream dialects with our operations added and our stricter ones in place of upstream's."""

from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.mlir_ext.contractions import CONTRACTIONS
from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.mapping import GPU
from treadle.dialects.mlir_ext.slices import ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp
from treadle.ir.core import Dialect
from treadle.ir.dialects import affine, linalg, scf, tensor
from treadle.ir.extend import extend

SCF = extend(scf.Scf, [ForallOp, InParallelOp])
TENSOR = extend(tensor.Tensor, [ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp])
AFFINE = extend(affine.Affine, [MaxOp])
LINALG = extend(linalg.Linalg, CONTRACTIONS)

MLIR_EXT: tuple[Dialect, ...] = (SCF, TENSOR, AFFINE, LINALG, GPU)
