"""`tensor.from_elements` and `tensor.insert` as generics: each element of the result knows its place and selects what belongs there."""

from collections.abc import Callable, Sequence
from math import prod

from treadle.analysis.sizes import cannot_compile
from treadle.errors import InternalError
from treadle.ir.builtin import IntegerAttr, IntegerType
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import arith, linalg, tensor
from treadle.ir.emitter import Emitter
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.transforms.tensor.generics import elementwise, scalar_body

Select = Callable[[Emitter, Sequence[SSAValue]], SSAValue]
MOST_ELEMENTS = 256
"""Each element of a result of `tensor.from_elements` compares its place with those of all others."""


def _selected(inputs: Sequence[SSAValue], out: SSAValue, like: Operation, select: Select) -> linalg.ops.GenericOp:
    """A generic that selects each element by its place; not inserted."""
    kinds = [tensor_type(value).element_type for value in (*inputs, out)]
    return elementwise(inputs, [out], scalar_body(kinds, lambda emit, arguments: [select(emit, arguments)]), like)


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

    def select(emit: Emitter, _: Sequence[SSAValue]) -> SSAValue:
        found, place = op.elements[-1], emit.constant(0)
        for dim, size in enumerate(shape):  # the row-major number of this element
            scaled = emit.insert(arith.MuliOp(place, emit.constant(size)))
            place = emit.insert(arith.AddiOp(scaled, emit.insert(linalg.ops.IndexOp(dim))))
        for number, scalar in enumerate(op.elements[:-1]):
            here = emit.insert(arith.CmpiOp(place, emit.constant(number), "eq"))
            found = emit.insert(arith.SelectOp(here, scalar, found))
        return found

    return _selected([], TensorEmitter(op).empty_like(op.result), op, select)


def inserted_element(op: tensor.InsertOp) -> linalg.ops.GenericOp:
    """A generic that passes the destination on, but for the scalar in its place; not inserted. A place outside changes nothing."""
    kind: Attribute = tensor_type(op.dest).element_type
    if not isinstance(op.scalar.type, type(kind)):
        raise InternalError(f"{op.scalar.type} inserted into elements of {kind}")

    def select(emit: Emitter, arguments: Sequence[SSAValue]) -> SSAValue:
        here = emit.insert(arith.ConstantOp(IntegerAttr(1, IntegerType(1))))
        for dim, index in enumerate(op.indices):
            matches = emit.insert(arith.CmpiOp(emit.insert(linalg.ops.IndexOp(dim)), index, "eq"))
            here = emit.insert(arith.AndIOp(here, matches))
        return emit.insert(arith.SelectOp(here, op.scalar, arguments[0]))

    return _selected([op.dest], TensorEmitter(op).empty_like(op.dest), op, select)
