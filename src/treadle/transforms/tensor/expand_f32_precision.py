"""expand-f32-precision: contractions of f32 operands become contractions of the operands' tf32 or bf16 parts.

Level: tensor, after set-f32-split. Reads: `treadle.f32_split` of contractions of two f32 tensors into f32.
Writes: for each operand a generic that splits it, its results side by side along k in one array whose rows start on 16 bytes; one
contraction over the k of all products, with the attribute `treadle.f32_parts` (the parts' type), by which set-kernel-form picks the
instruction and lets sums leave the matrix unit after every step. An operand of several contractions is split once.
Leaves alone: what has no such attribute, or "none", or is split in its own kernel.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

from treadle.analysis.indexing import Contraction, StructuredOp, classify, dim_map, map_dims, view_of
from treadle.analysis.operation_marks import F32_PARTS, F32_SPLIT, F32_SPLIT_IN, ORIGIN, origin_of, split_in_kernel
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.core import AffineMap, Attribute, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg
from treadle.ir.emitter import Emitter
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter
from treadle.plan.f32_split import SPLITS, Split
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, generics, replace, scalar_body

NAME = "expand-f32-precision"
ROW_BYTES = 16
"""What descriptor copies want the distance of rows to be a multiple of."""
_TF32_HALF, _TF32_MASK = 0x1000, -0x2000


def part_values(emit: Emitter, value: SSAValue, split: Split) -> list[SSAValue]:
    """Emit what computes the parts of an f32 scalar, large first.

    tf32: the first part is the value rounded to nearest (by integer arithmetic), the second what is left of it, exactly; the contraction
    rounds that. bf16: each part is what is left, rounded. An infinite value has NaN among its parts.
    """

    insert = emit.insert

    def number(bits: int) -> SSAValue:
        return insert(arith.ConstantOp(builtin.IntegerAttr(bits, builtin.i32)))

    if split.element == "tf32":
        bits = insert(arith.BitcastOp(value, builtin.i32))
        cut = insert(arith.AndIOp(insert(arith.AddiOp(bits, number(_TF32_HALF))), number(_TF32_MASK)))
        high = insert(arith.BitcastOp(cut, builtin.f32))
        return [high, insert(arith.SubfOp(value, high))]
    parts: list[SSAValue] = []
    for _ in range(split.parts):
        parts.append(insert(arith.TruncFOp(value, builtin.bf16)))
        if len(parts) < split.parts:
            value = insert(arith.SubfOp(value, insert(arith.ExtFOp(parts[-1], builtin.f32))))
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
        body = scalar_body([_element(split), _element(split), builtin.f32], _product)
        new = build_generic(inputs, view.outputs, (*maps, *view.output_maps), view.iterators, body, op)
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
    emit = TensorEmitter(anchor)
    *rows, k = [emit.size(value, axis) for axis in axes]
    rank, element = len(axes), _element(split)

    def body(inside: Emitter, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        parts = part_values(inside, arguments[0], split)
        return [parts[part] for part in order]

    # Loop d is axis axes[d] of the value.
    read = dim_map(rank, [axes.index(axis) for axis in range(rank)])
    outputs = [emit.empty([*rows, k], element) for _ in order]
    maps = (read, *[AffineMap.identity(rank)] * len(order))
    types = [builtin.f32, *[element] * len(order)]
    pieces = build_generic([value], outputs, maps, ["parallel"] * rank, scalar_body(types, body), anchor)
    pieces.attributes[ORIGIN] = builtin.StringAttr("f32_parts")
    pieces.attributes.pop(dispatch.GROUP, None)
    emit.insert(pieces)
    whole, step = emit.multiply(k, len(order)), ROW_BYTES // split.bytes
    padded = emit.multiply(emit.divide(emit.add(whole, step - 1), step), step)
    result, none = emit.empty([*rows, padded], element), [0] * len(rows)
    for number, piece in enumerate(pieces.results):
        result = emit.insert_slice(piece, result, [*none, emit.multiply(k, number)], [*rows, k])
    known = emit.static(whole)
    return result if known is not None and known == emit.static(padded) else emit.extract_slice(result, [*rows, whole])


def _element(split: Split) -> Attribute:
    return builtin.f32 if split.element == "tf32" else builtin.bf16


def _product(emit: Emitter, arguments: Sequence[SSAValue]) -> list[SSAValue]:
    """The accumulator and the product of the factors, widened where they are not of its type."""
    left, right, total = arguments
    wide = [factor if factor.type == total.type else emit.insert(arith.ExtFOp(factor, total.type)) for factor in (left, right)]
    return [emit.insert(arith.AddfOp(total, emit.insert(arith.MulfOp(wide[0], wide[1]))))]


@register_pass
@dataclass(frozen=True)
class ExpandF32PrecisionPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Expand the contractions that are marked."""
        expansion = _Expansion()
        for op in generics(function):
            if name := split_in_kernel(op):
                text = f"f32_precision={name}: the kernel splits the operands itself"
                emit("decision", NAME, origin_of(op), text, location_of(op))
                continue
            op.attributes.pop(F32_SPLIT_IN, None)
            mark = op.attributes.pop(F32_SPLIT, None)
            if isinstance(mark, builtin.StringAttr) and mark.data in SPLITS:
                expansion.expand(op, mark.data)
