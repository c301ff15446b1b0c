"""The bodies of a split reduction: those that keep narrow floats wide, and the one that merges partial results."""

from collections.abc import Mapping, Sequence

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.indexing import Contraction, StructuredOp
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith
from treadle.ir.emitter import Emitter, Index
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.strategies.facts import OperationFacts
from treadle.transforms.kernel.tiling.merges import merged_outputs
from treadle.transforms.tensor.generics import clone_body, elementwise, scalar_body


def placed_indices(
    facts: OperationFacts, results: list[SSAValue], starts: Mapping[int, Index], emit: TensorEmitter, like: Operation
) -> list[SSAValue]:
    """The results of a part with the indices that it found counted from the start of the whole loop, not of the part."""
    for part in facts.folds or ():
        if isinstance(part, Coupled) and part.kind in ("argmax", "argmin"):
            (dim,) = facts.view.reduction_dims
            results[part.outputs[1]] = _moved(results[part.outputs[1]], starts[dim], emit, like)
    return results


def _moved(indices: SSAValue, start: Index, emit: TensorEmitter, like: Operation) -> SSAValue:
    kind = tensor_type(indices).element_type
    if isinstance(start, int):
        raise InternalError("a part that begins at the same place in every block")

    def moved(inside: Emitter, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        return [inside.insert(arith.AddiOp(arguments[0], inside.insert(arith.IndexCastOp(start, kind))))]

    op = elementwise([indices], [emit.empty_like(indices)], scalar_body([kind, kind], moved), like)
    op.attributes.clear()
    return emit.insert(op)


def part_body(view: StructuredOp, facts: OperationFacts) -> Region:
    """The body of one part: the operation's own, with accumulators of the partial results' types."""
    body = clone_body(view)
    block, inputs = body.block, len(view.inputs)
    last = block.last_op
    if last is None:
        raise InternalError("a body without an end")
    for number, kind in enumerate(facts.partial_types):
        accumulator = block.args[inputs + number]
        if accumulator.type == kind:
            continue
        joined = last.operands[number].owner
        if not isinstance(joined, Operation):
            raise InternalError("a separable reduction yields an argument")
        element = joined.operands[1] if joined.operands[0] is accumulator else joined.operands[0]
        wide = _widened_element(element, view, facts, block, joined, kind)
        other = block.insert_arg(kind, inputs + number)
        new = type(joined).create(operands=[other, wide], result_types=[kind], properties=dict(joined.properties))
        block.insert_op_before(new, joined)
        last.operands[number] = new.results[0]
        block.erase_op(joined)
        block.erase_arg(accumulator)
    return body


def _widened_element(
    element: SSAValue, view: StructuredOp, facts: OperationFacts, block: Block, before: Operation, kind: Attribute
) -> SSAValue:
    """An element in the wider type; the product of a contraction is formed in it."""

    def widened(value: SSAValue) -> SSAValue:
        op = arith.ExtFOp(value, kind)
        block.insert_op_before(op, before)
        return op.result

    product = element.owner
    if isinstance(facts.computation, Contraction) and isinstance(product, arith.MulfOp):
        left, right = (widened(operand) for operand in product.operands)
        new = arith.MulfOp(left, right)
        block.insert_op_before(new, before)
        if element.has_one_use():
            element.replace_all_uses_with(new.result)  # nothing is left that reads the narrow product
        return new.result
    return widened(element)


def merge_body(facts: OperationFacts) -> Region:
    """Joins partial results with accumulators, in the partial results' types."""
    kinds = facts.partial_types

    def merged(inside: Emitter, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        found, held = arguments[: len(kinds)], arguments[len(kinds) :]
        return merged_outputs(inside.insert, facts.folds or (), facts.view, held, found, ordered=False)

    return scalar_body([*kinds, *kinds], merged)
