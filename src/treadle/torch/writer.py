"""PyTorch's graph of ATen operators as a module at tensor level.

The graph's placeholders are tensors and sizes, its nodes operators with values in their `meta["val"]`, as PyTorch leaves them behind
AOTAutograd, `torch.export` and `run_decompositions`. What an operator computes is written in the type that PyTorch computes in. Between
the operators of one graph a narrow float is kept in f32: a value is rounded where it leaves, where a contraction multiplies it and where
the user converts it.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import fx

from treadle.ir.builtin import DenseArrayBase, ModuleOp, TensorType, i64
from treadle.ir.core import DYNAMIC_INDEX, Attribute, Block, Region, SSAValue
from treadle.ir.dialects import builtin, func
from treadle.records import Record
from treadle.torch import image_operators, index_operators
from treadle.torch.memory import shape_of
from treadle.torch.nests import Nests, element
from treadle.torch.operators import OPERATORS
from treadle.torch.sizes import size_of
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Value, loops_of
from treadle.torch.views import with_units, without_units

MODULES: Final = (image_operators, index_operators)
"""What registers further operators."""
STRIDES: Final = "treadle.strides"


class Written(Record):
    """A module of one function, and which of the graph's placeholders are its arguments."""

    module: ModuleOp
    arguments: tuple[int, ...]


class Context:
    """What operators are written with: `nests` emits, `value` gives an operand's value, `shape` and `dtype` are the result's."""

    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.values: dict[fx.Node, Any] = {}

    def value(self, given: Any) -> Operand:
        """The value of an operand. Raises Unsupported for what is no tensor."""
        if isinstance(given, fx.Node) and isinstance(found := self.values.get(given), Operand):
            return found
        raise Unsupported(f"'{given}' as a tensor")


def write(graph: fx.Graph, name: str = "main") -> Written:
    """The module of a graph. Raises Unsupported at the first operator that is no loop nest, with its name."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    taken = [number for number, node in enumerate(placeholders) if _is_tensor(node) and node.users]
    tensors = [placeholders[number] for number in taken]
    block = Block(arg_types=[_argument_type(node) for node in tensors])
    nests = Nests(block)
    context = Context(nests)
    for node, argument in zip(tensors, block.args, strict=True):
        argument.name_hint = node.name
        shape = shape_of(node.meta["val"])
        for axis, size in enumerate(shape):
            nests.sizes.learn(size, argument, axis)
    for node, argument in zip(tensors, block.args, strict=True):
        context.values[node] = _argument(nests, node, argument)
    returned: list[SSAValue] = []
    for node in graph.nodes:
        if node.op == "call_function":
            _write_node(context, node)
        elif node.op == "output":
            returned = [_returned(context, result) for result in _results(node)]
        elif node.op != "placeholder":
            raise Unsupported(f"a node that is a {node.op}")
    block.add_op(func.ReturnOp(*returned))
    signature = ([argument.type for argument in block.args], [value.type for value in returned])
    function = func.FuncOp(name, signature, Region(block))
    _declare_strides(function, tensors)
    return Written(ModuleOp([function]), tuple(taken))


def _write_node(context: Context, node: fx.Node) -> None:
    operator = OPERATORS.find(node.target)
    if operator is None:
        if not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):
            return  # arithmetic on sizes: whoever uses its result has it as an expression
        raise Unsupported(f"{node.target} is not written as a loop nest")
    try:
        context.values[node] = operator(context, node)
    except Unsupported as refused:
        raise Unsupported(f"{node.target}: {refused}") from None


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _argument_type(node: fx.Node) -> Attribute:
    value = node.meta["val"]
    static = [size if isinstance(size, int) else DYNAMIC_INDEX for size in shape_of(value)]
    return TensorType(element(value.dtype), static)


def _argument(nests: Nests, node: fx.Node, argument: SSAValue) -> Value:
    value = node.meta["val"]
    shape = shape_of(value)
    return Value(without_units(nests, argument, shape), loops_of(shape), shape, value.dtype, value.dtype)


def _results(node: fx.Node) -> list[Any]:
    results: Any = node.args[0]
    return [results] if isinstance(results, fx.Node) else list(results)


def _returned(context: Context, result: Any) -> SSAValue:
    value = context.nests.rounded(context.value(result))
    return with_units(context.nests, context.nests.row_major(value))


def _declare_strides(function: func.FuncOp, tensors: Sequence[fx.Node]) -> None:
    """Say on each argument which strides its tensor has where these are numbers and not those of a dense array."""
    declared: list[Attribute] = []
    for node in tensors:
        value = node.meta["val"]
        strides = [size if isinstance(size, int) else DYNAMIC_INDEX for size in map(size_of, value.stride())]
        is_plain = value.is_contiguous()
        attributes = {} if is_plain else {STRIDES: DenseArrayBase.from_list(i64, strides)}
        declared.append(builtin.DictionaryAttr(attributes))
    if any(entry.data for entry in declared):  # pyright: ignore
        function.properties["arg_attrs"] = builtin.ArrayAttr(declared)
