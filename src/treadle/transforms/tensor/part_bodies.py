"""The scalars of a split reduction: identities, bodies that keep narrow floats wide, and the body that merges partial results."""

from treadle.analysis.identities import identity_of
from treadle.analysis.indexing import Contraction, StructuredOp
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.strategies.facts import OperationFacts
from treadle.transforms.tensor.generics import clone_body


def combiners(view: StructuredOp) -> list[Operation]:
    """For each output the operation of the body that joins its accumulator with an element."""
    found: list[Operation] = []
    for value in view.yielded():
        if not isinstance(value.owner, Operation):
            raise InternalError("a separable reduction yields an argument")
        found.append(value.owner)
    return found


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


def identity_constant(combiner: Operation, kind: Attribute) -> arith.ConstantOp:
    """The identity of a combiner in a type, as a scalar."""
    return arith.ConstantOp.create(result_types=[kind], properties={"value": identity_of(combiner.name, kind)})


def merge_body(joins: list[Operation], kinds: tuple[Attribute, ...]) -> Region:
    """Joins partial results with accumulators, in the partial results' types."""
    block = Block(arg_types=[*kinds, *kinds])
    results: list[SSAValue] = []
    for number, (join, kind) in enumerate(zip(joins, kinds, strict=True)):
        accumulator = block.args[len(kinds) + number]
        new = type(join).create(operands=[accumulator, block.args[number]], result_types=[kind], properties=dict(join.properties))
        block.add_op(new)
        results.append(new.results[0])
    block.add_op(linalg.ops.YieldOp(*results))
    return Region(block)


def cast_body(source: Attribute, target: Attribute) -> Region:
    """The body of a generic that widens or narrows floats."""
    block = Block(arg_types=[source, target])
    wider = isinstance(source, builtin.AnyFloat) and isinstance(target, builtin.AnyFloat) and source.bitwidth < target.bitwidth
    op = (arith.ExtFOp if wider else arith.TruncFOp)(block.args[0], target)
    block.add_ops([op, linalg.ops.YieldOp(op.result)])
    return Region(block)
