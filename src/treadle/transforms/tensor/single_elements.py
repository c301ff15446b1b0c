"""`tensor.from_elements` and `tensor.insert` as generics: each element of the result knows its place and selects what belongs there."""

from math import prod

from treadle.analysis.sizes import cannot_compile
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType, IntegerAttr, IntegerType
from treadle.ir.core import AffineMap, Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, linalg, tensor
from treadle.transforms.tensor.generics import build_generic, empty_like, insert_before, tensor_type

MOST_ELEMENTS = 256
"""Each element of a result of `tensor.from_elements` compares its place with those of all others."""


def _add(block: Block, op: Operation) -> SSAValue:
    block.add_op(op)
    return op.results[0]


def _index(block: Block, value: int) -> SSAValue:
    return _add(block, arith.ConstantOp(IntegerAttr(value, IndexType())))


def _generic(op: Operation, inputs: list[SSAValue], out: SSAValue, block: Block, result: SSAValue) -> linalg.ops.GenericOp:
    block.add_op(linalg.ops.YieldOp(result))
    rank = tensor_type(out).get_num_dims()
    maps = [AffineMap.identity(rank)] * (len(inputs) + 1)
    return build_generic(inputs, [out], maps, ["parallel"] * rank, Region(block), op)


def _place(block: Block, shape: tuple[int, ...]) -> SSAValue:
    """The row-major number of the element at hand."""
    total = _index(block, 0)
    for dim, size in enumerate(shape):
        scaled = _add(block, arith.MuliOp(total, _index(block, size)))
        total = _add(block, arith.AddiOp(scaled, _add(block, linalg.ops.IndexOp(dim))))
    return total


def collected_elements(op: tensor.FromElementsOp) -> linalg.ops.GenericOp:
    """The tensor of `op`'s scalars, or a generic that selects each by its place; not inserted.

    Raises `TreadleError` TR301 for more than `MOST_ELEMENTS`.
    """
    type_ = tensor_type(op.result)
    shape = tuple(type_.get_shape())
    if len(op.elements) > MOST_ELEMENTS:
        hint = "write constants as one dense constant, computed values with linalg.generic"
        what = f"tensor.from_elements of {prod(shape)} values (more than {MOST_ELEMENTS})"
        raise cannot_compile(op, what=what, hint=hint)
    empty = tensor.EmptyOp([], type_)
    insert_before(op, empty)
    block = Block(arg_types=[type_.element_type])
    found = op.elements[-1]
    if len(op.elements) > 1:
        place = _place(block, shape)
        for number, scalar in enumerate(op.elements[:-1]):
            here = _add(block, arith.CmpiOp(place, _index(block, number), "eq"))
            found = _add(block, arith.SelectOp(here, scalar, found))
    return _generic(op, [], empty.tensor, block, found)


def inserted_element(op: tensor.InsertOp) -> linalg.ops.GenericOp:
    """A generic that passes the destination on, but for the scalar in its place; not inserted. A place outside changes nothing."""
    kind: Attribute = tensor_type(op.dest).element_type
    if not isinstance(op.scalar.type, type(kind)):
        raise InternalError(f"{op.scalar.type} inserted into elements of {kind}")
    block = Block(arg_types=[kind, kind])
    here: SSAValue = _add(block, arith.ConstantOp(IntegerAttr(1, IntegerType(1))))
    for dim, index in enumerate(op.indices):
        matches = _add(block, arith.CmpiOp(_add(block, linalg.ops.IndexOp(dim)), index, "eq"))
        here = _add(block, arith.AndIOp(here, matches))
    result = _add(block, arith.SelectOp(here, op.scalar, block.args[0]))
    return _generic(op, [op.dest], empty_like(op.dest, op), block, result)
