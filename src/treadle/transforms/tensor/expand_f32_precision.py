"""expand-f32-precision: contractions of f32 operands become contractions of the operands' tf32 or bf16 parts.

Level: tensor, after set-f32-split. Reads: `treadle.f32_split` of contractions of two f32 tensors into f32.
Writes: for each operand a generic that splits it, its results side by side along k in one array whose rows start on 16 bytes; one
contraction over the k of all products, with the attribute `treadle.f32_parts` (the parts' type), by which set-kernel-form picks the
instruction and lets sums leave the matrix unit after every step. An operand of several contractions is split once.
Leaves alone: what has no such attribute, or "none".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from treadle.analysis.indexing import Contraction, StructuredOp, classify, dim_map, map_dims
from treadle.analysis.operation_marks import F32_PARTS, F32_SPLIT, ORIGIN, origin_of
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.core import DYNAMIC_INDEX, AffineMap, Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.plan.f32_split import SPLITS, Split
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import (
    build_generic,
    generics,
    insert_before,
    replace,
    tensor_type,
    view_of,
)

NAME = "expand-f32-precision"
ROW_BYTES = 16
"""What descriptor copies want the distance of rows to be a multiple of."""
_TF32_HALF, _TF32_MASK = 0x1000, -0x2000

Size = SSAValue | int


def _constant(value: int, anchor: Operation) -> SSAValue:
    op = arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType()))
    insert_before(anchor, op)
    return op.result


def _value(size: Size, anchor: Operation) -> SSAValue:
    return size if isinstance(size, SSAValue) else _constant(size, anchor)


def _calculate(kind: type[arith.MuliOp | arith.AddiOp | arith.FloorDivSIOp], left: Size, right: int, anchor: Operation) -> SSAValue:
    op = kind(_value(left, anchor), _constant(right, anchor))
    insert_before(anchor, op)
    return op.result


def _times(size: Size, factor: int, anchor: Operation) -> Size:
    return size * factor if isinstance(size, int) else _calculate(arith.MuliOp, size, factor, anchor)


def _rounded_up(size: Size, step: int, anchor: Operation) -> Size:
    if isinstance(size, int):
        return -(-size // step) * step
    more = _calculate(arith.AddiOp, size, step - 1, anchor)
    return _calculate(arith.MuliOp, _calculate(arith.FloorDivSIOp, more, step, anchor), step, anchor)


def _sizes(value: SSAValue, axes: Sequence[int], anchor: Operation) -> list[Size]:
    found: list[Size] = []
    for axis in axes:
        size = tensor_type(value).get_shape()[axis]
        if size == DYNAMIC_INDEX:
            op = tensor.DimOp(value, _constant(axis, anchor))
            insert_before(anchor, op)
            found.append(op.result)
        else:
            found.append(size)
    return found


def _shape(sizes: Sequence[Size]) -> list[int]:
    return [size if isinstance(size, int) else DYNAMIC_INDEX for size in sizes]


def _dynamic(sizes: Sequence[Size]) -> list[SSAValue]:
    return [size for size in sizes if isinstance(size, SSAValue)]


def _empty(sizes: Sequence[Size], element: Attribute, anchor: Operation) -> SSAValue:
    op = tensor.EmptyOp(_dynamic(sizes), builtin.TensorType(element, _shape(sizes)))
    insert_before(anchor, op)
    return op.tensor


def _slice_properties(offsets: Sequence[Size], sizes: Sequence[Size]) -> dict[str, Attribute]:
    lists = {"static_offsets": _shape(offsets), "static_sizes": _shape(sizes), "static_strides": [1] * len(sizes)}
    return {name: builtin.DenseArrayBase.from_list(builtin.i64, values) for name, values in lists.items()}


def _insert(source: SSAValue, destination: SSAValue, offsets: Sequence[Size], sizes: Sequence[Size], anchor: Operation) -> SSAValue:
    op = tensor.InsertSliceOp.build(
        operands=[source, destination, _dynamic(offsets), _dynamic(sizes), []],
        result_types=[destination.type],
        properties=_slice_properties(offsets, sizes),
    )
    insert_before(anchor, op)
    return op.results[0]


def _extract(source: SSAValue, sizes: Sequence[Size], anchor: Operation) -> SSAValue:
    op = tensor.ExtractSliceOp.build(
        operands=[source, [], _dynamic(sizes), []],
        result_types=[builtin.TensorType(tensor_type(source).element_type, _shape(sizes))],
        properties=_slice_properties([0] * len(sizes), sizes),
    )
    insert_before(anchor, op)
    return op.results[0]


def part_values(block: Block, value: SSAValue, split: Split) -> list[SSAValue]:
    """Append to `block` what computes the parts of an f32 scalar, large first.

    tf32: the first part is the value rounded to nearest (by integer arithmetic), the second what is left of it, exactly; the contraction
    rounds that. bf16: each part is what is left, rounded. An infinite value has NaN among its parts.
    """

    def add(op: Operation) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    def number(bits: int) -> SSAValue:
        return add(arith.ConstantOp(builtin.IntegerAttr(bits, builtin.i32)))

    if split.element == "tf32":
        bits = add(arith.BitcastOp(value, builtin.i32))
        cut = add(arith.AndIOp(add(arith.AddiOp(bits, number(_TF32_HALF))), number(_TF32_MASK)))
        high = add(arith.BitcastOp(cut, builtin.f32))
        return [high, add(arith.SubfOp(value, high))]
    parts: list[SSAValue] = []
    for _ in range(split.parts):
        parts.append(add(arith.TruncFOp(value, builtin.bf16)))
        if len(parts) < split.parts:
            value = add(arith.SubfOp(value, add(arith.ExtFOp(parts[-1], builtin.f32))))
    return parts


@dataclass(slots=True)
class _Expansion:
    """One function's contractions; `made`: split operands by what they are made of."""

    made: dict[tuple[SSAValue, tuple[int, ...], tuple[int, ...], str], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, tuple[int, ...], tuple[int, ...], str], SSAValue]
    )

    def expand(self, op: linalg.ops.GenericOp, precision: str) -> None:
        """Rewrite one contraction by the split of that name."""
        split = SPLITS[precision]
        kind, view = classify(op), view_of(op)
        if not isinstance(kind, Contraction):
            raise InternalError("only contractions of f32 are marked to be split")
        sides = ((kind.lhs, kind.m, 0), (kind.rhs, kind.n, 1))
        inputs: list[SSAValue] = [op.inputs[0]] * 2
        maps: list[AffineMap] = [view.input_maps[0]] * 2
        for number, own, side in sides:
            dims = (*kind.batch, *own, *kind.k)
            inputs[number] = self._operand(view, number, dims, tuple(pair[side] for pair in split.products), split, op)
            maps[number] = dim_map(view.rank, dims)
        element: Attribute = builtin.f32 if split.element == "tf32" else builtin.bf16
        new = build_generic(inputs, view.outputs, (*maps, *view.output_maps), view.iterators, _product_body(element), op)
        new.attributes[F32_PARTS] = builtin.StringAttr(split.element)
        replace(op, new)
        count, made = len(split.products), f"{split.parts} {split.element} parts of each operand"
        text = f"f32_precision={precision}: {count} products of {made}, one after the other along k"
        emit("decision", NAME, origin_of(new), text, location_of(new))

    def _operand(
        self, view: StructuredOp, number: int, dims: tuple[int, ...], order: tuple[int, ...], split: Split, anchor: Operation
    ) -> SSAValue:
        """The parts of an operand in the order of the products, along the last of `dims`, which is one of k."""
        value = view.inputs[number]
        positions = map_dims(view.input_maps[number])
        if positions is None:
            raise InternalError("the operand of a contraction is no projection")
        axes = tuple(positions.index(d) for d in dims)
        key = (value, axes, order, split.element)
        if key not in self.made:
            self.made[key] = _split(value, axes, order, split, anchor)
        return self.made[key]


