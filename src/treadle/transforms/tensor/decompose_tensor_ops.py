"""decompose-tensor-ops: pad, concat and splat become fills and slice insertions; single elements become generics; casts disappear.

Level: tensor. Reads: `tensor.pad` of one value, `tensor.concat`, `tensor.splat`, `tensor.from_elements`, `tensor.insert`, `tensor.rank`,
`tensor.cast` before generics.
Writes: `tensor.empty`, `linalg.fill`, `tensor.insert_slice`, index arithmetic, and the generics of `single_elements.py`.
Leaves alone: everything else (what it cannot decompose is refused by form-dispatches).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from treadle.analysis.indexing import structured
from treadle.dialects.mlir_ext.shapes import RankOp
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.passes import register_pass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import insert_before, replace, tensor_type
from treadle.transforms.tensor.single_elements import collected_elements, inserted_element

Size = SSAValue | int


def _index(value: int, anchor: Operation) -> SSAValue:
    op = arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType()))
    insert_before(anchor, op)
    return op.result


def _size_of(value: SSAValue, axis: int, anchor: Operation) -> Size:
    size = tensor_type(value).get_shape()[axis]
    if size != DYNAMIC_INDEX:
        return size
    op = tensor.DimOp(value, _index(axis, anchor))
    insert_before(anchor, op)
    return op.result


def _add(left: Size, right: Size, anchor: Operation) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    operands = [value if isinstance(value, SSAValue) else _index(value, anchor) for value in (left, right)]
    op = arith.AddiOp(operands[0], operands[1])
    insert_before(anchor, op)
    return op.result


def _empty(type_: builtin.TensorType, sizes: Sequence[Size], anchor: Operation) -> SSAValue:
    dynamic = [
        size if isinstance(size, SSAValue) else _index(size, anchor)
        for size, static in zip(sizes, type_.get_shape(), strict=True)
        if static == DYNAMIC_INDEX
    ]
    op = tensor.EmptyOp(dynamic, type_)
    insert_before(anchor, op)
    return op.tensor


def _fill(scalar: SSAValue, destination: SSAValue, anchor: Operation) -> SSAValue:
    op = linalg.ops.FillOp([scalar], [destination], [destination.type])
    insert_before(anchor, op)
    return op.results[0]


def _insert(source: SSAValue, destination: SSAValue, offsets: Sequence[Size], anchor: Operation) -> SSAValue:
    sizes = [_size_of(source, axis, anchor) for axis in range(len(offsets))]
    static = [[value if isinstance(value, int) else DYNAMIC_INDEX for value in values] for values in (offsets, sizes)]
    dynamic = [[value for value in values if isinstance(value, SSAValue)] for values in (offsets, sizes)]
    lists = (static[0], static[1], [1] * len(offsets))
    names = ("static_offsets", "static_sizes", "static_strides")
    op = tensor.InsertSliceOp.build(
        operands=[source, destination, dynamic[0], dynamic[1], []],
        result_types=[destination.type],
        properties={name: builtin.DenseArrayBase.from_list(builtin.i64, values) for name, values in zip(names, lists, strict=True)},
    )
    insert_before(anchor, op)
    return op.results[0]


def _finish(op: Operation, value: SSAValue) -> None:
    value.name_hint = op.results[0].name_hint
    op.results[0].replace_all_uses_with(value)
    block = op.parent_block()
    if block is not None:
        block.erase_op(op)


def _mixed(static: Sequence[int], dynamic: Sequence[SSAValue]) -> list[Size]:
    values = iter(dynamic)
    return [int(entry) if entry != DYNAMIC_INDEX else next(values) for entry in static]


def decompose_pad(op: tensor.PadOp) -> bool:
    """`fill`, then the source inserted; False where the padding value is not one value for all elements."""
    last = op.region.block.last_op
    if not isinstance(last, tensor.YieldOp) or len(last.operands) != 1:
        return False
    scalar = last.operands[0]
    owner = scalar.owner
    if isinstance(owner, Operation) and owner.parent_block() is op.region.block:
        if not isinstance(owner, arith.ConstantOp):
            return False
        constant = owner.clone()
        insert_before(op, constant)
        scalar = constant.results[0]
    elif not isinstance(owner, Operation) and owner is op.region.block:
        return False
    low, high = _mixed(op.static_low.get_values(), op.low), _mixed(op.static_high.get_values(), op.high)
    rank = len(low)
    sizes = [_add(_add(low[axis], _size_of(op.source, axis, op), op), high[axis], op) for axis in range(rank)]
    destination = _fill(scalar, _empty(tensor_type(op.result), sizes, op), op)
    _finish(op, _insert(op.source, destination, low, op))
    return True


def decompose_concat(op: tensor.ConcatOp) -> None:
    """An empty tensor, then each operand inserted where it belongs."""
    axis = int(op.dim.value.data)
    first = op.inputs[0]
    starts: list[Size] = [0]
    for value in op.inputs:
        starts.append(_add(starts[-1], _size_of(value, axis, op), op))
    rank = tensor_type(first).get_num_dims()
    sizes = [starts[-1] if other == axis else _size_of(first, other, op) for other in range(rank)]
    result = _empty(tensor_type(op.result), sizes, op)
    for value, start in zip(op.inputs, starts, strict=False):
        result = _insert(value, result, [start if other == axis else 0 for other in range(rank)], op)
    _finish(op, result)


def _is_input(use: object) -> bool:
    operation, index = getattr(use, "operation", None), getattr(use, "index", 0)
    view = structured(operation) if isinstance(operation, Operation) else None
    return view is not None and int(index) < len(view.inputs)


@register_pass
@dataclass(frozen=True)
class DecomposeTensorOpsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "decompose-tensor-ops"

    def run(self, function: func.FuncOp) -> None:
        """Decompose every operation of the top block."""
        for op in list(function.body.block.ops):
            match op:
                case tensor.PadOp():
                    decompose_pad(op)
                case tensor.ConcatOp():
                    decompose_concat(op)
                case tensor.SplatOp():
                    type_ = tensor_type(op.result)
                    empty = tensor.EmptyOp(list(op.dynamicSizes), type_)
                    insert_before(op, empty)
                    _finish(op, _fill(op.input, empty.tensor, op))
                case tensor.FromElementsOp() if len(op.elements) == 1:
                    empty = tensor.EmptyOp([], tensor_type(op.result))
                    insert_before(op, empty)
                    _finish(op, _fill(op.elements[0], empty.tensor, op))
                case tensor.FromElementsOp():
                    replace(op, collected_elements(op))
                case tensor.InsertOp():
                    replace(op, inserted_element(op))
                case RankOp():
                    _finish(op, _index(tensor_type(op.source).get_num_dims(), op))
                case tensor.CastOp():
                    # The loops of the reader still require the sizes to agree, so nothing is lost.
                    op.dest.replace_uses_with_if(op.source, lambda use: structured(use.operation) is not None and _is_input(use))
                case _:
                    pass
