"""Inputs that are read through `floordiv`, `mod` or `ceildiv` become gathers: kernels walk arrays by strides, which these have none of."""

from treadle.analysis.indexing import is_linear
from treadle.errors import InternalError
from treadle.ir.core import (
    DYNAMIC_INDEX,
    AffineBinaryOpExpr,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Block,
    Operation,
    SSAValue,
)
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.transforms.tensor.drafts import Draft
from treadle.transforms.tensor.generics import insert_before, sized_loops, tensor_type


class _IndexEmitter:
    """Emits index expressions of the loops at the start of a body."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._before = block.first_op

    def add(self, op: Operation) -> SSAValue:
        """Append to what is emitted."""
        if self._before is None:
            self._block.add_op(op)
        else:
            self._block.insert_op_before(op, self._before)
        return op.results[0]

    def _constant(self, value: int) -> SSAValue:
        return self.add(arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType())))

    def emit(self, expr: AffineExpr) -> SSAValue:
        """The value of an expression; quotients round down, remainders are not negative."""
        match expr:
            case AffineDimExpr():
                return self.add(linalg.ops.IndexOp(expr.position))
            case AffineConstantExpr():
                return self._constant(expr.value)
            case AffineBinaryOpExpr():
                left, right = self.emit(expr.lhs), self.emit(expr.rhs)
                return self._combined(expr.kind.name, left, right, never_negative=never_negative(expr.lhs))
            case _:
                raise InternalError(f"affine expression {expr}")

    def _combined(self, kind: str, left: SSAValue, right: SSAValue, *, never_negative: bool) -> SSAValue:
        match kind:
            case "Add":
                return self.add(arith.AddiOp(left, right))
            case "Mul":
                return self.add(arith.MuliOp(left, right))
            case "CeilDiv":
                return self.add(arith.CeilDivSIOp(left, right))
            case "FloorDiv":
                return self.add(arith.DivUIOp(left, right) if never_negative else arith.FloorDivSIOp(left, right))
            case _ if never_negative:
                return self.add(arith.RemUIOp(left, right))
            case _:
                whole = self.add(arith.MuliOp(self.add(arith.FloorDivSIOp(left, right)), right))
                return self.add(arith.SubiOp(left, whole))


def never_negative(expr: AffineExpr) -> bool:
    """Whether an expression of loops, which count from 0, has no way to be negative."""
    if isinstance(expr, AffineBinaryOpExpr):
        return never_negative(expr.lhs) and never_negative(expr.rhs)
    return isinstance(expr, AffineDimExpr) or (isinstance(expr, AffineConstantExpr) and expr.value >= 0)


def gather_divided_reads(draft: Draft) -> None:
    """Turn inputs whose maps divide into extractions at computed places."""
    for number in range(len(draft.inputs) - 1, -1, -1):
        map_ = draft.maps[number]
        source = draft.inputs[number]
        if not map_.num_symbols and isinstance(source.type, builtin.TensorType) and not all(is_linear(expr) for expr in map_.results):
            _keep_loop_sizes(draft, number)
            emitter = _IndexEmitter(draft.block)
            places = [emitter.emit(expr) for expr in map_.results]
            element = emitter.add(tensor.ExtractOp(source, places, tensor_type(source).element_type))
            draft.drop_input(number, element)


def _keep_loop_sizes(draft: Draft, number: int) -> None:
    """A tensor without contents for each loop whose size only this input tells."""
    source, map_ = draft.inputs[number], draft.maps[number]
    others = [other for index, other in enumerate(draft.maps) if index != number]
    missing = sized_loops(draft.maps) - sized_loops((*others, *draft.output_maps))
    for axis, expr in enumerate(map_.results):
        if not isinstance(expr, AffineDimExpr) or expr.position not in missing:
            continue
        missing.discard(expr.position)
        size, element = tensor_type(source).get_shape()[axis], tensor_type(source).element_type
        sizes: list[SSAValue] = []
        if size == DYNAMIC_INDEX:
            place = arith.ConstantOp(builtin.IntegerAttr(axis, builtin.IndexType()))
            dim = tensor.DimOp(source, place.result)
            insert_before(draft.op, place, dim)
            sizes.append(dim.result)
        empty = tensor.EmptyOp(sizes, builtin.TensorType(element, [size]))
        insert_before(draft.op, empty)
        draft.add_input(empty.tensor, AffineMap(map_.num_dims, 0, (expr,)), element)
