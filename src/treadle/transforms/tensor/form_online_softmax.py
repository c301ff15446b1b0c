"""form-online-softmax: a maximum along rows and the sum of exponentials below it become one reduction, which reads the rows once.

Level: tensor, after fold-data-movement. Reads: reductions and the elementwise operations between them, the machine's facts. Writes: a
generic of two outputs, the running maximum and the sum of exponentials that is rescaled where the maximum grows; what else reads the
exponentials reads the maximum as before.
Leaves alone: rows that fit a workgroup (they are read once anyway), few long ones that only each reduction apart could be split of, sums
that start from another number than 0, and operations that carry attributes of the user's.

Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from treadle.analysis.indexing import view_of
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.row_sizes import row_sizes
from treadle.analysis.softmax import Softmax, softmax_of
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.ir.builtin import number_attr
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, func, linalg
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.row_tiles import fits_workgroup, is_worth_it
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, generics
from treadle.transforms.tensor.split_requests import facts_of

NAME: Final = "form-online-softmax"
_KEPT: Final = (dispatch.GROUP, SPLIT_REDUCTION)


def _body(found: Softmax) -> Region:
    """(element, maximum, sum) to the next two."""
    view, kind = found.maximum, tensor_type(found.maximum.outputs[0]).element_type
    block = Block(arg_types=[view.body.args[0].type, kind, kind])

    def add(op: Operation) -> SSAValue:
        op.location = found.total.op.location
        block.add_op(op)
        return op.results[0]

    element: SSAValue = block.args[0]
    if element.type != kind:
        element = add(arith.ExtFOp.create(operands=[element], result_types=[kind]))
    combine = view.yielded()[0].owner
    kept: type[Operation] = arith.MaxnumfOp if isinstance(combine, arith.MaxnumfOp) else arith.MaximumfOp
    top = add(kept.create(operands=[element, block.args[1]], result_types=[kind]))

    def power(value: SSAValue) -> SSAValue:
        return add(found.exponential.create(operands=[add(arith.SubfOp(value, top))], result_types=[kind]))

    total = add(arith.AddfOp(add(arith.MulfOp(block.args[2], power(block.args[1]))), power(element)))
    block.add_op(linalg.ops.YieldOp(top, total))
    return Region(block)


def _both(found: Softmax, initial: Sequence[SSAValue]) -> linalg.ops.GenericOp:
    """The one reduction, from the initial values of the maximum and of the sum; not inserted."""
    first = found.maximum
    maps = (first.input_maps[0], first.output_maps[0], first.output_maps[0])
    return build_generic(first.inputs, initial, maps, first.iterators, _body(found), first.op)


def rewrite(found: Softmax) -> None:
    """Put the one reduction in place of the two."""
    first, total = found.maximum, found.total
    kind = tensor_type(total.outputs[0]).element_type
    emit = TensorEmitter(first.op)
    zero = emit.insert(arith.ConstantOp(number_attr(0, kind)))  # type: ignore[arg-type]
    emit.insert(new := _both(found, [first.outputs[0], emit.fill(zero, emit.empty_like(first.outputs[0], kind))]))
    for view, result in ((first, new.results[0]), (total, new.results[1])):
        view.op.results[0].replace_all_uses_with(result)
        if (block := view.op.parent_block()) is not None:
            block.erase_op(view.op)


def _is_worth_it(found: Softmax, spec: TargetSpec) -> bool:
    rows, length, contiguous = row_sizes(found.maximum)
    if fits_workgroup(length, contiguous=contiguous, spec=spec):
        return False
    if is_worth_it(rows, length, contiguous=contiguous, spec=spec):
        return True
    both = _both(found, [found.maximum.outputs[0]] * 2)
    facts = facts_of(both)
    splits = facts is not None and facts.is_separable and bool(facts.splittable)
    both.erase()
    return splits


@register_pass
@dataclass(frozen=True)
class FormOnlineSoftmaxPass(FunctionPass):
    """`target`: the machine the kernels are for."""

    name: ClassVar[str] = NAME
    target: str

    def run(self, function: func.FuncOp) -> None:
        """Rewrite what is worth it in one function."""
        spec = target_spec(self.target)
        for op in generics(function):
            found = None if op.parent_block() is None else softmax_of(view_of(op))
            if found is None or any(name in one.attributes for one in (op, found.maximum.op) for name in _KEPT):
                continue
            if len({tensor_type(view.outputs[0]).element_type for view in (found.maximum, found.total)}) > 1:
                continue
            if _is_worth_it(found, spec):
                text = "maximum and sum of exponentials in one pass over the rows, which no workgroup holds"
                emit("decision", NAME, origin_of(op), text, location_of(op))
                rewrite(found)
