"""inline-calls: every `func.call` gives way to a copy of the function it calls.

Level: tensor. Reads: functions and calls. Writes: the callers; functions that were called are erased, so that one program is left of a
module with one entry. Leaves alone: functions that call nothing and are not called.
Refuses with TR301 functions that call themselves, directly or through others, and calls of functions without a (straight) body.
"""

from collections.abc import Mapping
from typing import ClassVar

from treadle.analysis.sizes import cannot_compile
from treadle.ir.context import Context
from treadle.ir.core import SSAValue
from treadle.ir.dialects import builtin, func
from treadle.ir.passes import ModulePass, register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.copying import copy_block
from treadle.transforms.tensor.generics import functions, give_way


def _inline(call: func.CallOp, callee: func.FuncOp, scope: str) -> None:
    mapping: dict[SSAValue, SSAValue] = dict(zip(callee.body.block.args, call.operands, strict=True))
    give_way(call, copy_block(callee.body.block, mapping, call, scope))


def _callee(call: func.CallOp, by_name: Mapping[str, func.FuncOp], callers: tuple[str, ...]) -> func.FuncOp:
    name = call.callee.string_value()
    if name in callers:
        path = " -> ".join((*callers[callers.index(name) :], name))
        hint = "write the repetition as a reduction or a map over a tensor"
        raise cannot_compile(call, what=f"a call of '{name}' by itself ({path})", hint=hint)
    callee = by_name.get(name)
    if callee is None or len(callee.body.blocks) != 1:
        what = f"a call of '{name}', which has no straight body here,"
        raise cannot_compile(call, what=what, hint="define it in this module, as one block")
    return callee


def _inline_into(
    function: func.FuncOp, by_name: Mapping[str, func.FuncOp], callers: tuple[str, ...], done: set[str], called: set[str]
) -> None:
    """Inline everything `function` calls, callees first: each is free of calls when it is copied."""
    name = function.sym_name.data
    for number, call in enumerate([op for op in function.walk() if isinstance(op, func.CallOp)]):
        callee = _callee(call, by_name, (*callers, name))
        called.add(callee.sym_name.data)
        if callee.sym_name.data not in done:
            _inline_into(callee, by_name, (*callers, name), done, called)
        _inline(call, callee, f"c{number}")
    done.add(name)


def inline_calls(module: builtin.ModuleOp) -> None:
    """Inline all calls of `module`."""
    by_name = {function.sym_name.data: function for function in functions(module)}
    done: set[str] = set()
    called: set[str] = set()
    for function in by_name.values():
        if function.sym_name.data not in done:
            _inline_into(function, by_name, (), done, called)
    for name in called:
        give_way(by_name[name], ())


@register_pass
@dataclass(frozen=True)
class InlineCallsPass(ModulePass):
    """See the module's docstring."""

    name: ClassVar[str] = "inline-calls"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        inline_calls(op)
