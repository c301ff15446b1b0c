"""`linalg.fill` and `linalg.copy` whose bodies convert to the output's element type and whose shapes and results are checked."""

from collections.abc import Sequence

from treadle.dialects.mlir_ext.linalg_base import TensorEffects, YieldOp, cast_scalar, element_type
from treadle.dialects.mlir_ext.loops import verify_structured
from treadle.ir.builtin import AnyFloat, IndexType, IntegerType
from treadle.ir.core import Block, Region, SSAValue, VerifyException, traits_def
from treadle.ir.dialects import linalg


def _converting_body(inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
    if len(inputs) != 1 or len(outputs) != 1:
        raise ValueError("expected one input and one output")
    block = Block(arg_types=[element_type(inputs[0]), element_type(outputs[0])])
    block.add_op(YieldOp(cast_scalar(block, block.args[0], element_type(outputs[0]))))
    return Region(block)


class FillOp(linalg.ops.FillOp):
    """Every element of the output is the scalar, converted."""

    traits = traits_def(TensorEffects())

    def verify_(self) -> None:
        super().verify_()
        if not isinstance(self.inputs[0].type, AnyFloat | IntegerType | IndexType):
            raise VerifyException(f"the value must be a scalar, found {self.inputs[0].type}")
        verify_structured(self)

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        return _converting_body(inputs, outputs)


class CopyOp(linalg.ops.CopyOp):
    """Every element of the output is the input's, converted."""

    traits = traits_def(TensorEffects())

    def verify_(self) -> None:
        super().verify_()
        verify_structured(self)

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        return _converting_body(inputs, outputs)
