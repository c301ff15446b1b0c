"""Two ways to compute a function in one host program: launches and memory of each are for calls of its own.

What is chosen between is told by an expression over the program's symbols, 0 or 1: launches for which it is 0 are skipped, memory has no
bytes. Results are the same memory in both ways.
"""

from collections.abc import Callable, Mapping

from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.plan.expr import Expr, as_expr

Rename = Callable[[str], Expr]


def _program_op(op: Operation, values: Mapping[SSAValue, SSAValue], rename: Rename) -> Operation:
    """A copy of an operation of one program for another one, whose symbols are called otherwise."""

    def given(value: SSAValue) -> SSAValue:
        return values[value]

    def texts(row: dispatch.Strings) -> list[Expr]:
        return [rename(text) for text in dispatch.texts(row)]

    match op:
        case dispatch.AllocOp():
            return dispatch.AllocOp(texts(op.shape), op.result.type, counters=op.counters is not None)
        case dispatch.ViewOp():
            return dispatch.ViewOp(given(op.source), rename(op.offset.data), texts(op.shape), texts(op.strides))
        case dispatch.LaunchOp():
            symbols = {name: str(rename(text)) for name, text in op.symbol_values().items()}
            return dispatch.LaunchOp(op.kernel.string_value(), [given(v) for v in op.inputs], [given(v) for v in op.outputs], symbols)
        case dispatch.ConstantOp():
            return dispatch.ConstantOp(op.value)
        case dispatch.CheckOp():
            message = op.message.data if op.message is not None else ""
            return dispatch.CheckOp(rename(op.left.data), op.relation.data, rename(op.right.data), message)
        case _:
            raise InternalError(f"{op.name} in a host program")


def _last(block: Block) -> dispatch.ReturnOp:
    if not isinstance(last := block.last_op, dispatch.ReturnOp):
        raise InternalError("a host program without dispatch.return")
    return last


def _memory(value: SSAValue) -> dispatch.AllocOp:
    """The allocation that a result is all of."""
    owner = value.owner
    if isinstance(owner, dispatch.ViewOp):
        owner = owner.source.owner
    if not isinstance(owner, dispatch.AllocOp):
        raise InternalError("a result that is no memory of its own")
    return owner


def _guard(block: Block, guard: Expr, kept: set[Operation]) -> None:
    for op in block.ops:
        if isinstance(op, dispatch.LaunchOp | dispatch.AllocOp) and op not in kept and op.when is None:
            op.properties["when"] = dispatch.StringAttr(str(guard))


def join_branches(block: Block, other: Block, guard: Expr, rename: Rename) -> None:
    """Append the launches of `other` to those of `block`, which are for calls where `guard` is 1; the other ones for those where it is 0.

    Both are of functions with the same arguments and results. `rename`: an expression of `other` as one over the symbols of `block`.
    """
    last, others_last = _last(block), _last(other)
    results = [(_memory(theirs), _memory(ours)) for theirs, ours in zip(others_last.values, last.values, strict=True)]
    _guard(block, guard, {ours for _, ours in results})
    values: dict[SSAValue, SSAValue] = {theirs.result: ours.result for theirs, ours in results}
    inputs = {op.index.value.data: op.result for op in block.ops if isinstance(op, dispatch.InputOp)}
    checks = {(op.left.data, op.relation.data, op.right.data) for op in block.ops if isinstance(op, dispatch.CheckOp)}
    first = next(op for op in block.ops if not isinstance(op, dispatch.InputOp | dispatch.CheckOp))
    for op in other.ops:
        if isinstance(op, dispatch.InputOp):
            values[op.result] = inputs[op.index.value.data]
        elif op is not others_last and not any(result in values for result in op.results):
            copy = _program_op(op, values, rename)
            copy.location = op.location
            if isinstance(copy, dispatch.CheckOp):
                if (copy.left.data, copy.relation.data, copy.right.data) not in checks:
                    block.insert_op_before(copy, first)
                continue
            if isinstance(copy, dispatch.LaunchOp | dispatch.AllocOp):
                copy.properties["when"] = dispatch.StringAttr(str(as_expr(1) - guard))
            block.insert_op_before(copy, last)
            values.update(zip(op.results, copy.results, strict=True))
