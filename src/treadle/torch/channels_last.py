"""Operands of convolutions that PyTorch's compiler would lay out with channels last.

Inductor has what a convolution reads written with channels last where its result lies so, as behind filters with channels last, and in
graphs of convolutions that it finds to be faster so; what computes an operand stores it in that order then. The graph does not say so: its
strides are those of PyTorch's operators, and GroupNorm's on a GPU have channels first. A program reads operands as they are laid out, so
the copies are in the graph when regions are taken. Inductor fuses them with what computes the operands.
"""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import fx

from treadle.records import dataclass
from treadle.torch.memory import has_channels_last
from treadle.torch.pointwise import name_of

_FORMATS: Final = {4: torch.channels_last, 5: torch.channels_last_3d}
"""By the rank of the image."""
_OPERANDS: Final = 2
"""Image and filters."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A convolution, and the operands that it had."""

    convolution: fx.Node
    operands: tuple[fx.Node, ...]


def lay_out(graph: fx.Graph, *, as_inductor: bool) -> list[LaidOut]:
    """Let convolutions read copies with channels last. `as_inductor`: also where Inductor has the whole graph so."""
    convolutions = [node for node in graph.nodes if node.op == "call_function" and name_of(node.target) == "aten::convolution"]
    if not convolutions:
        return []
    everywhere = as_inductor and _is_preferred(graph)
    copies: dict[fx.Node, fx.Node] = {}
    found: list[LaidOut] = []
    for node in convolutions:
        value = node.meta["val"]
        if value.dim() in _FORMATS and (everywhere or has_channels_last(value)):
            given: Any = node.args[:_OPERANDS]
            node.args = (*(_copied(graph, operand, node, copies) for operand in given), *node.args[_OPERANDS:])
            found.append(LaidOut(node, given))
    return found


def lay_back(laid: Sequence[LaidOut], taken: Collection[fx.Node]) -> None:
    """Let convolutions that are not among `taken` read what they read before; what nothing reads any more stays for the graph to drop."""
    for each in laid:
        if each.convolution not in taken:
            each.convolution.args = (*each.operands, *each.convolution.args[_OPERANDS:])


def _is_preferred(graph: fx.Graph) -> bool:
    """Whether Inductor finds the graph's convolutions to be faster with channels last, in inference, and in training."""
    from torch._inductor.graph import GraphLowering  # where the rest runs operator by operator, nothing needs it

    module: Any = SimpleNamespace(graph=graph)  # all that is looked at
    return all(GraphLowering.decide_layout_opt(module, is_inference=is_inference) for is_inference in (False, True))


def _copied(graph: fx.Graph, operand: fx.Node, reader: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    value = operand.meta["val"]
    if has_channels_last(value):
        return operand
    if operand not in copies:
        layout = _FORMATS[value.dim()]
        with graph.inserting_before(reader):
            copy = graph.call_function(torch.ops.aten.clone.default, (operand,), {"memory_format": layout})
        copy.meta = {**operand.meta, "val": value.clone(memory_format=layout)}
        copies[operand] = copy
    return copies[operand]
