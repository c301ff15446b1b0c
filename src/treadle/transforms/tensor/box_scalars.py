"""box-scalars: arguments and results that are scalars become tensors of one element without dimensions.

Level: tensor, after inline-calls. Reads: functions. Writes: their signatures; `tensor.extract` where an argument begins,
`tensor.from_elements` where a result ends (of i64 for an index). So kernels and the host know arrays only; sizes that an integer argument
gives are read by the host (`analysis/shapes.py`).
Leaves alone: functions on tensors alone.
"""

from typing import ClassVar

from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, tensor
from treadle.ir.emitter import at_start, before
from treadle.ir.locations import set_location
from treadle.ir.passes import register_pass
from treadle.ir.retype import retype
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass


def _is_boxed(value: SSAValue) -> bool:
    return isinstance(value.type, builtin.TensorType)


def _box_argument(function: func.FuncOp, argument: SSAValue) -> None:
    hint, kind = argument.name_hint, argument.type
    boxed = retype(argument, builtin.TensorType(kind, []))
    boxed.name_hint = hint
    extract = tensor.ExtractOp(boxed, [], kind)
    set_location(extract, function)
    at_start(function.body.block).insert(extract)
    boxed.replace_uses_with_if(extract.result, lambda use: use.operation is not extract)


def _box_results(last: func.ReturnOp) -> None:
    insert = before(last).insert
    for number, value in enumerate(last.operands):
        if not _is_boxed(value):
            whole = insert(arith.IndexCastOp(value, builtin.i64)) if isinstance(value.type, builtin.IndexType) else value
            last.operands[number] = insert(tensor.FromElementsOp(whole, result_type=builtin.TensorType(whole.type, [])))


@register_pass
@dataclass(frozen=True)
class BoxScalarsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "box-scalars"

    def run(self, function: func.FuncOp) -> None:
        """Box the arguments and results of a function of one block."""
        last: Operation | None = function.body.blocks[0].last_op
        if len(function.body.blocks) != 1 or not isinstance(last, func.ReturnOp):
            return
        for argument in list(function.body.block.args):
            if not _is_boxed(argument):
                _box_argument(function, argument)
        _box_results(last)
        types = [argument.type for argument in function.body.block.args], [value.type for value in last.operands]
        function.properties["function_type"] = builtin.FunctionType.from_lists(*types)
