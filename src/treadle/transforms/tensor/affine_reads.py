"""Inputs that are read through `floordiv`, `mod` or `ceildiv` become gathers: kernels walk arrays by strides, which these have none of."""

from treadle.analysis.indexing import is_linear
from treadle.errors import InternalError
from treadle.ir.core import AffineBinaryOpExpr, AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap, Builder, InsertPoint, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.ir.emitter import Emitter
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.transforms.tensor.drafts import Draft
from treadle.transforms.tensor.generics import sized_loops


class _IndexEmitter(Emitter):
    """Emits index expressions of the loops."""

    def affine(self, expr: AffineExpr) -> SSAValue:
        """The value of an expression; quotients round down, remainders are not negative."""
        match expr:
            case AffineDimExpr():
                return self.insert(linalg.ops.IndexOp(expr.position))
            case AffineConstantExpr():
                return self.constant(expr.value)
            case AffineBinaryOpExpr():
                left, right = self.affine(expr.lhs), self.affine(expr.rhs)
                return self._combined(expr.kind.name, left, right, never_negative=never_negative(expr.lhs))
            case _:
                raise InternalError(f"affine expression {expr}")

    def _combined(self, kind: str, left: SSAValue, right: SSAValue, *, never_negative: bool) -> SSAValue:
        match kind:
            case "Add":
                return self.insert(arith.AddiOp(left, right))
            case "Mul":
                return self.insert(arith.MuliOp(left, right))
            case "CeilDiv":
                return self.insert(arith.CeilDivSIOp(left, right))
            case "FloorDiv":
                return self.insert(arith.DivUIOp(left, right) if never_negative else arith.FloorDivSIOp(left, right))
            case _ if never_negative:
                return self.insert(arith.RemUIOp(left, right))
            case _:
                whole = self.insert(arith.MuliOp(self.insert(arith.FloorDivSIOp(left, right)), right))
                return self.insert(arith.SubiOp(left, whole))


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
            emit = _IndexEmitter(Builder(InsertPoint.at_start(draft.block)))
            places = [emit.affine(expr) for expr in map_.results]
            element = emit.insert(tensor.ExtractOp(source, places, tensor_type(source).element_type))
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
        emit, element = TensorEmitter(draft.op), tensor_type(source).element_type
        draft.add_input(emit.empty([emit.size(source, axis)], element), AffineMap(map_.num_dims, 0, (expr,)), element)
