"""What the upstream dialects lack: `scf.forall`, parallel insertions, `affine.max`, mixed-type contractions, strict slices and reshapes."""

from treadle.dialects.mlir_ext.affine_max import MaxOp
from treadle.dialects.mlir_ext.dialects import MLIR_EXT
from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.mapping import BlockMappingAttr, MappingAttr, ThreadMappingAttr, WarpMappingAttr
from treadle.dialects.mlir_ext.slices import ExtractSliceOp, InsertSliceOp, ParallelInsertSliceOp

__all__ = [
    "MLIR_EXT",
    "BlockMappingAttr",
    "ExtractSliceOp",
    "ForallOp",
    "InParallelOp",
    "InsertSliceOp",
    "MappingAttr",
    "MaxOp",
    "ParallelInsertSliceOp",
    "ThreadMappingAttr",
    "WarpMappingAttr",
]
