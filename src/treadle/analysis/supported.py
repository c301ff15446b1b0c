"""What a function may hold when its kernels are formed: computations that a kernel can hold, and what the host does between them."""

from treadle import errors
from treadle.analysis.folds import declared_identity
from treadle.analysis.indexing import is_linear, is_projection, map_dims, tensor_of, view_of
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.shapes import is_number_argument, unsupported
from treadle.analysis.sizes import cannot_compile
from treadle.errors import TreadleError
from treadle.ir.ancestry import captured
from treadle.ir.dialects import builtin, func, linalg, tensor
from treadle.ir.locations import location_of
from treadle.ir.tables import table_of

HOST_OPERATIONS = frozenset(
    {
        "tensor.empty",
        "tensor.dim",
        "tensor.cast",
        "tensor.extract_slice",
        "tensor.insert_slice",
        "tensor.expand_shape",
        "tensor.collapse_shape",
        "tensor.reshape",
        "linalg.fill",
        "linalg.generic",
        "func.return",
        "dispatch.block_index",
        "dispatch.only_where",
        "dispatch.read_index",
        "dispatch.same_size",
        "dispatch.region",
    }
)
"""What may stand in a function besides index and scalar arithmetic."""


def check_supported(function: func.FuncOp) -> None:
    """Raise `TreadleError` TR301 at the first operation that neither a kernel nor the host program can hold."""
    if len(function.body.blocks) != 1:
        raise cannot_compile(
            function,
            what=f"function '{function.sym_name.data}' with branches",
            hint="write one straight block",
        )
    for op in function.body.block.ops:
        if isinstance(op, tensor.ExtractOp) and (is_number_argument(op.tensor) or table_of(op) is not None):
            continue  # the host reads it
        if op.name not in HOST_OPERATIONS and op.name.split(".")[0] not in ("arith", "math", "affine"):
            raise unsupported(op)
        if (
            op.name.split(".")[0] in ("arith", "math")
            and op.name != "arith.constant"
            and any(isinstance(r.type, builtin.TensorType) for r in op.results)
        ):
            raise unsupported(op)
        if isinstance(op, linalg.ops.GenericOp):
            _check_generic(op)


def _check_generic(op: linalg.ops.GenericOp) -> None:
    view = view_of(op)
    if not op.results:
        raise cannot_compile(op, what="linalg on memrefs", hint="write the program on tensors")
    first = map_dims(view.output_maps[0])
    for map_ in view.output_maps:
        dims = map_dims(map_)
        if dims is None or not is_projection(map_) or set(dims) != set(view.parallel_dims) or set(dims) != set(first or ()):
            raise cannot_compile(
                op,
                what=f"'linalg.{origin_of(op)}' with the result map {map_}",
                hint="let each parallel loop be one axis of every result, and reductions none",
            )
    read = [argument for value, argument in zip(op.operands, op.body.block.args, strict=True) if isinstance(value.owner, tensor.EmptyOp)]
    if any(argument.uses or (not view.is_parallel and argument.index >= len(op.inputs)) for argument in read):
        does = "reads" if view.is_parallel else "reduces onto"
        raise TreadleError(errors.NO_INITIAL_VALUE, location_of(op), name=f"linalg.{origin_of(op)}", does=does)
    for map_ in view.input_maps:
        if not all(is_linear(expr) for expr in map_.results):
            raise cannot_compile(
                op,
                what=f"'linalg.{origin_of(op)}' that reads through {map_}",
                hint="index with sums of loops and constants times loops; split an axis with tensor.expand_shape instead of dividing",
            )
    for value in (*op.inputs, *op.outputs):
        if (type_ := tensor_of(value)) is not None and isinstance(type_.element_type, builtin.IndexType):
            raise cannot_compile(
                op,
                what=f"'linalg.{origin_of(op)}' on elements of type index",
                hint="use i32 or i64 elements, and arith.index_cast in the body",
            )
    for inner in view.body.walk():
        known = isinstance(inner, linalg.ops.YieldOp | linalg.ops.IndexOp | tensor.ExtractOp)
        if inner.name.split(".")[0] not in ("arith", "math") and not known:
            raise cannot_compile(
                inner,
                what=f"'{inner.name}' inside linalg.generic",
                hint="use arith, math, linalg.index and tensor.extract there",
            )
    if isinstance(reason := declared_identity(view), str):
        raise TreadleError(errors.ASSOCIATIVE, location_of(op), op=origin_of(op), reason=reason)
    for value in captured(op):
        if not isinstance(value.type, builtin.TensorType | builtin.IndexType):
            raise cannot_compile(
                op,
                what="a scalar that is computed outside of linalg.generic from data",
                hint="compute it inside the body, or pass it as a tensor of one element",
            )
