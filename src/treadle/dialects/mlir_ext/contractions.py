"""Matrix products of linalg by name, and all other operations of `named_table`."""

from collections.abc import Sequence
from typing import ClassVar

from treadle.dialects.mlir_ext.named import Maps, NamedOp, named_operation
from treadle.dialects.mlir_ext.named_table import NAMED, NamedRow
from treadle.ir.builtin import AffineMapAttr, ArrayAttr
from treadle.ir.core import AffineExpr, AffineMap


def projection_maps(loops: int, *results: Sequence[int]) -> Maps:
    """One indexing map per entry of `results`, which lists the loops of the operand's dimensions."""
    return ArrayAttr([AffineMapAttr(AffineMap(loops, 0, tuple(AffineExpr.dimension(dim) for dim in result))) for result in results])


class MatmulOp(NamedOp):
    """out[m,n] += lhs[m,k] * rhs[k,n]"""

    name = "linalg.matmul"
    ROW: ClassVar[NamedRow] = NAMED["matmul"]


class BatchMatmulOp(NamedOp):
    """out[b,m,n] += lhs[b,m,k] * rhs[b,k,n]"""

    name = "linalg.batch_matmul"
    ROW: ClassVar[NamedRow] = NAMED["batch_matmul"]


_CLASSES: tuple[type[NamedOp], ...] = (MatmulOp, BatchMatmulOp)
NAMED_OPERATIONS: tuple[type[NamedOp], ...] = (
    *_CLASSES,
    *(named_operation(name) for name in NAMED if f"linalg.{name}" not in {kind.name for kind in _CLASSES}),
)
"""One class for each row of the table."""
