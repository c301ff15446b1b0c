"""What the upstream dialects lack, under MLIR's names: import these classes rather than upstream's of the same name.

`scf.forall` and parallel insertions, `affine.max`, contractions of mixed types, structured ops that keep attributes and several results,
and slices, reshapes and shapes that are checked. Where upstream has a class of the name, ours is a subclass of it, except `ReduceOp`,
`BroadcastOp` and `TransposeOp`.
"""

from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.mlir_ext.classification import ClassificationOp, IsFiniteOp, IsInfOp, IsNanOp, IsNormalOp
from treadle.dialects.mlir_ext.contractions import (
    CONTRACTIONS,
    BatchMatmulOp,
    BatchMatvecOp,
    BatchReduceMatmulOp,
    BatchVecmatOp,
    ContractionMixin,
    DotOp,
    MatmulOp,
    MatvecOp,
    VecmatOp,
)
from treadle.dialects.mlir_ext.dialects import MLIR_EXT
from treadle.dialects.mlir_ext.fill import CopyOp, FillOp
from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.linalg_base import (
    IteratorType,
    IteratorTypeAttr,
    LinalgStructuredOperation,
    YieldOp,
    cast_scalar,
    element_type,
)
from treadle.dialects.mlir_ext.loops import loop_extents, verify_structured
from treadle.dialects.mlir_ext.mapping import BlockMappingAttr, MappingAttr, ThreadMappingAttr, WarpMappingAttr
from treadle.dialects.mlir_ext.reshapes import CollapseShapeOp, ExpandShapeOp, reassociation_groups
from treadle.dialects.mlir_ext.shapes import BitcastOp, CastOp, EmptyOp, PadOp, RankOp
from treadle.dialects.mlir_ext.slices import ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp, dropped_dimensions
from treadle.dialects.mlir_ext.softmax import SoftmaxOp
from treadle.dialects.mlir_ext.structured import BroadcastOp, GenericOp, MapOp, ReduceOp, TransposeOp

__all__ = [
    "CONTRACTIONS",
    "MLIR_EXT",
    "BatchMatmulOp",
    "BatchMatvecOp",
    "BatchReduceMatmulOp",
    "BatchVecmatOp",
    "BitcastOp",
    "BlockMappingAttr",
    "BroadcastOp",
    "CastOp",
    "ClassificationOp",
    "CollapseShapeOp",
    "ContractionMixin",
    "CopyOp",
    "DotOp",
    "EmptyOp",
    "ExpandShapeOp",
    "ExtractSliceOp",
    "FillOp",
    "ForallOp",
    "GenericOp",
    "InParallelOp",
    "InsertSliceOp",
    "IsFiniteOp",
    "IsInfOp",
    "IsNanOp",
    "IsNormalOp",
    "IteratorType",
    "IteratorTypeAttr",
    "LinalgStructuredOperation",
    "MapOp",
    "MappingAttr",
    "MatmulOp",
    "MatvecOp",
    "MaxOp",
    "PadOp",
    "ParallelInsertSliceOp",
    "RankOp",
    "ReduceOp",
    "SoftmaxOp",
    "ThreadMappingAttr",
    "TransposeOp",
    "VecmatOp",
    "WarpMappingAttr",
    "YieldOp",
    "cast_scalar",
    "dropped_dimensions",
    "element_type",
    "loop_extents",
    "reassociation_groups",
    "verify_structured",
]
