"""The upstream dialects with our operations added and our stricter ones in place of upstream's."""

from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.mlir_ext.classification import CLASSIFICATIONS
from treadle.dialects.mlir_ext.conditional import IfOp
from treadle.dialects.mlir_ext.contractions import NAMED_OPERATIONS
from treadle.dialects.mlir_ext.copying import BroadcastOp, TransposeOp
from treadle.dialects.mlir_ext.elementwise import ElementwiseKindAttr
from treadle.dialects.mlir_ext.fill import CopyOp, FillOp
from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.mapping import GPU
from treadle.dialects.mlir_ext.reshapes import CollapseShapeOp, ExpandShapeOp
from treadle.dialects.mlir_ext.shapes import BitcastOp, CastOp, EmptyOp, PadOp, RankOp
from treadle.dialects.mlir_ext.slices import ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp
from treadle.dialects.mlir_ext.softmax import SoftmaxOp
from treadle.dialects.mlir_ext.structured import GenericOp, MapOp, ReduceOp
from treadle.dialects.mlir_ext.synonyms import SYNONYMS
from treadle.dialects.mlir_ext.type_fn import TypeFnAttr
from treadle.ir.core import Dialect
from treadle.ir.dialects import affine, linalg, math, scf, tensor
from treadle.ir.extend import extend

SCF = extend(scf.Scf, [ForallOp, IfOp, InParallelOp])
TENSOR = extend(
    tensor.Tensor,
    [
        BitcastOp,
        CastOp,
        CollapseShapeOp,
        EmptyOp,
        ExpandShapeOp,
        ExtractSliceOp,
        InsertSliceOp,
        PadOp,
        ParallelInsertSliceOp,
        RankOp,
    ],
)
MATH = extend(math.Math, CLASSIFICATIONS)
AFFINE = extend(affine.Affine, [MaxOp])
LINALG = extend(
    linalg.Linalg,
    [*NAMED_OPERATIONS, GenericOp, ReduceOp, MapOp, BroadcastOp, TransposeOp, CopyOp, FillOp, SoftmaxOp, *SYNONYMS],
    [ElementwiseKindAttr, TypeFnAttr],
)

MLIR_EXT: tuple[Dialect, ...] = (SCF, TENSOR, MATH, AFFINE, LINALG, GPU)
