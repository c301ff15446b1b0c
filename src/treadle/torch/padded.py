"""Operands that Inductor has padded, laid out as what they are made of.

Where a product's rows are no whole 16 bytes, Inductor pads the operands with zeros. A weight is read through a permutation, and the padded
one would lie densely in the permuted order: a copy that transposes. Inductor itself leaves the order to its kernels, but an operand of a
region has a layout. So the weight is padded, and then permuted.
"""

from typing import Any

import torch
from torch import fx

from treadle.torch.pointwise import name_of
from treadle.torch.regions import behind_permutations, is_anchor, permuted


def pad_before_permutations(graph: fx.Graph) -> None:
    """Let products read permutations of padded arrays instead of padded permutations."""
    for node in list(graph.nodes):
        if name_of(node.target) != "aten::constant_pad_nd" or node.op != "call_function" or not any(map(is_anchor, node.users)):
            continue
        given: Any = node.args[0]
        source, order = behind_permutations(given)[-1], _order(given)
        if source is given:
            continue
        pairs = _pairs(node.args[1], len(order))
        amounts = [amount for dim in reversed(range(len(order))) for amount in pairs[order.index(dim)]]
        value = node.args[2] if len(node.args) > 2 else 0
        with graph.inserting_before(node):
            made = graph.call_function(torch.ops.aten.constant_pad_nd.default, (source, amounts, value))
            made.meta = {**node.meta, "val": torch.constant_pad_nd(source.meta["val"], amounts, value)}
            shown = permuted(graph, made, order)
        node.replace_all_uses_with(shown)
        graph.erase_node(node)


def _pairs(amounts: Any, rank: int) -> list[tuple[Any, Any]]:
    """What is put before and behind each dimension, in order; the operator names the last one first, and may leave out others."""
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _order(node: fx.Node) -> list[int]:
    """Which dimension of the first array each dimension of its permutations is."""
    *permutations, source = behind_permutations(node)
    order: list[int] = list(range(source.meta["val"].dim()))
    for moved in reversed(permutations):
        rest: Any = moved.args[1:]
        if name_of(moved.target) == "aten::permute":
            order = [order[dim] for dim in rest[0]]
        else:
            first, second = rest if rest else (0, len(order) - 1)
            order[first], order[second] = order[second], order[first]
    return order
