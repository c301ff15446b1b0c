"""What the upstream dialects lack, under MLIR's names: import these classes rather than upstream's of the same name.

`scf.forall` and parallel insertions, `affine.max`, contractions of mixed types, structured ops that keep attributes and several results,
and slices, reshapes and shapes that are checked. Where upstream has a class of the name, ours is a subclass of it, except `ReduceOp`,
`BroadcastOp` and `TransposeOp`.
"""

from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.mlir_ext.classification import ClassificationOp, IsFiniteOp, IsInfOp, IsNanOp, IsNormalOp
from treadle.dialects.mlir_ext.contractions import NAMED_OPERATIONS, BatchMatmulOp, MatmulOp
from treadle.dialects.mlir_ext.copying import BroadcastOp, TransposeOp
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
from treadle.dialects.mlir_ext.named import NamedOp
from treadle.dialects.mlir_ext.reshapes import CollapseShapeOp, ExpandShapeOp, reassociation_groups
from treadle.dialects.mlir_ext.shapes import BitcastOp, CastOp, EmptyOp, PadOp, RankOp
from treadle.dialects.mlir_ext.slices import ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp, dropped_dimensions
from treadle.dialects.mlir_ext.softmax import SoftmaxOp
from treadle.dialects.mlir_ext.structured import GenericOp, MapOp, ReduceOp
from treadle.dialects.mlir_ext.type_fn import TypeFnAttr

__all__ = [
    "MLIR_EXT",
    "NAMED_OPERATIONS",
    "BatchMatmulOp",
    "BitcastOp",
    "BlockMappingAttr",
    "BroadcastOp",
    "CastOp",
    "ClassificationOp",
    "CollapseShapeOp",
    "CopyOp",
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
    "MaxOp",
    "NamedOp",
    "PadOp",
    "ParallelInsertSliceOp",
    "RankOp",
    "ReduceOp",
    "SoftmaxOp",
    "ThreadMappingAttr",
    "TransposeOp",
    "TypeFnAttr",
    "WarpMappingAttr",
    "YieldOp",
    "cast_scalar",
    "dropped_dimensions",
    "element_type",
    "loop_extents",
    "reassociation_groups",
    "verify_structured",
]