def _split(value: SSAValue, axes: tuple[int, ...], order: tuple[int, ...], split: Split, anchor: Operation) -> SSAValue:
    sizes = _sizes(value, axes, anchor)
    rank, k = len(axes), sizes[-1]
    element: Attribute = builtin.f32 if split.element == "tf32" else builtin.bf16
    block = Block(arg_types=[builtin.f32, *[element] * len(order)])
    parts = part_values(block, block.args[0], split)
    block.add_op(linalg.ops.YieldOp(*(parts[part] for part in order)))
    # Loop d is axis axes[d] of the value.
    read = dim_map(rank, [axes.index(axis) for axis in range(rank)])
    outputs = [_empty(sizes, element, anchor) for _ in order]
    maps = (read, *[AffineMap.identity(rank)] * len(order))
    pieces = build_generic([value], outputs, maps, ["parallel"] * rank, Region(block), anchor)
    pieces.attributes[ORIGIN] = builtin.StringAttr("f32_parts")
    pieces.attributes.pop(dispatch.GROUP, None)
    insert_before(anchor, pieces)
    whole = [*sizes[:-1], _times(k, len(order), anchor)]
    padded = [*sizes[:-1], _rounded_up(whole[-1], ROW_BYTES // split.bytes, anchor)]
    result = _empty(padded, element, anchor)
    for number, piece in enumerate(pieces.results):
        result = _insert(piece, result, [*[0] * (rank - 1), _times(k, number, anchor)], sizes, anchor)
    return result if whole[-1] == padded[-1] else _extract(result, whole, anchor)


def _product_body(element: Attribute) -> Region:
    block = Block(arg_types=[element, element, builtin.f32])
    factors: list[SSAValue] = []
    for argument in block.args[:2]:
        if element != builtin.f32:
            widened = arith.ExtFOp(argument, builtin.f32)
            block.add_op(widened)
            factors.append(widened.result)
        else:
            factors.append(argument)
    product = arith.MulfOp(factors[0], factors[1])
    total = arith.AddfOp(block.args[2], product)
    block.add_ops([product, total, linalg.ops.YieldOp(total)])
    return Region(block)


@register_pass
@dataclass(frozen=True)
class ExpandF32PrecisionPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Expand the contractions that are marked."""
        expansion = _Expansion()
        for op in generics(function):
            mark = op.attributes.pop(F32_SPLIT, None)
            if isinstance(mark, builtin.StringAttr) and mark.data in SPLITS:
                expansion.expand(op, mark.data)
