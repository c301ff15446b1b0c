"""What every structured linalg operation must satisfy: loop extents that agree, and results of the types of the outputs."""

from treadle.dialects.mlir_ext.linalg_base import LinalgStructuredOperation
from treadle.ir.builtin import ShapedType, tensor_types
from treadle.ir.core import DYNAMIC_INDEX, AffineDimExpr, VerifyException


def loop_extents(op: LinalgStructuredOperation) -> list[int]:
    """The extent of each loop as the static dimensions give it, `DYNAMIC_INDEX` where no operand says.

    Raises `VerifyException` where two operands disagree about a loop.
    """
    extents = [DYNAMIC_INDEX] * len(op.get_iterator_types())
    source: list[str] = [""] * len(extents)
    for number, (operand, indexing_map) in enumerate(zip(op.operands, op.get_indexing_maps(), strict=True)):
        if not isinstance(operand.type, ShapedType):
            continue
        for dimension, (extent, expr) in enumerate(zip(operand.type.get_shape(), indexing_map.data.results, strict=True)):
            if extent == DYNAMIC_INDEX or not isinstance(expr, AffineDimExpr):
                continue
            place = f"dimension {dimension} of operand {number}"
            if extents[expr.position] == DYNAMIC_INDEX:
                extents[expr.position] = extent
                source[expr.position] = place
            elif extents[expr.position] != extent:
                known = f"{source[expr.position]} is {extents[expr.position]}"
                raise VerifyException(f"sizes disagree: {known}, but {place} is {extent} and both are loop d{expr.position}")
    return extents


def verify_structured(op: LinalgStructuredOperation) -> None:
    """Check ranks, loop extents and result types; raises `VerifyException`."""
    maps = op.get_indexing_maps().data
    loops = len(op.get_iterator_types())
    if len(maps) != len(op.operands):
        raise VerifyException(f"expected one indexing map per operand ({len(op.operands)}), found {len(maps)}")
    for number, (operand, indexing_map) in enumerate(zip(op.operands, maps, strict=True)):
        rank = len(operand.type.get_shape()) if isinstance(operand.type, ShapedType) else 0
        if len(indexing_map.data.results) != rank:
            raise VerifyException(f"operand {number} has rank {rank}, expected {len(indexing_map.data.results)}")
        if indexing_map.data.num_dims != loops:
            raise VerifyException(f"indexing map {number} is over {indexing_map.data.num_dims} loops, expected {loops}")
    loop_extents(op)
    outputs = tensor_types(op.outputs.types)
    results = [result.type for result in op.res]
    if results != outputs:
        listing = ", ".join(str(kind) for kind in results) or "none"
        raise VerifyException(f"result types ({listing}) must be the types of outs ({', '.join(str(kind) for kind in outputs)})")
